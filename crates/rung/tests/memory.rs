//! Memory limits: commands that would need too much memory fail before they start, and estimates lie above the measured peak, but not far.
#![cfg(target_os = "linux")]

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::{assert_fails, path_str, rung, scratch_directory};
use rung_bench::measure::PeakMemory;
use rung_train::run::{Run, RunConfig, Trainer};
use serde_json::json;

fn run(stack: &str, task: &str, settings: &[&str]) -> Run {
    let config = settings.iter().try_fold(RunConfig::new(stack, task), |config, setting| config.with(setting));
    config.and_then(|config| config.resolve()).unwrap()
}

/// Resident memory of this process in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Stack, task and settings of the measured runs.
const CASES: [(&str, &str, &[&str]); 5] = [
    ("full*2", "funccomp{hops=1,m=32,queries=8}", &["model.heads=8", "model.head=64", "train.batch=4"]),
    ("gdn full", "funccomp{hops=1,m=32,queries=8}", &["model.heads=8", "model.head=64", "train.batch=4"]),
    ("mamba2*2", "funccomp{hops=1,m=600,queries=16}", &["model.heads=4", "model.head=32", "train.batch=2"]),
    ("linear full gdn full", "funccomp{hops=1,m=600,queries=16}", &["model.heads=4", "model.head=32", "train.batch=2"]),
    ("fastmax{key=24}", "funccomp{hops=1,m=32,queries=8}", &["model.heads=4", "model.head=32", "train.batch=2"]),
];

/// The environment variable with the number of a case. Each case is measured in its own process, because freed memory is not always returned to
/// the system.
const CASE_VARIABLE: &str = "RUNG_MEMORY_CASE";

#[test]
fn estimates_of_training_lie_above_the_peak_and_not_far() {
    if let Ok(number) = std::env::var(CASE_VARIABLE) {
        return measure(CASES[number.parse::<usize>().unwrap()]);
    }
    for number in 0..CASES.len() {
        let name = "estimates_of_training_lie_above_the_peak_and_not_far";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output =
            child.args([name, "--exact", "--nocapture"]).env(CASE_VARIABLE, number.to_string()).output().unwrap();
        let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(output.status.success(), "{printed}");
        printed.lines().filter(|line| line.contains("MiB")).for_each(|line| println!("{line}"));
    }
}

fn measure((stack, task, settings): (&str, &str, &[&str])) {
    let run = run(stack, task, &[settings, &["evaluate.every=1", "evaluate.prompts=8"]].concat());
    let (before, peak) = (resident_bytes(), PeakMemory::start().unwrap());
    Trainer::new(&run).unwrap().step().unwrap();
    let (measured, estimate) = (peak.bytes().unwrap().saturating_sub(before), run.memory_bytes() as u64);
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("{stack} on {task}: estimated {:.1} MiB, took {:.1} MiB", mebibytes(estimate), mebibytes(measured));
    assert!(measured <= estimate + (8 << 20), "{stack} on {task}: {measured} bytes, estimated {estimate}");
    assert!(estimate <= 8 * measured + (16 << 20), "{stack} on {task}: {measured} bytes, estimated {estimate}");
}

/// Writes a small construction and a small run. Returns their folders.
fn write_networks(folder: &std::path::Path) -> (PathBuf, PathBuf) {
    let (construction, trained) = (folder.join("u1"), folder.join("run"));
    let output = rung(&["construct", "U1", "--hops", "1", "--m", "4", "--out", path_str(&construction)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let training =
        ["train", "--stack", "full", "--task", "funccomp{hops=1,m=8}", "--steps", "2", "--out", path_str(&trained)];
    let output = rung(&training);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (construction, trained)
}

#[test]
fn every_command_with_a_memory_option_respects_it() {
    let folder = scratch_directory("memory-commands");
    let (construction, trained) = write_networks(&folder);
    let sweep = folder.join("sweep.toml");
    std::fs::write(&sweep, "seeds = [1, 2]\n[base]\nstack = 'full'\ntask = 'funccomp{hops=1,m=8}'\n").unwrap();
    let out = folder.join("out");
    let task = "funccomp{hops=1,m=8}";
    let commands: &[&[&str]] = &[
        &["train", "--stack", "full", "--task", task, "--out", path_str(&out)],
        &["sweep", path_str(&sweep), "--out", path_str(&out)],
        &["construct", "U1", "--hops", "1", "--m", "40"],
        &["verify", path_str(&construction)],
        &["analyze", "probe", path_str(&trained)],
        &["convert", path_str(&trained), "--to", "gdn"],
        &["protocol", path_str(&construction)],
        &["eval", path_str(&trained)],
    ];
    for arguments in commands {
        assert_fails(
            &[arguments, &["--memory", "2K"][..]].concat(),
            "MiB, expected at most 0 MiB (what --memory allows)",
        );
    }
    assert!(!out.join("record.json").exists());
    for arguments in [commands[2], commands[3], commands[6], commands[7]] {
        let output = rung(&[arguments, &["--memory", "64G"][..]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert_fails(&["train", "--stack", "full", "--task", task, "--memory", "a lot"], "--memory");
}

/// Writes a Llama of 5 million weights, all zero, whose tokens are words. The file has holes, so it takes no space. Returns its folder.
fn write_checkpoint(folder: &std::path::Path) -> PathBuf {
    const WIDTH: u64 = 256;
    const HIDDEN: u64 = 512;
    const WORDS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let checkpoint = folder.join("llama");
    std::fs::create_dir_all(&checkpoint).unwrap();
    let config = json!({
        "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": 8, "num_attention_heads": 8,
        "vocab_size": WORDS.len(), "tie_word_embeddings": true, "rms_norm_eps": 1e-6, "max_position_embeddings": 4096,
    });
    std::fs::write(checkpoint.join("config.json"), config.to_string()).unwrap();
    let words: serde_json::Map<_, _> = (0..).zip(WORDS).map(|(id, word)| (word.to_owned(), json!(id))).collect();
    let tokenizer = json!({
        "version": "1.0", "pre_tokenizer": { "type": "WhitespaceSplit" },
        "model": { "type": "WordLevel", "vocab": words, "unk_token": "a" },
    });
    std::fs::write(checkpoint.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let mut shapes = vec![
        ("model.embed_tokens".to_owned(), vec![WORDS.len() as u64, WIDTH]),
        ("model.norm".to_owned(), vec![WIDTH]),
    ];
    for layer in 0..8 {
        let mut add = |name: &str, shape: &[u64]| shapes.push((format!("model.layers.{layer}.{name}"), shape.to_vec()));
        add("input_layernorm", &[WIDTH]);
        add("post_attention_layernorm", &[WIDTH]);
        ["q", "k", "v", "o"].iter().for_each(|name| add(&format!("self_attn.{name}_proj"), &[WIDTH, WIDTH]));
        ["gate", "up"].iter().for_each(|name| add(&format!("mlp.{name}_proj"), &[HIDDEN, WIDTH]));
        add("mlp.down_proj", &[WIDTH, HIDDEN]);
    }
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, shape) in shapes {
        let start = end;
        end += 4 * shape.iter().product::<u64>();
        let tensor = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, end] });
        header.insert(format!("{name}.weight"), tensor);
    }
    let header = serde_json::Value::Object(header).to_string();
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    let path = checkpoint.join("model.safetensors");
    std::fs::write(&path, &bytes).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(bytes.len() as u64 + end).unwrap();
    checkpoint
}

#[test]
fn commands_on_checkpoints_count_shared_weights_once() {
    let folder = scratch_directory("memory-checkpoint");
    let checkpoint = write_checkpoint(&folder);
    let (short, long) = (folder.join("short.txt"), folder.join("long.txt"));
    std::fs::write(&short, "a b c d e\n".repeat(10)).unwrap();
    std::fs::write(&long, "a b ".repeat(1000) + "\n").unwrap();
    let (model, short, long) = (path_str(&checkpoint), path_str(&short), path_str(&long));
    // The weights take 21 MB; every core reads the same ones.
    let limit = ["--memory", "32M"];
    for command in [&["eval", model, "--prompts"][..], &["analyze", "logit_lens", model, "--prompts"]] {
        let output = rung(&[command, &[short], &limit].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_fails(&[command, &[long], &limit].concat(), "text prompts: ");
    }
    assert_fails(&["eval", model, "--prompts", short, "--memory", "16M"], "weights would take about");
    let convert = ["convert", model, "--to", "gdn", "--prompts", short, "--steps", "1"];
    assert_fails(&[&convert[..], &limit].concat(), "distilling 8 layers of ");
    let output = rung(&[&convert[..], &["--layers", "3", "--memory", "48M"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tokens = vec!["1"; 2000].join(",");
    assert_fails(
        &[&["logits", model, "--tokens", &tokens][..], &limit].concat(),
        "logits of 2000 tokens and 8 classes",
    );
    let output = rung(&[&["logits", model, "--tokens", "1,2,3", "--json"][..], &limit].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_run_larger_than_the_machine_fails_before_the_first_step() {
    let out = scratch_directory("memory-machine").join("run");
    // A limit of 1 GiB of address space simulates a small machine; the run would need several.
    let script = "ulimit -v 1048576; exec \"$0\" \"$@\"";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_rung"), "train", "--stack", "full*8", "--out", path_str(&out)]);
    shell.args(["--task", "funccomp{hops=1,m=4000}", "--set", "model.head=256", "--set", "model.heads=4"]);
    let output = shell.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    for words in
        ["the run of `full*8` on `funccomp", "would take about", "what this machine has; --memory overrides it"]
    {
        assert!(error.contains(words), "{error}");
    }
    assert!(!error.contains("panicked") && !out.join("record.json").exists(), "{error}");
}
