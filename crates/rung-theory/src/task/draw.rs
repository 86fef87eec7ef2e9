//! Helpers for drawing a prompt in ASCII.

use std::fmt::Write as _;

use super::{NO_TARGET, Prompt};

/// Positions shown at the front and at the back of a long prompt.
const FRONT: usize = 48;
const BACK: usize = 16;

/// The widest line.
const WIDTH: usize = 100;

/// Two aligned rows, what stands at each position and what is asked there, wrapped and shortened.
pub(super) fn rows(prompt: &Prompt, symbol: impl Fn(u32) -> String, class: impl Fn(u32) -> String) -> String {
    let length = prompt.len();
    let skipped = if length > FRONT + BACK { FRONT..length - BACK } else { 0..0 };
    let mut text = String::new();
    let (mut input, mut target) = (String::new(), String::new());
    let mut flush = |input: &mut String, target: &mut String| {
        if !input.is_empty() {
            let _ = writeln!(text, "input {}\nasked {}", input.trim_end(), target.trim_end());
        }
        input.clear();
        target.clear();
    };
    for (position, (token, asked)) in
        prompt.tokens().chunks_exact(prompt.fields().max(1)).zip(prompt.targets()).enumerate()
    {
        let (above, below) = if position == skipped.start && !skipped.is_empty() {
            let note = format!("({} more)", skipped.len());
            (note, "..".to_owned())
        } else if skipped.contains(&position) {
            continue;
        } else {
            (symbol(token[0]), if *asked == NO_TARGET { ".".to_owned() } else { class(*asked) })
        };
        let width = above.len().max(below.len());
        if input.len() + width + 1 > WIDTH {
            flush(&mut input, &mut target);
        }
        let _ = write!(input, " {above:width$}");
        let _ = write!(target, " {below:width$}");
    }
    flush(&mut input, &mut target);
    text
}

/// A label and a list of items on one or more lines, shortened in the middle.
pub(super) fn list(text: &mut String, label: &str, count: usize, item: impl Fn(usize) -> String) {
    let skipped = if count > FRONT + BACK { FRONT..count - BACK } else { 0..0 };
    let note = (!skipped.is_empty()).then(|| format!("({} more)", skipped.len()));
    let (front, back) = if note.is_some() { (0..skipped.start, skipped.end..count) } else { (0..count, 0..0) };
    let mut line = format!("{label:<6}");
    for item in front.map(&item).chain(note).chain(back.map(&item)) {
        if line.len() + item.len() + 1 > WIDTH {
            let _ = writeln!(text, "{}", line.trim_end());
            line = " ".repeat(6);
        }
        let _ = write!(line, " {item}");
    }
    let _ = writeln!(text, "{}", line.trim_end());
}
