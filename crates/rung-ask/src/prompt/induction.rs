//! k-hop induction as text: jump from a letter to what followed its previous occurrence, k times.
//!
//! In a random string frequent letters are more often the answer, and an even number of jumps often leads back to the last letter.
//! Strings are drawn until the answer has a rank of frequency that was drawn first, uniformly, and is the last letter as often as
//! chance says (after one jump it never is), so that naming the most frequent or the last letter is worth no more than chance.

use rung_theory::task::{AnyTask, NO_TARGET, Prompt, Rng, below};

use super::{PromptBody, Style};
use crate::AskError;

/// Draws until the answer has the wanted rank.
const MOST_DRAWS: usize = 100_000;

pub(super) fn body(task: &dyn AnyTask, style: Style, names: &[String], rng: &mut Rng) -> Result<PromptBody, AskError> {
    let letters = names.len() as u32;
    let (rank, is_last) = (below(rng, letters), below(rng, letters) == 0);
    let mut prompt = Prompt::new();
    for _ in 0..MOST_DRAWS {
        task.prompt(rng, &mut prompt);
        let Some((position, target, _)) = prompt.questions().last() else { continue };
        if position + 1 != prompt.len() || target == NO_TARGET || target >= letters {
            continue;
        }
        let hops = prompt.tokens()[0] - letters + 1;
        let fits = hops == 1 || (target == prompt.tokens()[position]) == is_last;
        if fits && frequency_rank(&prompt.tokens()[1..], target, letters) == rank {
            return Ok(write(&prompt.tokens()[1..], hops, target, style, names));
        }
    }
    Err(AskError::Unsupported(format!(
        "task `{}`: no string whose answer has every rank of frequency, expected a longer string or fewer hops",
        task.spec()
    )))
}

/// How many letters occur more often; among equals, the smaller comes first.
fn frequency_rank(string: &[u32], letter: u32, letters: u32) -> u32 {
    let count = |wanted: u32| string.iter().filter(|found| **found == wanted).count();
    let own = count(letter);
    (0..letters).filter(|other| count(*other) > own || (count(*other) == own && *other < letter)).count() as u32
}

fn write(string: &[u32], hops: u32, target: u32, style: Style, names: &[String]) -> PromptBody {
    let letters: Vec<&str> = string.iter().map(|letter| names[*letter as usize].as_str()).collect();
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
    PromptBody { intro, facts: vec![fact], question, cue, answer: target as usize }
}
