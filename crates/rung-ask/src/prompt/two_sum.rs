//! 2-Sum as text: does some earlier number add up with the last one to a multiple of the modulus?

use rung_theory::task::{AnyTask, Prompt, Rng};

use super::{PromptBody, Style};

/// The answer words: class 0 is no, class 1 is yes.
pub(super) const SYMBOLS: [&str; 2] = ["no", "yes"];

/// Draws numbers and writes the parts of the prompt.
pub(super) fn sample_body(task: &dyn AnyTask, style: Style, rng: &mut Rng) -> PromptBody {
    let mut prompt = Prompt::new();
    task.sample_prompt(rng, &mut prompt);
    let modulus = task.fields()[0].vocabulary;
    let numbers: Vec<String> = prompt.tokens().iter().map(u32::to_string).collect();
    let answer = prompt.questions().last().map_or(0, |(_, target, _)| target as usize);
    let (fact, question, cue) = match style {
        Style::Code => (
            format!("x = [{}]", numbers.join(", ")),
            format!("print(\"yes\" if any((y + x[-1]) % {modulus} == 0 for y in x[:-1]) else \"no\")"),
            "# prints:",
        ),
        Style::Table => (
            numbers.join(" "),
            format!(
                "Is there an earlier number that adds up with the last number to a multiple of {modulus}? Say yes or no."
            ),
            "Answer:",
        ),
        Style::Sentences => (
            format!("The numbers are {}.", numbers.join(", ")),
            format!(
                "Is there an earlier number that adds up with the last number to a multiple of {modulus}? Say yes or no."
            ),
            "Answer:",
        ),
    };
    PromptBody { intro: String::new(), facts: vec![fact], question, cue, answer_index: answer }
}
