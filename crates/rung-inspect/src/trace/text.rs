//! A trace as text for a terminal.

use std::fmt::Write as _;

use super::{AnswerTrace, RegisterValue, percent};

impl AnswerTrace {
    /// The trace for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_text(&mut text);
        text
    }

    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let origin = if self.constructed { "constructed" } else { "not constructed" };
        writeln!(text, "{} for {} ({origin})", self.name, self.task)?;
        writeln!(text, "  {} tokens, {} layers. {}", self.token_count, self.layers.len(), self.verdict())?;
        writeln!(text, "  {}\n  {}\n", self.scope_sentence(), self.accuracy_sentence())?;
        let width = self.shown_tokens.iter().map(|token| token.text.chars().count()).max().unwrap_or(0);
        let digits = self.token_count.to_string().len().max(2);
        let label = |position: usize| format!("#{position:<digits$} {:width$}", self.token_text(position));
        writeln!(text, "  tokens")?;
        for token in &self.shown_tokens {
            writeln!(text, "    {}  {}", label(token.position), join_registers(&token.registers))?;
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let description =
                if layer.description.is_empty() { String::new() } else { format!(": {}", layer.description) };
            writeln!(text, "\n  layer {index}, {}{description}", layer.mixers)?;
            if layer.register_changes.is_empty() {
                writeln!(text, "    no token that the answer came from")?;
            }
            for change in &layer.register_changes {
                // Only the first line of a token has the label.
                let mut indent = label(change.position);
                for edge in layer.edges.iter().filter(|edge| edge.to == change.position) {
                    let (share, from) = (percent(edge.share), label(edge.from));
                    let mechanism = if edge.mechanism == "attention" {
                        String::new()
                    } else {
                        format!(" through its {}", edge.mechanism)
                    };
                    let from = if edge.from == edge.to { "itself".to_owned() } else { from.trim_end().to_owned() };
                    let head_number = if self.constructed { String::new() } else { format!(" (head {})", edge.head) };
                    writeln!(text, "    {indent}  reads {share} from {from}{mechanism}{head_number}")?;
                    indent = " ".repeat(indent.chars().count());
                }
                if change.omitted_share > self.min_share {
                    writeln!(
                        text,
                        "    {indent}  reads up to {} from tokens not shown",
                        percent(change.omitted_share)
                    )?;
                    indent = " ".repeat(indent.chars().count());
                }
                if !change.registers.is_empty() {
                    writeln!(text, "    {indent}  holds {}", join_registers(&change.registers))?;
                }
            }
        }
        writeln!(text, "\n  answer at #{}: {}", self.position, self.answer)
    }

    /// The network's answer and the right answer, in a sentence.
    pub fn verdict(&self) -> String {
        let (position, answer) = (self.position, self.answer);
        match self.expected {
            Some(expected) if expected == answer => format!("Token {position} answers {answer}, as the oracle says."),
            Some(expected) => format!("Token {position} answers {answer}; the oracle says {expected}."),
            None => format!("Token {position} says {answer}; nothing is asked there."),
        }
    }
}

/// The texts of several registers, separated by commas.
pub(super) fn join_registers(registers: &[RegisterValue]) -> String {
    registers.iter().map(register_text).collect::<Vec<_>>().join(", ")
}

/// A register and its value; `~` instead of `=` before a value that is not yet rounded to bits.
pub(super) fn register_text(register: &RegisterValue) -> String {
    let RegisterValue { register, value, unrounded } = register;
    match (*unrounded, value.as_str()) {
        (_, "yes") => register.clone(),
        (true, value) => format!("{register} ~ {value}"),
        (false, value) => format!("{register} = {value}"),
    }
}
