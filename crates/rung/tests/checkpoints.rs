//! Commands on a checkpoint of another program: a tiny Llama with random weights and a SentencePiece vocabulary.

mod common;

use std::path::PathBuf;

use common::{fails, rung, scratch, text};
use serde_json::Value;

fn model() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../rung-tokenizer/tests/sentencepiece.gguf")
}

const LINES: [&str; 6] = [
    "The river opens a window and the house crosses",
    "The teacher remembers a number and the island measures",
    "",
    "The garden finds a letter in winter and the engine writes",
    "The window follows the river",
    "The engine carries a house and the number",
];

/// A file of five prompts.
fn prompts(name: &str) -> PathBuf {
    let path = scratch(name).join("prompts.txt");
    std::fs::write(&path, LINES.join("\n")).unwrap();
    path
}

fn json(arguments: &[&str]) -> Value {
    let output = rung(&[arguments, &["--json"]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn eval_measures_the_perplexity_of_the_logits() {
    let (model, file) = (model(), prompts("checkpoint-eval"));
    let output = rung(&["eval", text(&model), "--prompts", text(&file), "--json"]);
    let cost = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(cost.contains("eval: 5 prompts, ") && cost.contains("1 pass over them"), "{cost}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (mut loss, mut count) = (0.0, 0);
    for line in LINES.iter().filter(|line| !line.is_empty()) {
        let tokens = json(&["generate", text(&model), "--prompt", line, "--count", "0"])["prompt_tokens"].clone();
        let tokens: Vec<usize> = tokens.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as usize).collect();
        let list = tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let logits = json(&["logits", text(&model), "--tokens", &list]);
        for (row, next) in logits["logits"].as_array().unwrap().iter().zip(&tokens[1..]) {
            let row: Vec<f64> = row.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            loss += row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[*next];
            count += 1;
        }
    }
    let (group, mean) = (&found["groups"][0], loss / f64::from(count));
    assert_eq!(group["accuracy"]["count"].as_i64(), Some(i64::from(count)));
    assert!((group["loss"].as_f64().unwrap() - mean).abs() < 1e-4, "{group} {mean}");
    assert!((group["perplexity"].as_f64().unwrap() - mean.exp()).abs() < 1e-2 * mean.exp());
}

#[test]
fn instruments_run_on_lines_of_a_file() {
    let (model, file) = (model(), prompts("checkpoint-analyze"));
    let analyze = |name: &str| json(&["analyze", name, text(&model), "--prompts", text(&file)]);
    let ablated = analyze("ablate");
    let variants = ablated["variants"].as_array().unwrap();
    // As it is, without all attention, without each of two layers, without channel mixers.
    assert_eq!(variants.len(), 5, "{ablated}");
    let read = analyze("logit_lens");
    let own = &read["scores"][2]["0"];
    let mean = own["loss"].as_f64().unwrap() / own["count"].as_f64().unwrap();
    assert!((mean - variants[0]["loss"]["0"].as_f64().unwrap()).abs() < 1e-5, "the last level is the network");
    let rounded = analyze("precision");
    let steps = rounded["steps"].as_array().unwrap();
    let loss = |at: usize| steps[at]["loss"].as_f64().unwrap();
    assert!((loss(0) - mean).abs() < 1e-4, "token by token is the same");
    assert!((loss(1) - loss(0)).abs() < 1e-2 && (loss(5) - loss(0)).abs() > (loss(1) - loss(0)).abs());
    let lens = analyze("lens");
    assert_eq!(lens["levels"].as_array().unwrap().len(), 3);
    assert!(lens["tokens"][1].as_str().unwrap().contains("The"), "{}", lens["tokens"]);
    assert_eq!(analyze("collapse")["levels"].as_array().unwrap().len(), 3);
    assert_eq!(analyze("diversity")["layers"].as_array().unwrap().len(), 2);
}

#[test]
fn what_has_no_meaning_is_refused_in_a_sentence() {
    let (model, file) = (model(), prompts("checkpoint-refused"));
    let (model, file) = (text(&model), text(&file));
    fails(&["eval", model], "has no task: give --prompts FILE, with a prompt on each line, or --task SPEC");
    fails(&["analyze", "ablate", model, "--prompts", "5"], "has no task");
    fails(&["analyze", "state", model, "--prompts", file], "a causal network with a recurrent mixer");
    fails(&["analyze", "probe", model, "--prompts", file], "a task as text");
    fails(&["trace", model], "without registers and instances of a task: give --prompts FILE");
    fails(&["falsify", model], "a search for counterexamples needs the token ids of a task");
    fails(&["convert", model, "--to", "gdn"], "has no task");
    fails(&["eval", model, "--prompts", "/nonexistent.txt"], "/nonexistent.txt");
    let empty = scratch("checkpoint-empty").join("empty.txt");
    std::fs::write(&empty, "\n\n").unwrap();
    fails(&["eval", model, "--prompts", text(&empty)], "found no prompts");
}

#[test]
fn trace_follows_a_line_and_convert_replaces_layers() {
    let (model, file) = (model(), prompts("checkpoint-convert"));
    let (model, file) = (text(&model), text(&file));
    let traced = json(&["trace", model, "--prompts", file]);
    assert_eq!(traced["layers"].as_array().unwrap().len(), 2);
    assert!(traced["mismatch"].as_f64().unwrap() < 1e-4, "{}", traced["mismatch"]);
    let arguments =
        ["convert", model, "--to", "gdn", "--prompts", file, "--steps", "20", "--threshold", "inf", "--replace", "2"];
    let found = json(&arguments);
    assert_eq!(found["path"].as_array().unwrap().len(), 2, "{found}");
    for layer in found["layers"].as_array().unwrap() {
        assert!(layer["after"].as_f64().unwrap() < layer["before"].as_f64().unwrap(), "{layer}");
    }
    let (folder, last) = (scratch("checkpoint-converted"), scratch("checkpoint-last").join("last.txt"));
    std::fs::write(&last, LINES[5]).unwrap();
    let converted = folder.join("out");
    json(&[&arguments[..], &["--out", text(&converted)]].concat());
    // The last of five prompts is the test.
    let after =
        json(&["eval", text(&converted), "--prompts", text(&last)])["groups"][0]["perplexity"].as_f64().unwrap();
    assert!((after / found["test"][1].as_f64().unwrap() - 1.0).abs() < 1e-4, "{after} {found}");
    assert!((after / found["test"][0].as_f64().unwrap() - 1.0).abs() > 1e-4, "two layers were replaced");
    let logits = |more: &[&str]| {
        let rows = json(&[&["logits", text(&converted), "--tokens", "5,6,7,8"], more].concat())["logits"].clone();
        let rows: Vec<Vec<f64>> = serde_json::from_value(rows).unwrap();
        rows.concat()
    };
    let (whole, stepwise) = (logits(&[]), logits(&["--stepwise"]));
    assert!(whole.iter().zip(&stepwise).all(|(a, b)| (a - b).abs() < 1e-4), "the state is handed on");
    let description = converted.join("conversion.json");
    std::fs::write(&description, std::fs::read_to_string(&description).unwrap().replace("gdn{", "gone{")).unwrap();
    fails(&["logits", text(&converted), "--tokens", "5"], "layers.mixer");
    std::fs::write(&description, format!("{{\"base\": \"{}\", \"layers\": []}}", text(&converted))).unwrap();
    fails(&["logits", text(&converted), "--tokens", "5"], "field `base`");
    let none = json(&["convert", model, "--to", "gdn", "--prompts", file, "--steps", "2", "--threshold", "0"]);
    assert!(none["path"].as_array().unwrap().is_empty());
    assert_eq!(none["test"][0], none["test"][1], "nothing was replaced");
}
