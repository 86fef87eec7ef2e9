//! `rung plan`, `rung place`, `rung lint`, and `rung audit` on folders of configs.

mod common;

use common::{assert_fails, path_str, rung, scratch_directory};
use serde_json::Value;

/// The JSON output of a command, whatever its exit code.
fn json(arguments: &[&str]) -> Value {
    let output = rung(arguments);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{arguments:?}: {output:?}"))
}

#[test]
fn a_plan_has_the_listed_fields() {
    let arguments = [
        "plan",
        "qwen3.6-35b-a3b",
        "--engine",
        "vllm",
        "--context",
        "128k",
        "--memory",
        "80GiB",
        "--weights",
        "35GB",
        "--json",
    ];
    let plan = json(&arguments);
    assert_eq!((plan["engine"].as_str(), plan["context"].as_u64()), (Some("vllm"), Some(131_072)));
    assert_eq!(plan["block_tokens"], 1056);
    let number = |name: &str| plan[name].as_u64().unwrap_or_else(|| panic!("{name}"));
    assert_eq!(number("kv_bytes") + number("window_bytes") + number("state_bytes"), number("cache_bytes"));
    assert!(number("tokens_fit") > 131_072 && number("requests_fit") >= 1);
    assert!(plan["flags"].as_array().unwrap().iter().any(|flag| flag == "--max-model-len 131072"));
    let two_gpus = json(&["plan", "qwen3.6-35b-a3b", "--engine", "vllm", "--on", "h100x2", "--json"]);
    assert_eq!(two_gpus["tp"], 2);
}

#[test]
fn errors_name_the_bad_setting() {
    let fails_with = |option: &str, value: &str, expected: &str| {
        assert_fails(&["plan", "qwen3-8b", "--engine", "vllm", option, value], expected);
    };
    fails_with("--memory", "-5GiB", "expected 0 to 9e15 bytes");
    fails_with("--memory", "0", "expected more than 0 bytes");
    fails_with("--memory", "1e30", "expected 0 to 9e15 bytes");
    fails_with("--on", "h1000", "no such GPU");
    fails_with("--context", "0", "expected 1 to");
    fails_with("--context", "4kB", "expected tokens such as");
    fails_with("--weights", "9000bpw", "expected bits such as");
    fails_with("--kv-dtype", "q9", "no such number format");
    fails_with("--set", "block=4", "no option of vllm");
    assert_fails(&["plan", "qwen3-8b", "--engine", "vlm"], "no such engine");
    assert_fails(&["plan", "qwen3-8b", "--engine", "vllm", "--tp", "0"], "invalid value");
}

#[test]
fn errors_are_json_with_the_json_option() {
    for arguments in [
        ["plan", "no-such-model", "--engine", "vllm", "--json"].as_slice(),
        &["plan", "qwen3-8b", "--engine", "none", "--json"],
        &["audit", "no-such-model", "--json"],
        &["place", "no-such-model", "--budget", "1GiB", "--json"],
        &["bound", "--json", "--no-such-option"],
    ] {
        let output = rung(arguments);
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true), "{arguments:?}");
        let error: Value =
            serde_json::from_slice(&output.stderr).unwrap_or_else(|_| panic!("{arguments:?}: {output:?}"));
        assert!(error["error"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
    }
}

#[test]
fn layers_that_an_engine_does_not_support_are_unknown() {
    let arguments = ["plan", "rwkv7-world-0.1b", "--engine", "vllm", "--json"];
    assert_eq!(rung(&arguments).status.code(), Some(3));
    let plan = json(&arguments);
    assert!(plan["cache_bytes"].is_null() && plan["unknown"][0].as_str().unwrap().contains("rwkv7"));
}

#[test]
fn lint_annotates_and_sets_the_exit_code() {
    let folder = scratch_directory("lint");
    let path = folder.join("config.json");
    std::fs::write(&path, "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 32,\n\"num_attention_heads\": 8, \"num_key_value_heads\": 3}").unwrap();
    let output = rung(&["lint", path_str(&path), "--format", "github"]);
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{out}");
    assert!(out.starts_with("::error file=") && out.contains(",line=2,title=num_key_value_heads::"), "{out}");
    assert_eq!(json(&["lint", path_str(&folder), "--json"])["findings"][0]["severity"], "error");
    assert_eq!(rung(&["lint", "qwen3-8b", "llama-3.1-8b"]).status.code(), Some(0));
    assert_eq!(rung(&["lint", "no-such-file"]).status.code(), Some(2));
}

#[test]
fn a_folder_of_configs_is_one_table() {
    let folder = scratch_directory("folder");
    for index in 0..40 {
        let config = format!(
            r#"{{"model_type": "llama", "num_hidden_layers": {}, "hidden_size": 32, "num_attention_heads": 8}}"#,
            index + 1
        );
        std::fs::write(folder.join(format!("{index:02}.json")), config).unwrap();
    }
    let output = rung(&["audit", path_str(&folder)]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8(output.stdout).unwrap().lines().count() >= 41);
    std::fs::write(folder.join("broken.json"), "{").unwrap();
    let output = rung(&["audit", path_str(&folder)]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("broken.json"));
}

#[test]
fn place_compares_ratios_of_layers_and_draws_them() {
    let chart = scratch_directory("ratios").join("memory.svg");
    let arguments = [
        "place",
        "qwen3.5-9b",
        "--engine",
        "llama.cpp",
        "--memory",
        "24GiB",
        "--weights",
        "18GB",
        "--context",
        "32k",
        "--plot",
        path_str(&chart),
        "--json",
    ];
    let ratios = json(&arguments);
    assert!(ratios["mixes"].as_array().unwrap().len() >= 6);
    let svg = std::fs::read_to_string(&chart).unwrap();
    assert!(svg.contains("rtx4090") && svg.contains("7:1"));
}
