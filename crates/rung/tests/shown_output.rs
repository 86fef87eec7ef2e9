//! Runs the commands that the documents show and compares their output.
//!
//! A block of the language `console` is a session. A line `$ ..` is a command, run by `sh` in a scratch directory, one for each
//! document; the lines after it are its output. A line `..` stands for any lines, `..` within a line for any characters. A command must exit with
//! 0, or with the code in a comment such as `# exit 1`.
//!
//! The address `http://127.0.0.1:8080` is replaced by that of a test server, which simulates a model that makes two hops.
#![cfg(unix)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::documents::{blocks, documents, root};
use common::{path_str, scratch_directory};
use rung_ask::grid::Grid;
use rung_ask::prompt::{PromptWriter, Variant};
use rung_ask::symbols::{Symbols, default_symbols};
use rung_ask::test_server::{TestProtocol, TestServer};

/// The address that documents give for a served model.
const ADDRESS: &str = "http://127.0.0.1:8080";

/// A server for the questions of `--hops 0..3 --entries 4 --count 50`.
fn served_model() -> TestServer {
    let symbols = Symbols { symbols: default_symbols(4), checked: true };
    let writer = PromptWriter { shots: 2, ..PromptWriter::default() };
    let (hops, variants) = (vec![0, 1, 2, 3], vec![Variant::default()]);
    let grid = Grid { writer, hops, entries_per_table: vec![4], variants, questions_per_cell: 50, seed: 0, symbols };
    let questions: Vec<_> = grid.questions().unwrap().into_iter().map(|(_, question)| question).collect();
    TestServer::start(TestProtocol::LlamaCpp, &questions, 2, &[]).unwrap()
}

/// Whether a line matches the shown line, in which `..` stands for any characters.
fn line_matches(shown: &str, line: &str) -> bool {
    let (shown, line) = (shown.trim_end(), line.trim_end());
    if shown == line {
        return true;
    }
    let parts: Vec<&str> = shown.split("..").collect();
    let [prefix, inner @ .., suffix] = parts.as_slice() else { return false };
    let Some(mut remaining) = line.strip_prefix(prefix).and_then(|line| line.strip_suffix(suffix)) else {
        return false;
    };
    inner.iter().all(|part| match remaining.split_once(part) {
        Some((_, after)) => {
            remaining = after;
            true
        }
        None => false,
    })
}

/// Whether an output matches the shown lines, in which a line `..` stands for any lines.
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

/// Runs a command of a document. Returns its exit code, and standard output and standard error interleaved.
fn run(line: &str, directory: &Path) -> (i32, String) {
    let program = Path::new(env!("CARGO_BIN_EXE_rung")).parent().unwrap();
    let path = format!("{}:{}", path_str(program), std::env::var("PATH").unwrap_or_default());
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

/// Runs every command of a document's sessions and compares its output. Returns the number of commands.
fn replay(document: &Path) -> usize {
    let name = document.strip_prefix(root()).unwrap().display().to_string();
    let directory: PathBuf = scratch_directory(&format!("shown-{}", name.replace('/', "-")));
    let page = std::fs::read_to_string(document).unwrap();
    let server = page.contains(ADDRESS).then(served_model);
    let mut count = 0;
    for block in blocks(&page).iter().filter(|block| block.language == "console") {
        let starts: Vec<usize> = (0..block.lines.len()).filter(|&index| block.lines[index].starts_with("$ ")).collect();
        assert_eq!(starts.first(), Some(&0), "{name}:{}: a session starts with a command", block.line);
        for (index, &start) in starts.iter().enumerate() {
            let end = starts.get(index + 1).copied().unwrap_or(block.lines.len());
            let (line, shown) = (&block.lines[start][2..], &block.lines[start + 1..end]);
            let expected = line.split_once("# exit ").map_or(0, |(_, code)| code.trim().parse().unwrap());
            let address = server.as_ref().map_or_else(String::new, TestServer::url);
            let (code, out) = run(&line.replace(ADDRESS, &address), &directory);
            let out = if address.is_empty() { out } else { out.replace(&address, ADDRESS) };
            let location = format!("{name}:{}: {line}", block.line + start);
            assert_eq!(code, expected, "{location}\n{out}");
            let lines: Vec<&str> = out.lines().collect();
            assert!(output_matches(shown, &lines), "{location}\nshown:\n{}\nprinted:\n{out}", shown.join("\n"));
            count += 1;
        }
    }
    count
}

#[test]
fn readme_shows_the_output_of_its_commands() {
    assert!(replay(&root().join("README.md")) >= 8);
}

#[test]
fn tutorial_shows_the_output_of_its_commands() {
    assert!(replay(&root().join("docs/tutorial.md")) >= 10);
}

#[test]
fn other_documents_show_the_output_of_their_commands() {
    let others = documents().into_iter().filter(|path| !path.ends_with("README.md") && !path.ends_with("tutorial.md"));
    assert!(others.map(|document| replay(&document)).sum::<usize>() >= 10);
}

#[test]
fn output_matches_only_with_wildcards_or_equal_text() {
    let shown = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert!(output_matches(&shown(&["a", "..", "d .. s"]), &["a", "b", "c", "d 0.1 s"]));
    assert!(output_matches(&shown(&[".."]), &[]));
    assert!(!output_matches(&shown(&["a", ".."]), &["b"]));
    assert!(!output_matches(&shown(&["a"]), &["a", "b"]));
    assert!(!output_matches(&shown(&["d .. s"]), &["d 0.1 ms and more"]));
}
