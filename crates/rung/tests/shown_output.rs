//! The documents show commands and what they print: here they are run.
//!
//! A block of the language `console` is a session. A line `$ ..` is a command, run by `sh` in a scratch directory that the whole
//! document shares; the lines after it are what a terminal shows of it. A line `..` stands for any lines, `..` within a line for any
//! characters. A command must exit with 0, or with the code that a comment `# exit 1` behind it says.
//!
//! The address `http://127.0.0.1:8080` is that of a stand-in for a served model, which takes two hops.
#![cfg(unix)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::documents::{blocks, documents, root};
use common::{scratch, text};
use rung_ask::ladder::Grid;
use rung_ask::prompt::{PromptWriter, Variant};
use rung_ask::symbols::{Symbols, letters};
use rung_ask::test_server::{TestProtocol, TestServer};

/// The address that documents give for a served model.
const ADDRESS: &str = "http://127.0.0.1:8080";

/// A server for the questions of `--hops 0..3 --entries 4 --count 50`.
fn served_model() -> TestServer {
    let symbols = Symbols { symbols: letters(4), checked: true };
    let writer = PromptWriter { shots: 2, ..PromptWriter::default() };
    let (hops, variants) = (vec![0, 1, 2, 3], vec![Variant::default()]);
    let grid = Grid { writer, hops, entries: vec![4], variants, count: 50, seed: 0, symbols };
    let questions: Vec<_> = grid.questions().unwrap().into_iter().map(|(_, question)| question).collect();
    TestServer::start(TestProtocol::LlamaCpp, &questions, 2, &[]).unwrap()
}

/// Whether a line is as shown, where `..` stands for any characters.
fn line_matches(shown: &str, line: &str) -> bool {
    let (shown, line) = (shown.trim_end(), line.trim_end());
    if shown == line {
        return true;
    }
    let parts: Vec<&str> = shown.split("..").collect();
    let [first, middle @ .., last] = parts.as_slice() else { return false };
    let Some(mut rest) = line.strip_prefix(first).and_then(|rest| rest.strip_suffix(last)) else { return false };
    middle.iter().all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// Whether an output is as shown, where a line `..` stands for any lines.
fn output_matches(shown: &[String], output: &[&str]) -> bool {
    match (shown.split_first(), output.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first.trim() == ".." => {
            (0..=output.len()).any(|skipped| output_matches(rest, &output[skipped..]))
        }
        (Some((first, rest)), Some((line, after))) => line_matches(first, line) && output_matches(rest, after),
        _ => false,
    }
}

/// Runs a command of a document and gives its exit code, and standard output and standard error as they come.
fn run(line: &str, directory: &Path) -> (i32, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_rung")).parent().unwrap();
    let path = format!("{}:{}", text(program), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("exec 2>&1\n{line}")])
        .current_dir(directory)
        .env("PATH", path)
        .env("COLUMNS", "110")
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stdout).unwrap())
}

/// Runs every command of a document's sessions and compares what it prints. Gives the number of commands.
fn replay(document: &Path) -> usize {
    let name = document.strip_prefix(root()).unwrap().display().to_string();
    let directory: PathBuf = scratch(&format!("shown-{}", name.replace('/', "-")));
    let page = std::fs::read_to_string(document).unwrap();
    let server = page.contains(ADDRESS).then(served_model);
    let mut count = 0;
    for block in blocks(&page).iter().filter(|block| block.language == "console") {
        let starts: Vec<usize> = (0..block.lines.len()).filter(|&at| block.lines[at].starts_with("$ ")).collect();
        assert_eq!(starts.first(), Some(&0), "{name}:{}: a session starts with a command", block.line);
        for (at, &start) in starts.iter().enumerate() {
            let end = starts.get(at + 1).copied().unwrap_or(block.lines.len());
            let (line, shown) = (&block.lines[start][2..], &block.lines[start + 1..end]);
            let expected = line.split_once("# exit ").map_or(0, |(_, code)| code.trim().parse().unwrap());
            let address = server.as_ref().map_or_else(String::new, TestServer::url);
            let (code, out) = run(&line.replace(ADDRESS, &address), &directory);
            let out = if address.is_empty() { out } else { out.replace(&address, ADDRESS) };
            let place = format!("{name}:{}: {line}", block.line + start);
            assert_eq!(code, expected, "{place}\n{out}");
            let lines: Vec<&str> = out.lines().collect();
            assert!(output_matches(shown, &lines), "{place}\nshown:\n{}\nprinted:\n{out}", shown.join("\n"));
            count += 1;
        }
    }
    count
}

#[test]
fn the_front_page_shows_what_is_printed() {
    assert!(replay(&root().join("README.md")) >= 8);
}

#[test]
fn the_tutorial_shows_what_is_printed() {
    assert!(replay(&root().join("docs/tutorial.md")) >= 10);
}

#[test]
fn all_other_documents_show_what_is_printed() {
    let others = documents().into_iter().filter(|path| !path.ends_with("README.md") && !path.ends_with("tutorial.md"));
    assert!(others.map(|document| replay(&document)).sum::<usize>() >= 10);
}

#[test]
fn other_output_is_noticed() {
    let shown = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert!(output_matches(&shown(&["a", "..", "d .. s"]), &["a", "b", "c", "d 0.1 s"]));
    assert!(output_matches(&shown(&[".."]), &[]));
    assert!(!output_matches(&shown(&["a", ".."]), &["b"]));
    assert!(!output_matches(&shown(&["a"]), &["a", "b"]));
    assert!(!output_matches(&shown(&["d .. s"]), &["d 0.1 ms and more"]));
}
