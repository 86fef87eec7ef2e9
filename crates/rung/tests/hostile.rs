//! Small files and short commands that would need very much memory or time are rejected in bounded time and memory.
#![cfg(target_os = "linux")]

mod common;

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::{path_str, scratch_directory};

/// Runs the program with at most `kilobytes` kB of address space. Returns its output and its time.
fn run_limited(kilobytes: u64, arguments: &[&str]) -> (Output, Duration) {
    let start = Instant::now();
    let script = format!("ulimit -v {kilobytes}; exec \"$0\" \"$@\"");
    let output = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_rung")]).args(arguments).output().unwrap();
    (output, start.elapsed())
}

/// Asserts that a command fails with exit code 2 and an error with these words, within a gigabyte and ten seconds.
fn assert_rejected(arguments: &[&str], words: &[&str]) {
    let (output, time) = run_limited(1 << 20, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(words.iter().all(|word| error.contains(word)) && !error.contains("panicked"), "{arguments:?}: {error}");
    assert!(time < Duration::from_secs(10), "{arguments:?}: {time:?}");
}

#[test]
fn falsify_rejects_states_that_do_not_fit_in_memory() {
    for (stack, memory, limit) in [("fastmax{key=1000}", "64M", "MiB"), ("fastmax{key=200}", "8M", "at most 8 MiB")] {
        let arguments =
            ["falsify", "--stack", stack, "--task", "funccomp{hops=1,m=8}", "--budget", "1", "--memory", memory];
        assert_rejected(&arguments, &["would take about", limit]);
    }
}

#[test]
fn a_small_witness_file_cannot_request_a_large_model() {
    let path = scratch_directory("hostile-witness").join("witness.json");
    let witness = r#"{"format": 2, "model": {"name": "x", "origin": {"fresh": {"stack": "fastmax{key=4000}*3",
        "task": "funccomp{hops=1,m=8}"}}, "kept": null, "fingerprint": ""}, "task": "funccomp{hops=1,m=8}", "inputs": [[0]],
        "question": 0, "answers": [0], "outputs": [1], "scores": [[0.0]], "border": null, "state": null, "blind": [],
        "decomposition": null, "digest": ""}"#;
    std::fs::write(&path, witness).unwrap();
    let (output, time) = run_limited(1 << 20, &["witness", "check", path_str(&path)]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)) && !error.contains("panicked"), "{error}");
    assert!(time < Duration::from_secs(10), "{time:?}");
}

/// Replaces the first occurrence of a text in a file.
fn replace_in_file(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn verify_compares_a_construction_with_its_weights_before_building_it() {
    let folder = scratch_directory("hostile-construction").join("u1");
    let output = common::rung(&["construct", "U1", "--hops", "1", "--m", "4", "--out", path_str(&folder)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = folder.join("construction.json");
    let description: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let hidden = description["model"]["hidden"].to_string();
    replace_in_file(&path, &format!("\"hidden\": {hidden}"), "\"hidden\": 30000000");
    assert_rejected(&["verify", path_str(&folder)], &["model.safetensors", "weights"]);
}

#[test]
fn control_characters_in_files_do_not_reach_the_terminal() {
    let path = scratch_directory("hostile-names").join("config.json");
    let config = r#"{"model_type": "\u001b]0;owned\u0007\u001b[2J", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2,
        "layer_types": ["\u001b[1A\r", "full_attention"]}"#;
    std::fs::write(&path, config).unwrap();
    for arguments in [&["audit", path_str(&path)][..], &["lint", path_str(&path)]] {
        let output = common::rung(arguments);
        for bytes in [&output.stdout, &output.stderr] {
            let printed = String::from_utf8_lossy(bytes);
            assert!(
                !printed.contains('\u{1b}') && !printed.contains('\r') && !printed.contains('\u{7}'),
                "{printed:?}"
            );
        }
    }
}
