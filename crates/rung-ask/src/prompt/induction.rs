//! k-hop induction as text: k times, go from a letter to the letter that followed its previous occurrence.
//!
//! In a random string frequent letters are more often the answer, and an even number of jumps often leads back to the last letter.
//! First a frequency rank is drawn uniformly; then strings are drawn until the answer has this rank. The answer is also the last letter only
//! as often as chance (after one jump it never is), so that guessing the most frequent or the last letter scores no better than chance.

use rung_theory::task::{AnyTask, NO_TARGET, Prompt, Rng, random_below};

use super::{PromptBody, Style};
use crate::AskError;

/// Maximum number of strings drawn until the answer has the required frequency rank.
const MAX_DRAWS: usize = 100_000;

/// Draws a string and writes the parts of its prompt.
///
/// # Errors
/// No string with the required frequency rank was drawn.
pub(super) fn sample_body(
    task: &dyn AnyTask,
    style: Style,
    symbols: &[String],
    rng: &mut Rng,
) -> Result<PromptBody, AskError> {
    let letter_count = symbols.len() as u32;
    let (required_rank, answer_is_last_letter) =
        (random_below(rng, letter_count), random_below(rng, letter_count) == 0);
    let mut prompt = Prompt::new();
    for _ in 0..MAX_DRAWS {
        task.sample_prompt(rng, &mut prompt);
        let Some((position, target, _)) = prompt.questions().last() else { continue };
        if position + 1 != prompt.len() || target == NO_TARGET || target >= letter_count {
            continue;
        }
        // The first token is the number of hops: its id follows the ids of the letters.
        let hops = prompt.tokens()[0] - letter_count + 1;
        let last_letter_fits = hops == 1 || (target == prompt.tokens()[position]) == answer_is_last_letter;
        if last_letter_fits && frequency_rank(&prompt.tokens()[1..], target, letter_count) == required_rank {
            return Ok(prompt_body(&prompt.tokens()[1..], hops, target, style, symbols));
        }
    }
    Err(AskError::Unsupported(format!(
        "task `{}`: found no string whose answer has the drawn frequency rank, expected a longer string or fewer hops",
        task.spec()
    )))
}

/// Number of letters that occur more often than `letter`; among equally frequent ones the smaller letter ranks first.
fn frequency_rank(string: &[u32], letter: u32, letter_count: u32) -> u32 {
    let occurrences = |counted: u32| string.iter().filter(|other| **other == counted).count();
    let count = occurrences(letter);
    let is_more_frequent =
        |other: &u32| occurrences(*other) > count || (occurrences(*other) == count && *other < letter);
    (0..letter_count).filter(is_more_frequent).count() as u32
}

fn prompt_body(string: &[u32], hops: u32, target: u32, style: Style, symbols: &[String]) -> PromptBody {
    let letters: Vec<&str> = string.iter().map(|letter| symbols[*letter as usize].as_str()).collect();
    let rule = "A jump goes from a symbol to the symbol that came right after its previous occurrence.";
    let times = if hops == 1 { "once".to_owned() } else { format!("{hops} times") };
    let (intro, fact, question, cue) = match style {
        Style::Table => (rule.to_owned(), letters.join(" "), format!("Start with the last symbol and jump {times}."), "Answer:"),
        Style::Sentences => (
            rule.to_owned(),
            format!("The symbols came in this order: {}.", letters.join(", ")),
            format!("Start with the last symbol and jump {times}. Which symbol do you reach?"),
            "Answer:",
        ),
        Style::Code => (
            "def jump(s, i):  # right after the previous occurrence of s[i]\n    return max(j for j in range(1, i + 1) if s[j - 1] == s[i])"
                .to_owned(),
            format!("s = {letters:?}\ni = len(s) - 1"),
            format!("for _ in range({hops}): i = jump(s, i)\nprint(s[i])"),
            "# prints:",
        ),
    };
    PromptBody { intro, facts: vec![fact], question, cue, answer_index: target as usize }
}
