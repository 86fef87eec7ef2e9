//! Small files and short commands that ask for much: a clear refusal in bounded time and memory.
#![cfg(target_os = "linux")]

mod common;

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::{scratch, text};

/// Runs the program with at most this many kilobytes of address space: what asks for more is killed or panics.
fn limited(kilobytes: u64, arguments: &[&str]) -> (Output, Duration) {
    let started = Instant::now();
    let script = format!("ulimit -v {kilobytes}; exec \"$0\" \"$@\"");
    let output = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_rung")]).args(arguments).output().unwrap();
    (output, started.elapsed())
}

/// Refused with exit code 2 and these words, within a gigabyte and ten seconds.
fn refused(arguments: &[&str], words: &[&str]) {
    let (output, time) = limited(1 << 20, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(words.iter().all(|word| error.contains(word)) && !error.contains("panicked"), "{arguments:?}: {error}");
    assert!(time < Duration::from_secs(10), "{arguments:?}: {time:?}");
}

#[test]
fn falsify_refuses_states_that_do_not_fit() {
    for (stack, memory, limit) in [("fastmax{key=1000}", "64M", "MiB"), ("fastmax{key=200}", "8M", "at most 8 MiB")] {
        let arguments =
            ["falsify", "--stack", stack, "--task", "funccomp{hops=1,m=8}", "--budget", "1", "--memory", memory];
        refused(&arguments, &["would take about", limit]);
    }
}

#[test]
fn a_small_witness_builds_no_large_model() {
    let path = scratch("hostile-witness").join("witness.json");
    let witness = r#"{"format": 2, "model": {"name": "x", "origin": {"fresh": {"stack": "fastmax{key=4000}*3",
        "task": "funccomp{hops=1,m=8}"}}, "kept": null, "fingerprint": ""}, "task": "funccomp{hops=1,m=8}", "inputs": [[0]],
        "question": 0, "answers": [0], "outputs": [1], "scores": [[0.0]], "border": null, "state": null, "blind": [],
        "decomposition": null, "digest": ""}"#;
    std::fs::write(&path, witness).unwrap();
    let (output, time) = limited(1 << 20, &["witness", "check", text(&path)]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)) && !error.contains("panicked"), "{error}");
    assert!(time < Duration::from_secs(10), "{time:?}");
}

fn change(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn a_construction_is_compared_with_its_weights_before_it_is_built() {
    let folder = scratch("hostile-construction").join("u1");
    let built = common::rung(&["construct", "U1", "--hops", "1", "--m", "4", "--out", text(&folder)]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let path = folder.join("construction.json");
    let description: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let hidden = description["model"]["hidden"].to_string();
    change(&path, &format!("\"hidden\": {hidden}"), "\"hidden\": 30000000");
    refused(&["verify", text(&folder)], &["model.safetensors", "weights"]);
}

#[test]
fn names_from_files_cannot_steer_the_terminal() {
    let path = scratch("hostile-names").join("config.json");
    let config = r#"{"model_type": "\u001b]0;owned\u0007\u001b[2J", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2,
        "layer_types": ["\u001b[1A\r", "full_attention"]}"#;
    std::fs::write(&path, config).unwrap();
    for arguments in [&["audit", text(&path)][..], &["lint", text(&path)]] {
        let output = common::rung(arguments);
        for bytes in [&output.stdout, &output.stderr] {
            let said = String::from_utf8_lossy(bytes);
            assert!(!said.contains('\u{1b}') && !said.contains('\r') && !said.contains('\u{7}'), "{said:?}");
        }
    }
}
