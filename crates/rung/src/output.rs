//! Writing to the terminal, or to a caller: a closed pipe is not an error, and anything slow shows its progress.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
pub use rung_audit::report::{commas, counted};
use rung_audit::{Audit, AuditError, AuditOptions};
use rung_figure::figure::{self, Chart};
use rung_nn::file::write_atomically;
use serde_json::{Value, json};

use crate::{call, provenance};

/// Whether errors are written as JSON, as results are.
static JSON_ERRORS: AtomicBool = AtomicBool::new(false);

/// Chooses how errors are written.
pub fn set_json_errors(json: bool) {
    JSON_ERRORS.store(json, Ordering::Relaxed);
}

/// How errors are written.
pub fn json_errors() -> bool {
    JSON_ERRORS.load(Ordering::Relaxed)
}

/// Writes an error to standard error: one line, or with `--json` one object with the field `error`.
pub fn print_error(message: &str) {
    if call::keep_error(message) {
        return;
    }
    if json_errors() {
        eprintln!("{}", json!({"error": message}));
    } else {
        eprintln!("error: {}", without_control(message));
    }
}

/// Text for a terminal: names come from files of others, and must not move the cursor, set the title or hide what stands before them. Of
/// all control characters only line ends, tabs and colours pass; what replaces the others shows that there was something.
pub fn without_control(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|character| character.is_control() && !matches!(character, '\n' | '\t')) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let length = if character == '\u{1b}' { colour_length(rest) } else { None };
        let (taken, after) = rest.split_at(length.unwrap_or(character.len_utf8()));
        if length.is_some() || !character.is_control() || matches!(character, '\n' | '\t') {
            clean.push_str(taken);
        } else {
            clean.push('\u{fffd}');
        }
        rest = after;
    }
    Cow::Owned(clean)
}

/// Bytes of the colour at the start of some text, such as `ESC [ 3 6 m`, if there is one.
fn colour_length(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\u{1b}[")?;
    let end = numbers.find(|character: char| !(character.is_ascii_digit() || character == ';'))?;
    (numbers.as_bytes()[end] == b'm').then_some(2 + end + 1)
}

/// Writes text to standard output. A closed pipe is not an error.
///
/// # Errors
/// Standard output cannot be written for another reason.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = call::output();
    match out.write_all(without_control(text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes JSON to standard output, one object, indented.
///
/// # Errors
/// As [`print()`].
pub fn print_json(value: &Value) -> anyhow::Result<()> {
    print(&format!("{value:#}\n"))
}

/// Audits what a user names: `-` for standard input, a file, a directory that holds `config.json`, or a preset.
///
/// # Errors
/// Nothing has that name, or what it names is malformed.
pub fn audit_named(name: &str, options: &AuditOptions) -> Result<Audit, AuditError> {
    if name == "-" {
        return rung_audit::audit_reader(call::input(), &call::input_name(), options);
    }
    rung_audit::audit_named(name, options)
}

/// Refuses a file that cannot be written, or whose ending is none of `endings`, before any work is done for it.
///
/// # Errors
/// What is wrong with it.
pub fn check_destination(option: &str, path: &Path, endings: &[&str]) -> anyhow::Result<()> {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    if !endings.is_empty() && !endings.contains(&ending) {
        anyhow::bail!("{option}: found {}, expected a file ending in .{}", path.display(), endings.join(", ."));
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() || !directory.is_dir() {
        anyhow::bail!("{option}: found {}, expected a file in a directory that exists", path.display());
    }
    Ok(())
}

/// Writes a chart as its file's ending says: bitmap, numbers, or drawing.
///
/// # Errors
/// The file cannot be written.
pub fn write_chart(path: &Path, chart: &impl Chart) -> anyhow::Result<()> {
    let bytes = match path.extension().and_then(|ending| ending.to_str()) {
        Some("png") => figure::png(&chart.svg())?,
        Some("csv") => chart.csv().into_bytes(),
        _ => chart.svg().into_bytes(),
    };
    write_file(path, bytes)
}

/// Writes a file that says which command made it; what stood there before is replaced at once or not at all.
///
/// # Errors
/// The file cannot be written.
pub fn write_file(path: &Path, bytes: impl Into<Vec<u8>>) -> anyhow::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let marked = provenance::made_by().mark(&name, bytes.into());
    write_atomically(path, &marked).with_context(|| format!("writing {}", path.display()))
}

/// A spinner on standard error; silent where that is no terminal.
pub fn spinner(message: String) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(message);
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// A bar of `steps` steps on standard error; silent where that is no terminal.
pub fn steps(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {elapsed} (about {eta} left)");
    let bar = ProgressBar::new(steps);
    bar.enable_steady_tick(Duration::from_millis(200));
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// "1 hop", "2 hops".
pub fn hops(count: usize) -> String {
    counted(count, "hop")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colours_reach_the_terminal() {
        for (text, shown) in [
            ("plain\n\ttext é", "plain\n\ttext é"),
            ("\u{1b}[36mF\u{1b}[0m", "\u{1b}[36mF\u{1b}[0m"),
            ("a\u{1b}[2Jb", "a\u{fffd}[2Jb"),
            ("a\u{1b}]0;title\u{7}b", "a\u{fffd}]0;title\u{fffd}b"),
            ("a\rb\u{8}\u{9b}31m\u{7f}", "a\u{fffd}b\u{fffd}\u{fffd}31m\u{fffd}"),
            ("\u{1b}", "\u{fffd}"),
            ("\u{1b}[", "\u{fffd}["),
        ] {
            assert_eq!(without_control(text), shown);
        }
    }
}
