//! Associative recall as text: pairs of a number and a symbol, and one number asked for.

use rung_theory::task::{AnyTask, Prompt, Rng, below};

use super::{PromptBody, Style};

pub(super) fn body(task: &dyn AnyTask, style: Style, names: &[String], rng: &mut Rng) -> PromptBody {
    let mut prompt = Prompt::new();
    task.prompt(rng, &mut prompt);
    // Pairs come first, key and value in turn. Values are all different: the i-th pair gets the i-th symbol, which were shuffled.
    let keys: Vec<u32> = prompt.tokens().iter().copied().step_by(2).take(names.len()).collect();
    let asked = below(rng, keys.len() as u32) as usize;
    let pairs = keys.iter().zip(names);
    let facts = match style {
        Style::Table => pairs.map(|(key, value)| format!("{key}: {value}")).collect(),
        Style::Sentences => pairs.map(|(key, value)| format!("Box {key} holds {value}.")).collect(),
        Style::Code => {
            let items: Vec<String> = pairs.map(|(key, value)| format!("{key}: \"{value}\"")).collect();
            vec![format!("box = {{{}}}", items.join(", "))]
        }
    };
    let (intro, question, cue) = match style {
        Style::Code => (String::new(), format!("print(box[{}])", keys[asked]), "# prints:"),
        Style::Table => {
            ("Each number has a symbol.".to_owned(), format!("Which symbol has {}?", keys[asked]), "Answer:")
        }
        Style::Sentences => (String::new(), format!("What does box {} hold?", keys[asked]), "Answer:"),
    };
    PromptBody { intro, facts, question, cue, answer: asked }
}
