//! Every command: its help as stored, its summary, and `--json` with every switch.
//!
//! `tests/help/` has one file per command. After a change of the help, `RUNG_UPDATE=1 cargo test -p rung --test help` writes them
//! again.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::{command, rung, scratch, text};
use serde_json::Value;

fn help(words: &[&str]) -> String {
    let output = command(&[words, &["--help"]].concat()).env("COLUMNS", "110").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{words:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The names and summaries that a help text lists under its titles of commands.
fn subcommands(help: &str, is_title: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in help.lines() {
        if !line.starts_with(' ') {
            inside = is_title(line);
        } else if let (true, Some((name, summary))) = (inside, line.trim().split_once(' ')) {
            found.push((name.to_owned(), summary.trim().to_owned()));
        }
    }
    found.retain(|(name, _)| name != "help" && !name.starts_with('-'));
    found
}

fn top_level() -> Vec<(String, String)> {
    let titles = ["Read a model:", "Prove:", "Build:", "Train:", "Inspect:", "Report:"];
    subcommands(&help(&[]), |line| titles.contains(&line))
}

/// Every command that does something, as the words that call it.
fn commands() -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for (name, _) in top_level() {
        let inner = subcommands(&help(&[&name]), |line| line == "Commands:");
        if inner.is_empty() {
            all.push(vec![name]);
        } else {
            all.extend(inner.into_iter().map(|(action, _)| vec![name.clone(), action]));
        }
    }
    all
}

#[test]
fn help_is_as_stored() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/help");
    let mut pages = vec![("rung".to_owned(), help(&[]))];
    for words in commands() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        pages.push((words.join("-"), help(&words)));
    }
    for (name, page) in pages {
        let path = directory.join(format!("{name}.txt"));
        if std::env::var_os("RUNG_UPDATE").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(stored, page, "{} differs: RUNG_UPDATE=1 writes it again", path.display());
    }
}

#[test]
fn summaries_are_short_commands() {
    let all = top_level();
    assert!(all.len() > 25, "{all:?}");
    for (name, summary) in all {
        let first = summary.split(' ').next().unwrap_or_default();
        assert!((10..=70).contains(&summary.len()) && !summary.ends_with('.'), "{name}: {summary}");
        assert!(!first.ends_with('s') || matches!(first, "Compress" | "Process"), "{name}: {summary}");
    }
}

#[test]
fn the_program_alone_prints_its_help() {
    let output = rung(&[]);
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    let alone = String::from_utf8(output.stdout).unwrap();
    assert_eq!(alone, help(&[]));
    assert!(alone.contains("Examples:") && alone.contains("Layers are numbered from 0"));
}

#[test]
fn every_command_takes_json() {
    for words in commands() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert!(help(&words).contains("--json"), "{words:?}");
    }
}

/// Quick calls of commands, with all their words but `--json`. `DIR` is a scratch directory with a construction `u2`, a sweep
/// `sweep.toml` and a certificate.
const CALLS: &[&[&str]] = &[
    &["audit", "lfm2-1.2b"],
    &["audit", "lfm2-1.2b", "--what-if", "every=4"],
    &["audit", "lfm2-1.2b", "qwen3-8b", "--compare"],
    &["audit", "--all"],
    &["audit", "--list"],
    &["lint", "lfm2-1.2b"],
    &["place", "lfm2-1.2b", "--budget", "512MB"],
    &["place", "lfm2-1.2b", "--engine", "vllm"],
    &["plan", "lfm2-1.2b", "--engine", "vllm", "--memory", "24GiB"],
    &["model", "show", "--stack", "gdn full"],
    &["capacity", "gdn full"],
    &["bound", "linear full", "--hops", "2"],
    &["decide", "linear full", "--hops", "1", "--m", "8"],
    &["check", "DIR/certificate.json"],
    &["map", "full", "--hops", "1"],
    &["sparse", "--block", "64", "--select", "4", "--bits", "256", "--values", "65536", "--blocks", "128"],
    &["construct", "list"],
    &["construct", "U2"],
    &["verify", "DIR/u2", "--samples", "10"],
    &["export", "DIR/u1", "--to", "hf", "--out", "DIR/u1-hf"],
    &["task", "list"],
    &["task", "show", "parity"],
    &["task", "sample", "parity"],
    &["task", "prompt", "chain"],
    &["task", "export", "jsonl", "DIR/export", "--count", "1"],
    &["train", "--stack", "gdn full", "--task", "parity", "--dry-run"],
    &["sweep", "DIR/sweep.toml", "--dry-run"],
    &["runs", "DIR"],
    &["trace", "DIR/u2"],
    &["protocol", "DIR/u2"],
    &["analyze", "probe", "DIR/u2", "--prompts", "8"],
    &["falsify", "DIR/u2", "--budget", "0.1", "--memory", "512K"],
    &["explain"],
    &["explain", "gdn"],
];

#[test]
fn json_is_json_with_every_switch() {
    let directory = scratch("help");
    let folder = text(&directory).to_owned();
    let at = |name: &str| format!("{folder}/{name}");
    assert!(rung(&["construct", "U2", "--m", "2", "--out", &at("u2")]).status.success());
    assert!(rung(&["construct", "U1", "--m", "2", "--out", &at("u1")]).status.success());
    assert!(rung(&["bound", "linear full", "--hops", "2", "--out", &at("certificate.json")]).status.success());
    let sweep = "seeds = [0, 1]\n[base]\ntask = \"parity\"\n[grid]\nstack = [\"gdn\", \"full\"]\n";
    std::fs::write(at("sweep.toml"), sweep).unwrap();
    for words in CALLS {
        let words: Vec<String> = words.iter().map(|word| word.replace("DIR", &folder)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = rung(&[&words, &["--json"][..]].concat());
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(matches!(output.status.code(), Some(0 | 1)), "{words:?}: {error}");
        assert!(serde_json::from_str::<Value>(&out).is_ok(), "{words:?}: {out}");
    }
    // These take a server, a checkpoint, a network in training, or minutes.
    let elsewhere = [
        "ask",
        "eval",
        "convert",
        "witness check",
        "witness show",
        "reproduce",
        "bench",
        "zoo",
        "serve",
        "logits",
        "generate",
    ];
    let called: BTreeSet<String> = CALLS.iter().map(|words| words.join(" ")).collect();
    for words in commands() {
        let name = words.join(" ");
        assert!(elsewhere.contains(&name.as_str()) || called.iter().any(|call| call.starts_with(&name)), "{name}");
    }
}

#[test]
fn sizes_have_one_syntax() {
    for size in ["512M", "512MB", "2GiB", "1.5g", "500_000"] {
        // The weights do not fit: exit code 3, not that of an argument that cannot be read.
        let plan = rung(&["plan", "lfm2-1.2b", "--engine", "vllm", "--memory", size]);
        let place = rung(&["place", "lfm2-1.2b", "--budget", size]);
        let falsify = rung(&["falsify", "nowhere.toml", "--memory", size]);
        let message = String::from_utf8_lossy(&falsify.stderr).into_owned();
        assert!(
            plan.status.code() != Some(2) && place.status.success() && message.contains("nowhere.toml"),
            "{size}: {message}"
        );
    }
    let bytes = |size: &str| -> Value {
        let output = rung(&["place", "lfm2-1.2b", "--budget", size, "--json"]);
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["budget"].clone()
    };
    assert_eq!((bytes("512KB"), bytes("512KiB"), bytes("512K")), (512_000.into(), 524_288.into(), 524_288.into()));
    let layers = rung(&["audit", "lfm2-1.2b", "--context", "128k", "--json"]);
    assert_eq!(serde_json::from_slice::<Value>(&layers.stdout).unwrap()["context"], 131_072);
}

#[test]
fn layers_are_numbered_from_zero() {
    let directory = scratch("numbered");
    let folder = text(&directory.join("u2")).to_owned();
    let stdout = |words: &[&str]| String::from_utf8(rung(words).stdout).unwrap();
    let construct = stdout(&["construct", "U2", "--m", "2", "--out", &folder]);
    assert!(construct.contains("layer  0 ") && !construct.contains("layer  3 "), "{construct}");
    let trace = stdout(&["trace", &folder]);
    assert!(trace.contains("layer 0, ") && !trace.contains("layer 3, "), "{trace}");
    let model = stdout(&["model", "show", &folder]);
    assert!(model.contains("layer 0 ") && !model.contains("layer 3 "), "{model}");
    let capacity = stdout(&["capacity", "gdn full"]);
    assert!(capacity.contains("block 0    layer 0 "), "{capacity}");
    let parsed = |words: &[&str]| -> Value { serde_json::from_str(&stdout(words)).unwrap() };
    assert_eq!(parsed(&["capacity", "gdn full", "--json"])["blocks"][0]["layers"][0], 0);
    assert_eq!(parsed(&["protocol", &folder, "--json"])["epochs"][0]["layers"][0], 0);
}
