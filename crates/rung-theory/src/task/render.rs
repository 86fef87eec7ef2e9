//! Helpers that render a prompt in ASCII.

use std::fmt::Write as _;

use super::{NO_TARGET, Prompt};

/// Positions shown at the start and at the end of a long prompt.
const SHOWN_AT_START: usize = 48;
const SHOWN_AT_END: usize = 16;

/// The largest width of a line, in characters.
const MAX_WIDTH: usize = 100;

/// Two aligned rows, the token and the target of each position, wrapped and shortened.
pub(super) fn rows(prompt: &Prompt, symbol: impl Fn(u32) -> String, class: impl Fn(u32) -> String) -> String {
    let length = prompt.len();
    let skipped = if length > SHOWN_AT_START + SHOWN_AT_END { SHOWN_AT_START..length - SHOWN_AT_END } else { 0..0 };
    let mut text = String::new();
    let (mut input, mut target) = (String::new(), String::new());
    let mut flush = |input: &mut String, target: &mut String| {
        if !input.is_empty() {
            let _ = writeln!(text, "input  {}\ntarget {}", input.trim_end(), target.trim_end());
        }
        input.clear();
        target.clear();
    };
    for (position, (token, class_id)) in
        prompt.tokens().chunks_exact(prompt.ids_per_token().max(1)).zip(prompt.targets()).enumerate()
    {
        let (input_text, target_text) = if position == skipped.start && !skipped.is_empty() {
            let note = format!("({} more)", skipped.len());
            (note, "..".to_owned())
        } else if skipped.contains(&position) {
            continue;
        } else {
            (symbol(token[0]), if *class_id == NO_TARGET { ".".to_owned() } else { class(*class_id) })
        };
        let width = input_text.len().max(target_text.len());
        if input.len() + width + 1 > MAX_WIDTH {
            flush(&mut input, &mut target);
        }
        let _ = write!(input, " {input_text:width$}");
        let _ = write!(target, " {target_text:width$}");
    }
    flush(&mut input, &mut target);
    text
}

/// A label and a list of items on one or more lines, shortened in the middle.
pub(super) fn list(text: &mut String, label: &str, count: usize, item: impl Fn(usize) -> String) {
    let skipped = if count > SHOWN_AT_START + SHOWN_AT_END { SHOWN_AT_START..count - SHOWN_AT_END } else { 0..0 };
    let note = (!skipped.is_empty()).then(|| format!("({} more)", skipped.len()));
    let (first, last) = if note.is_some() { (0..skipped.start, skipped.end..count) } else { (0..count, 0..0) };
    let mut line = format!("{label:<6}");
    for item in first.map(&item).chain(note).chain(last.map(&item)) {
        if line.len() + item.len() + 1 > MAX_WIDTH {
            let _ = writeln!(text, "{}", line.trim_end());
            line = " ".repeat(6);
        }
        let _ = write!(line, " {item}");
    }
    let _ = writeln!(text, "{}", line.trim_end());
}
