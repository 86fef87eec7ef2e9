//! Output to the terminal or to a calling program, progress bars, and files that commands write.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
pub use rung_audit::report::{count_noun, with_commas};
use rung_audit::{Audit, AuditError, AuditOptions};
use rung_figure::figure::{self, Chart};
use rung_nn::file::write_atomically;
use serde_json::{Value, json};

use crate::{call, provenance};

/// Whether errors are written as JSON, as results are.
static JSON_ERRORS: AtomicBool = AtomicBool::new(false);

/// Sets whether errors are written as JSON.
pub fn set_json_errors(json: bool) {
    JSON_ERRORS.store(json, Ordering::Relaxed);
}

/// Whether errors are written as JSON.
pub fn json_errors() -> bool {
    JSON_ERRORS.load(Ordering::Relaxed)
}

/// Writes an error to standard error: one line, or with `--json` one object with the field `error`.
pub fn print_error(message: &str) {
    if call::add_error(message) {
        return;
    }
    if json_errors() {
        eprintln!("{}", json!({"error": message}));
    } else {
        eprintln!("error: {}", without_control(message));
    }
}

/// Writes a line of progress or a warning to standard error, without control characters.
pub fn print_note(text: &str) {
    eprintln!("{}", without_control(text));
}

/// Replaces control characters except newlines and tabs by U+FFFD. Names from untrusted files could otherwise move the cursor, set the
/// terminal's title or hide text.
pub fn without_control(text: &str) -> Cow<'_, str> {
    let is_allowed = |character: char| !character.is_control() || matches!(character, '\n' | '\t');
    if text.chars().all(is_allowed) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|character| if is_allowed(character) { character } else { '\u{fffd}' }).collect())
}

/// The text of [`without_control`], without a copy if it is the same.
pub fn remove_control(text: String) -> String {
    if let Cow::Owned(clean) = without_control(&text) {
        return clean;
    }
    text
}

/// As [`without_control`], but colours stay.
fn without_control_except_colours(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut remaining = text;
    while let Some(start) = remaining.find('\u{1b}') {
        let (before, escape) = remaining.split_at(start);
        let (colour, rest) = escape.split_at(colour_length(escape).unwrap_or(0));
        clean.push_str(&without_control(before));
        clean.push_str(colour);
        remaining = rest;
        if colour.is_empty() {
            clean.push('\u{fffd}');
            remaining = &rest[1..];
        }
    }
    clean.push_str(&without_control(remaining));
    clean
}

/// Length of the colour sequence at the start of a text, such as `ESC [ 3 6 m`, if there is one.
fn colour_length(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.find(|character: char| !(character.is_ascii_digit() || character == ';'))?;
    (parameters.as_bytes()[end] == b'm').then_some(2 + end + 1)
}

/// Writes text to standard output. A closed pipe is not an error.
///
/// # Errors
/// Standard output cannot be written for another reason.
pub fn print(text: &str) -> anyhow::Result<()> {
    write_output(&without_control(text))
}

/// As [`print()`], for reports in colour. What they contain from a file has no control characters: `rung-audit` replaces those when it reads
/// the file.
///
/// # Errors
/// As [`print()`].
pub fn print_coloured(text: &str) -> anyhow::Result<()> {
    write_output(&without_control_except_colours(text))
}

fn write_output(text: &str) -> anyhow::Result<()> {
    let mut out = call::output();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
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

/// Audits a model: `-` for standard input, a file, a directory that holds `config.json`, or a preset.
///
/// # Errors
/// There is no such model, or its config is malformed.
pub fn audit_named(name: &str, options: &AuditOptions) -> Result<Audit, AuditError> {
    if name == "-" {
        return rung_audit::audit_reader(call::input(), &call::input_name(), options);
    }
    rung_audit::audit_named(name, options)
}

/// Checks before a computation that its output file can be written and has one of the `extensions`; an empty list allows any.
///
/// # Errors
/// The directory does not exist, or the extension is another one.
pub fn check_destination(option: &str, path: &Path, extensions: &[&str]) -> anyhow::Result<()> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    if !extensions.is_empty() && !extensions.contains(&extension) {
        anyhow::bail!("{option}: found {}, expected a file ending in .{}", path.display(), extensions.join(", ."));
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if path.is_dir() || !directory.is_dir() {
        anyhow::bail!("{option}: found {}, expected a file in a directory that exists", path.display());
    }
    Ok(())
}

/// Writes a chart in the format of the file's extension: PNG, CSV or SVG.
///
/// # Errors
/// The file cannot be written.
pub fn write_chart(path: &Path, chart: &impl Chart) -> anyhow::Result<()> {
    let bytes = match path.extension().and_then(|extension| extension.to_str()) {
        Some("png") => figure::render_png(&chart.svg())?,
        Some("csv") => chart.csv().into_bytes(),
        _ => chart.svg().into_bytes(),
    };
    write_file(path, bytes)
}

/// Writes a file atomically, marked with the command that made it.
///
/// # Errors
/// The file cannot be written.
pub fn write_file(path: &Path, bytes: impl Into<Vec<u8>>) -> anyhow::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let marked = provenance::current_provenance().mark(&name, bytes.into());
    write_atomically(path, &marked).with_context(|| format!("writing {}", path.display()))
}

/// A spinner on standard error; hidden if that is not a terminal.
pub fn spinner(message: String) -> ProgressBar {
    let bar = ProgressBar::new_spinner().with_message(remove_control(message));
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

/// Works while a spinner turns on standard error; it is hidden if that is not a terminal.
pub fn with_spinner<T>(message: impl Into<String>, work: impl FnOnce() -> T) -> T {
    let bar = spinner(message.into());
    let result = work();
    bar.finish_and_clear();
    result
}

/// A progress bar of `steps` steps on standard error; hidden if that is not a terminal.
pub fn progress_bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {elapsed} (about {eta} left)");
    let bar = ProgressBar::new(steps);
    bar.enable_steady_tick(Duration::from_millis(200));
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// A number of hops in words: "1 hop", "2 hops".
pub fn hops_text(count: usize) -> String {
    count_noun(count, "hop")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        for (text, expected, with_colours) in [
            ("plain\n\ttext é", "plain\n\ttext é", "plain\n\ttext é"),
            ("\u{1b}[36mF\u{1b}[0m", "\u{fffd}[36mF\u{fffd}[0m", "\u{1b}[36mF\u{1b}[0m"),
            ("a\u{1b}[2Jb", "a\u{fffd}[2Jb", "a\u{fffd}[2Jb"),
            ("a\u{1b}]0;title\u{7}b", "a\u{fffd}]0;title\u{fffd}b", "a\u{fffd}]0;title\u{fffd}b"),
            (
                "a\rb\u{8}\u{9b}31m\u{7f}",
                "a\u{fffd}b\u{fffd}\u{fffd}31m\u{fffd}",
                "a\u{fffd}b\u{fffd}\u{fffd}31m\u{fffd}",
            ),
            ("\u{1b}", "\u{fffd}", "\u{fffd}"),
            ("\u{1b}[", "\u{fffd}[", "\u{fffd}["),
        ] {
            assert_eq!(without_control(text), expected);
            assert_eq!(without_control_except_colours(text), with_colours);
        }
    }
}
