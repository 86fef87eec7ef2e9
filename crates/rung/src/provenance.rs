//! The command that is running, as files say it: without options that only choose where results go or how they are shown.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::Path;

use clap::ArgMatches;
use rung_figure::MadeBy;

thread_local! {
    static MADE_BY: RefCell<MadeBy> = RefCell::default();
}

/// Options with a value that change no result.
const PLACES: [&str; 5] = ["--out", "--svg", "--html", "--plot", "--threads"];

/// Keeps a command for the files that it writes; the first argument is the program's own name.
pub(crate) fn remember(arguments: &[OsString], found: &ArgMatches) {
    let mut inner = found;
    while let Some((_, deeper)) = inner.subcommand() {
        inner = deeper;
    }
    let seed = inner.try_get_one::<u64>("seed").ok().flatten().copied();
    MADE_BY.set(MadeBy::new(typed(arguments), seed));
}

/// What made the files of the command that this thread runs.
pub(crate) fn made_by() -> MadeBy {
    MADE_BY.with_borrow(Clone::clone)
}

fn typed(arguments: &[OsString]) -> String {
    let mut words = vec!["rung".to_owned()];
    let mut rest = arguments.iter().skip(1).map(|argument| argument.to_string_lossy());
    while let Some(word) = rest.next() {
        if PLACES.contains(&&*word) {
            rest.next();
        } else if word != "--json" && !PLACES.iter().any(|place| word.starts_with(&format!("{place}="))) {
            words.push(quote(without_directory(&word)));
        }
    }
    words.join(" ")
}

/// A path of this machine is its last part.
fn without_directory(word: &str) -> &str {
    let path = Path::new(word);
    let name = path.file_name().and_then(|name| name.to_str());
    name.filter(|_| path.is_absolute()).unwrap_or(word)
}

fn quote(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._/=:,+".contains(letter);
    match word {
        _ if !word.is_empty() && word.chars().all(plain) => word.to_owned(),
        _ if word.contains('\'') => format!("\"{word}\""),
        _ => format!("'{word}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_machine_paths_are_left_out() {
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
        let line = typed(&words.map(OsString::from));
        assert_eq!(line, "rung map 'gdn full' --hops=2 config.json \"U2'\"");
    }
}
