//! Small files and short commands that would need very much memory or time are rejected in bounded time and memory.
#![cfg(target_os = "linux")]

mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{path_str, scratch_directory};

/// Address space of a command in kilobytes. Reserved but unused memory counts, so this is far above [`MAX_RESIDENT_KILOBYTES`].
const MAX_KILOBYTES: u64 = 1 << 20;
/// Resident memory of a command on a hostile file.
const MAX_RESIDENT_KILOBYTES: u64 = 200 << 10;
const MAX_TIME: Duration = Duration::from_secs(10);

/// Runs the program with at most [`MAX_KILOBYTES`] of address space, and asserts that it takes neither more than
/// [`MAX_RESIDENT_KILOBYTES`] nor more than [`MAX_TIME`].
fn run_limited(arguments: &[&str]) -> Output {
    let start = Instant::now();
    let script = format!("ulimit -v {MAX_KILOBYTES}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_rung")]).args(arguments);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status_path = format!("/proc/{}/status", child.id());
    let mut peak_kilobytes = 0;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(&status_path).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        peak_kilobytes = peak_kilobytes.max(kilobytes.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(start.elapsed() < MAX_TIME, "{arguments:?}: {:?}", start.elapsed());
    assert!(peak_kilobytes < MAX_RESIDENT_KILOBYTES, "{arguments:?}: {} MB", peak_kilobytes >> 10);
    child.wait_with_output().unwrap()
}

/// Asserts that a command fails with exit code 2 and an error with these words.
fn assert_rejected(arguments: &[&str], words: &[&str]) {
    let output = run_limited(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(words.iter().all(|word| error.contains(word)) && !error.contains("panicked"), "{arguments:?}: {error}");
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
    let output = run_limited(&["witness", "check", path_str(&path)]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(1 | 2)) && !error.contains("panicked"), "{error}");
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

#[test]
fn sizes_whose_sum_wraps_prove_nothing() {
    let wide = "loglinear-gdn{value-heads=16777216,key=16777216,value=16777216,conv=0,levels=16777216,bits=4096}";
    let stack = format!("({wide}+{wide})*524287 full");
    for command in [&["capacity"][..], &["bound", "--hops", "2"], &["decide", "--hops", "2", "--m", "8"]] {
        let arguments = [&command[..1], &[&*stack], &command[1..]].concat();
        let output = run_limited(&arguments);
        assert!(!output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn a_short_stack_of_many_mixers_takes_little_memory() {
    let kinds: Vec<String> = (1..=9).map(|heads| format!("full{{heads={heads}}}")).collect();
    let output = run_limited(&["capacity", &format!("({})*116508", kinds.join(" "))]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_rejected(&["capacity", &format!("({})*999999", ["full"; 9].join("+"))], &["mixers"]);
}

#[test]
fn links_to_endless_devices_are_rejected() {
    let folder = scratch_directory("hostile-devices");
    for (name, command) in [("config.json", "lint"), ("model.safetensors.index.json", "model")] {
        std::os::unix::fs::symlink("/dev/zero", folder.join(name)).unwrap();
        let arguments = if command == "model" {
            vec!["model", "show", path_str(&folder)]
        } else {
            vec![command, path_str(&folder)]
        };
        let output = run_limited(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_construction_of_many_entries_is_rejected_before_it_is_described() {
    for (name, options) in [("S4", &["--hops", "1"][..]), ("S4", &["--hops", "2"])] {
        let arguments = [&["construct", name, "--m", "1000000", "--memory", "64M"], options].concat();
        assert_rejected(&arguments, &["would take about", "64 MiB"]);
    }
}

#[test]
fn mixers_wider_than_the_residual_stream_are_rejected_by_their_size() {
    let arguments = [
        &["falsify", "--stack", "full{heads=4096,kv=4096,head=64}", "--set", "model.width=4"][..],
        &["--task", "funccomp{hops=1,m=4000}", "--budget", "1", "--memory", "512M"],
    ];
    assert_rejected(&arguments.concat(), &["would take about", "512 MiB"]);
}

#[test]
fn colours_in_names_of_files_do_not_reach_the_terminal() {
    let path = scratch_directory("hostile-colours").join("\u{1b}[31mcertificate.json");
    std::fs::write(&path, "{}").unwrap();
    let output = common::rung(&["check", path_str(&path)]);
    let printed = [output.stdout, output.stderr].concat();
    assert!(!printed.contains(&0x1b), "{}", String::from_utf8_lossy(&printed));
}

#[test]
fn a_small_text_witness_cannot_request_long_prompts() {
    let folder = scratch_directory("hostile-text-witness");
    let [construction, model, path] = ["u1", "hf", "witness.json"].map(|name| folder.join(name));
    for arguments in [
        &["construct", "U1", "--hops", "2", "--m", "4", "--out", path_str(&construction)][..],
        &["export", path_str(&construction), "--to", "hf", "--out", path_str(&model)],
        &["falsify", path_str(&model), "--task", "funccomp{hops=2,m=4}", "--budget", "9", "--out", path_str(&path)],
    ] {
        let output = common::rung(arguments);
        assert!(output.status.success() || path.exists(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let witness = std::fs::read_to_string(&path).unwrap();
    replace_in_file(&path, "\"shots\":2", "\"shots\":1000000000");
    assert_rejected(&["witness", "check", path_str(&path)], &["writer.shots: found 1000000000, expected at most 1024"]);
    std::fs::write(&path, witness).unwrap();
    replace_in_file(&path, "m=4,", "m=4000000,");
    assert_rejected(&["witness", "check", path_str(&path)], &["expected at most 1048576"]);
}
