//! A trace in letters.

use std::fmt::Write as _;

use super::{Picture, RegisterValue, percent};

impl Picture {
    /// The trace for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_text(&mut text);
        text
    }

    fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let how = if self.constructed { "constructed" } else { "weights as given" };
        writeln!(text, "{} for {} ({how})", self.name, self.task)?;
        writeln!(text, "  {} tokens, {} layers. {}", self.tokens, self.layers.len(), self.verdict())?;
        writeln!(text, "  {}\n  {}\n", self.scope(), self.check())?;
        let width = self.shown.iter().map(|shown| shown.says.chars().count()).max().unwrap_or(0);
        let digits = self.tokens.to_string().len().max(2);
        let label = |position: usize| format!("#{position:<digits$} {:width$}", self.says(position));
        writeln!(text, "  tokens")?;
        for shown in &self.shown {
            writeln!(text, "    {}  {}", label(shown.position), listed(&shown.registers))?;
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let about = if layer.about.is_empty() { String::new() } else { format!(": {}", layer.about) };
            writeln!(text, "\n  layer {index}, {}{about}", layer.mixers)?;
            if layer.learned.is_empty() {
                writeln!(text, "    nothing that the answer came from")?;
            }
            for learned in &layer.learned {
                let mut head = label(learned.position);
                for read in layer.reads.iter().filter(|read| read.to == learned.position) {
                    let (share, from) = (percent(read.share), label(read.from));
                    let by = if read.through == "attention" {
                        String::new()
                    } else {
                        format!(" through its {}", read.through)
                    };
                    let from = if read.from == read.to { "itself".to_owned() } else { from.trim_end().to_owned() };
                    let head_number = if self.constructed { String::new() } else { format!(" (head {})", read.head) };
                    writeln!(text, "    {head}  reads {share} from {from}{by}{head_number}")?;
                    head = " ".repeat(head.chars().count());
                }
                if learned.elsewhere > self.least_share {
                    writeln!(text, "    {head}  reads up to {} from tokens not shown", percent(learned.elsewhere))?;
                    head = " ".repeat(head.chars().count());
                }
                if !learned.registers.is_empty() {
                    writeln!(text, "    {head}  holds {}", listed(&learned.registers))?;
                }
            }
        }
        writeln!(text, "\n  answer at #{}: {}", self.position, self.answer)
    }

    /// What it answers and what the oracle says, in a sentence.
    pub fn verdict(&self) -> String {
        let (position, answer) = (self.position, self.answer);
        match self.expected {
            Some(expected) if expected == answer => format!("Token {position} answers {answer}, as the oracle says."),
            Some(expected) => format!("Token {position} answers {answer}; the oracle says {expected}."),
            None => format!("Token {position} says {answer}; nothing is asked there."),
        }
    }
}

/// Registers in a row. What was merely read has a tilde.
fn listed(registers: &[RegisterValue]) -> String {
    registers.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A register in words.
pub(super) fn one(held: &RegisterValue) -> String {
    let RegisterValue { register, value, raw } = held;
    match (*raw, value.as_str()) {
        (_, "yes") => register.clone(),
        (true, value) => format!("{register} ~ {value}"),
        (false, value) => format!("{register} = {value}"),
    }
}
