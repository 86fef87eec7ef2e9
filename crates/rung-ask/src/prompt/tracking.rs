//! State tracking as text: balls in cups, moved by permutations, and one cup asked for.

use rung_theory::task::word::{Group, Word};
use rung_theory::task::{AnyTask, Prompt, Rng, below};

use super::{PromptBody, Style};
use crate::AskError;

/// Cups that a group moves.
pub(super) fn points(task: &Word) -> usize {
    if task.group() == Group::S3 { 3 } else { 5 }
}

pub(super) fn body(
    word: &Word,
    task: &dyn AnyTask,
    style: Style,
    names: &[String],
    rng: &mut Rng,
) -> Result<PromptBody, AskError> {
    if word.group() == Group::Z60 {
        return Err(AskError::Unsupported("task `word{group=z60}` has no prompt, expected s3, s5 or a5".to_owned()));
    }
    let mut prompt = Prompt::new();
    task.prompt(rng, &mut prompt);
    let (elements, cups) = (word.group().permutations(), points(word));
    let moves: Vec<&[u8]> = prompt.tokens().iter().map(|element| &elements[*element as usize][..cups]).collect();
    // Which ball each cup holds at the end: a move takes what is in cup c to cup move[c].
    let mut balls: Vec<usize> = (0..cups).collect();
    for step in &moves {
        let mut next = balls.clone();
        for (cup, ball) in balls.iter().enumerate() {
            next[usize::from(step[cup])] = *ball;
        }
        balls = next;
    }
    let asked = below(rng, cups as u32) as usize;
    let held: Vec<&str> = names[..cups].iter().map(String::as_str).collect();
    let facts = moves.iter().map(|step| line(step, style)).collect();
    let (intro, question, cue) = match style {
        Style::Code => (
            format!(
                "cups = {held:?}\ndef move(cups, to):  # what is in cup c goes to cup to[c]\n    new = [None] * {cups}\n    for c in range({cups}): new[to[c]] = cups[c]\n    return new"
            ),
            format!("print(cups[{asked}])"),
            "# prints:",
        ),
        Style::Table | Style::Sentences => (
            format!("Cups 1 to {cups} hold {}, in this order. Each line moves all of them at once.", held.join(" ")),
            format!("What is in cup {} at the end?", asked + 1),
            "Answer:",
        ),
    };
    Ok(PromptBody { intro, facts, question, cue, answer: balls[asked] })
}

fn line(step: &[u8], style: Style) -> String {
    let pairs = step.iter().enumerate().map(|(from, to)| (from + 1, to + 1));
    match style {
        Style::Code => format!("cups = move(cups, {step:?})"),
        Style::Table => pairs.map(|(from, to)| format!("{from}>{to}")).collect::<Vec<_>>().join(" "),
        Style::Sentences => {
            let parts: Vec<String> =
                pairs.map(|(from, to)| format!("what is in cup {from} goes to cup {to}")).collect();
            format!("Now {}.", parts.join(", "))
        }
    }
}
