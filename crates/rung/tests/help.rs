//! Compares the help of every command with the stored text, and checks summaries and `--json`.
//!
//! `tests/help/` has one file per command. `RUNG_UPDATE=1 cargo test -p rung --test help` updates them after a change of the help.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::{command, path_str, rung, scratch_directory};
use serde_json::Value;

fn help(words: &[&str]) -> String {
    let output = command(&[words, &["--help"]].concat()).env("COLUMNS", "110").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{words:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Names and summaries of the commands that a help text lists under the titles selected by `is_title`.
fn subcommands(help: &str, is_title: impl Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut subcommands = Vec::new();
    let mut inside_list = false;
    for line in help.lines() {
        if !line.starts_with(' ') {
            inside_list = is_title(line);
        } else if let (true, Some((name, summary))) = (inside_list, line.trim().split_once(' ')) {
            subcommands.push((name.to_owned(), summary.trim().to_owned()));
        }
    }
    subcommands.retain(|(name, _)| name != "help" && !name.starts_with('-'));
    subcommands
}

fn top_level_commands() -> Vec<(String, String)> {
    let titles = ["Read a model:", "Prove:", "Build:", "Train:", "Inspect:", "Report:"];
    subcommands(&help(&[]), |line| titles.contains(&line))
}

/// The words of every command without subcommands.
fn commands() -> Vec<Vec<String>> {
    let mut commands = Vec::new();
    for (name, _) in top_level_commands() {
        let actions = subcommands(&help(&[&name]), |line| line == "Commands:");
        if actions.is_empty() {
            commands.push(vec![name]);
        } else {
            commands.extend(actions.into_iter().map(|(action, _)| vec![name.clone(), action]));
        }
    }
    commands
}

#[test]
fn help_equals_the_stored_text() {
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
fn summaries_are_short_and_imperative() {
    let commands = top_level_commands();
    assert!(commands.len() > 25, "{commands:?}");
    for (name, summary) in commands {
        let verb = summary.split(' ').next().unwrap_or_default();
        assert!((10..=70).contains(&summary.len()) && !summary.ends_with('.'), "{name}: {summary}");
        assert!(!verb.ends_with('s') || matches!(verb, "Compress" | "Process"), "{name}: {summary}");
    }
}

#[test]
fn rung_without_arguments_prints_its_help() {
    let output = rung(&[]);
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, help(&[]));
    assert!(printed.contains("Examples:") && printed.contains("Layers are numbered from 0"));
}

#[test]
fn every_command_has_the_json_option() {
    for words in commands() {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        assert!(help(&words).contains("--json"), "{words:?}");
    }
}

/// Quick calls of commands, without `--json`. `DIR` is a scratch directory with the constructions `u1` and `u2`, a sweep
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
fn json_output_is_valid_json() {
    let directory = scratch_directory("help");
    let folder = path_str(&directory).to_owned();
    let path_in = |name: &str| format!("{folder}/{name}");
    assert!(rung(&["construct", "U2", "--m", "2", "--out", &path_in("u2")]).status.success());
    assert!(rung(&["construct", "U1", "--m", "2", "--out", &path_in("u1")]).status.success());
    assert!(rung(&["bound", "linear full", "--hops", "2", "--out", &path_in("certificate.json")]).status.success());
    let sweep = "seeds = [0, 1]\n[base]\ntask = \"parity\"\n[grid]\nstack = [\"gdn\", \"full\"]\n";
    std::fs::write(path_in("sweep.toml"), sweep).unwrap();
    for words in CALLS {
        let words: Vec<String> = words.iter().map(|word| word.replace("DIR", &folder)).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = rung(&[&words, &["--json"][..]].concat());
        let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(matches!(output.status.code(), Some(0 | 1)), "{words:?}: {error}");
        assert!(serde_json::from_str::<Value>(&out).is_ok(), "{words:?}: {out}");
    }
    // These need a server, a checkpoint, a trained network, or minutes; other tests cover them.
    let tested_elsewhere = [
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
        assert!(
            tested_elsewhere.contains(&name.as_str()) || called.iter().any(|call| call.starts_with(&name)),
            "{name}"
        );
    }
}

#[test]
fn sizes_have_the_same_syntax_in_every_command() {
    for size in ["512M", "512MB", "2GiB", "1.5g", "500_000"] {
        // The weights do not fit, which gives exit code 3; a size that cannot be parsed would give 2.
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
    let audit = rung(&["audit", "lfm2-1.2b", "--context", "128k", "--json"]);
    assert_eq!(serde_json::from_slice::<Value>(&audit.stdout).unwrap()["context"], 131_072);
}

#[test]
fn layers_are_numbered_from_zero() {
    let directory = scratch_directory("numbered");
    let folder = path_str(&directory.join("u2")).to_owned();
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
    let heads = directory.join("heads");
    let run = "stack = 'full full'\ntask = 'funccomp{hops=1,m=2}'\n[model]\nheads = 2\nhead = 4\n[train]\nsteps = 1\nbatch = 1\n\
               [evaluate]\nlast = 1\nprompts = 1\n";
    std::fs::write(directory.join("run.toml"), run).unwrap();
    assert!(
        rung(&["train", "--config", path_str(&directory.join("run.toml")), "--out", path_str(&heads)]).status.success()
    );
    let diversity = parsed(&["analyze", "diversity", path_str(&heads), "--prompts", "1", "--json"]);
    let layers = diversity["layers"].as_array().unwrap();
    let numbers: Vec<u64> = layers.iter().map(|layer| layer["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [0, 1], "{diversity}");
    let ablation = parsed(&["analyze", "ablate", path_str(&heads), "--prompts", "1", "--json"]);
    assert!(!ablation.to_string().contains("layer 2"), "{ablation}");
    let page = stdout(&["explain", "U1"]);
    assert!(page.contains("Layer 0: w attends to z_0"), "{page}");
    let shortcuts = stdout(&["explain", "shortcuts"]);
    assert!(!shortcuts.contains("layer 1"), "{shortcuts}");
}
