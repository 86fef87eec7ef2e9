//! Associative recall as text: pairs of a number and a symbol, and a question for the symbol of one number.

use rung_theory::task::{AnyTask, Prompt, Rng, random_below};

use super::{PromptBody, Style};

/// Draws pairs and writes the parts of the prompt.
pub(super) fn sample_body(task: &dyn AnyTask, style: Style, symbols: &[String], rng: &mut Rng) -> PromptBody {
    let mut prompt = Prompt::new();
    task.sample_prompt(rng, &mut prompt);
    // The task's prompt starts with alternating keys and values. Only its keys are used: the value of the i-th pair is the i-th symbol, and
    // the symbols were shuffled, so values are random and all different.
    let keys: Vec<u32> = prompt.tokens().iter().copied().step_by(2).take(symbols.len()).collect();
    let queried_pair = random_below(rng, keys.len() as u32) as usize;
    let pairs = keys.iter().zip(symbols);
    let facts = match style {
        Style::Table => pairs.map(|(key, value)| format!("{key}: {value}")).collect(),
        Style::Sentences => pairs.map(|(key, value)| format!("Box {key} holds {value}.")).collect(),
        Style::Code => {
            let items: Vec<String> = pairs.map(|(key, value)| format!("{key}: \"{value}\"")).collect();
            vec![format!("box = {{{}}}", items.join(", "))]
        }
    };
    let (intro, question, cue) = match style {
        Style::Code => (String::new(), format!("print(box[{}])", keys[queried_pair]), "# prints:"),
        Style::Table => (
            "Each number has a symbol.".to_owned(),
            format!("Which symbol does {} have?", keys[queried_pair]),
            "Answer:",
        ),
        Style::Sentences => (String::new(), format!("What does box {} hold?", keys[queried_pair]), "Answer:"),
    };
    PromptBody { intro, facts, question, cue, answer_index: queried_pair }
}
