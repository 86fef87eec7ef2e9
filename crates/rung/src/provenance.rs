//! The command line of the running command, for the files that it writes; without options that do not change results.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::Path;

use clap::ArgMatches;
use rung_figure::FileProvenance;

thread_local! {
    static PROVENANCE: RefCell<FileProvenance> = RefCell::default();
}

/// Options with a value that do not change results.
const OMITTED_OPTIONS: [&str; 5] = ["--out", "--svg", "--html", "--plot", "--threads"];

/// Stores the command line for the files that the command writes; the first argument is the program's name.
pub(crate) fn store_command_line(arguments: &[OsString], matches: &ArgMatches) {
    let mut innermost = matches;
    while let Some((_, subcommand)) = innermost.subcommand() {
        innermost = subcommand;
    }
    let seed = innermost.try_get_one::<u64>("seed").ok().flatten().copied();
    PROVENANCE.set(FileProvenance::new(command_line(arguments), seed));
}

/// The command line and seed of the command that this thread runs.
pub(crate) fn current_provenance() -> FileProvenance {
    PROVENANCE.with_borrow(Clone::clone)
}

fn command_line(arguments: &[OsString]) -> String {
    let mut words = vec!["rung".to_owned()];
    let mut remaining = arguments.iter().skip(1).map(|argument| argument.to_string_lossy());
    while let Some(word) = remaining.next() {
        if OMITTED_OPTIONS.contains(&&*word) {
            remaining.next();
        } else if word != "--json" && !OMITTED_OPTIONS.iter().any(|option| word.starts_with(&format!("{option}="))) {
            words.push(quote(without_directory(&word)));
        }
    }
    words.join(" ")
}

/// The file name of an absolute path; other words unchanged.
fn without_directory(word: &str) -> &str {
    let path = Path::new(word);
    let name = path.file_name().and_then(|name| name.to_str());
    name.filter(|_| path.is_absolute()).unwrap_or(word)
}

/// Quotes a word for a shell if it needs quotes.
fn quote(word: &str) -> String {
    let needs_no_quotes = |character: char| character.is_ascii_alphanumeric() || "-._/=:,+".contains(character);
    match word {
        _ if !word.is_empty() && word.chars().all(needs_no_quotes) => word.to_owned(),
        _ if word.contains('\'') => format!("\"{word}\""),
        _ => format!("'{word}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_omits_output_options_and_directories() {
        let words = [
            "/usr/bin/rung",
            "map",
            "gdn full",
            "--out",
            "figures/a.svg",
            "--hops=2",
            "--json",
            "--svg=b",
            "/etc/config.json",
            "U2'",
        ];
        let line = command_line(&words.map(OsString::from));
        assert_eq!(line, "rung map 'gdn full' --hops=2 config.json \"U2'\"");
    }
}
