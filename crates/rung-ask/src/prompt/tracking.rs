//! State tracking as text: permutations move balls between cups, and the question is what one cup holds at the end.

use rung_theory::task::word::{Group, Word as WordProblem};
use rung_theory::task::{AnyTask, Prompt, Rng, random_below};

use super::{PromptBody, Style};
use crate::AskError;

/// Number of cups: an element of the group S3 permutes 3 cups, an element of S5 or A5 permutes 5.
pub(super) fn cup_count(task: &WordProblem) -> usize {
    if task.group() == Group::S3 { 3 } else { 5 }
}

/// Draws moves and writes the parts of the prompt.
///
/// # Errors
/// The group is not a permutation group of a few cups.
pub(super) fn sample_body(
    word_problem: &WordProblem,
    task: &dyn AnyTask,
    style: Style,
    symbols: &[String],
    rng: &mut Rng,
) -> Result<PromptBody, AskError> {
    if word_problem.group() == Group::Z60 {
        return Err(AskError::Unsupported("task `word{group=z60}` has no prompt, expected s3, s5 or a5".to_owned()));
    }
    let mut prompt = Prompt::new();
    task.sample_prompt(rng, &mut prompt);
    let (elements, cups) = (word_problem.group().permutations(), cup_count(word_problem));
    let moves: Vec<&[u8]> = prompt.tokens().iter().map(|element| &elements[*element as usize][..cups]).collect();
    // Index of the ball in each cup. A move takes the ball in cup c to cup `cup_move[c]`.
    let mut balls: Vec<usize> = (0..cups).collect();
    for cup_move in &moves {
        let mut next = balls.clone();
        for (cup, ball) in balls.iter().enumerate() {
            next[usize::from(cup_move[cup])] = *ball;
        }
        balls = next;
    }
    let queried_cup = random_below(rng, cups as u32) as usize;
    let ball_symbols: Vec<&str> = symbols[..cups].iter().map(String::as_str).collect();
    let facts = moves.iter().map(|cup_move| move_text(cup_move, style)).collect();
    let (intro, question, cue) = match style {
        Style::Code => (
            format!(
                "cups = {ball_symbols:?}\ndef move(cups, to):  # what is in cup c goes to cup to[c]\n    new = [None] * {cups}\n    for c in range({cups}): new[to[c]] = cups[c]\n    return new"
            ),
            format!("print(cups[{queried_cup}])"),
            "# prints:",
        ),
        Style::Table | Style::Sentences => (
            format!(
                "Cups 1 to {cups} hold {}, in this order. Each line moves all of them at once.",
                ball_symbols.join(" ")
            ),
            format!("What is in cup {} at the end?", queried_cup + 1),
            "Answer:",
        ),
    };
    Ok(PromptBody { intro, facts, question, cue, answer_index: balls[queried_cup] })
}

/// One move of all cups as a line of text.
fn move_text(cup_move: &[u8], style: Style) -> String {
    let pairs = cup_move.iter().enumerate().map(|(from, to)| (from + 1, to + 1));
    match style {
        Style::Code => format!("cups = move(cups, {cup_move:?})"),
        Style::Table => pairs.map(|(from, to)| format!("{from}>{to}")).collect::<Vec<_>>().join(" "),
        Style::Sentences => {
            let parts: Vec<String> =
                pairs.map(|(from, to)| format!("what is in cup {from} goes to cup {to}")).collect();
            format!("Now {}.", parts.join(", "))
        }
    }
}
