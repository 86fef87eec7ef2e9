//! Commands on an external checkpoint: a tiny Llama with random weights and a SentencePiece vocabulary.

mod common;

use std::path::PathBuf;

use common::{assert_fails, path_str, rung, scratch_directory};
use serde_json::Value;

fn model() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../rung-tokenizer/tests/sentencepiece.gguf")
}

const PROMPT_LINES: [&str; 6] = [
    "The river opens a window and the house crosses",
    "The teacher remembers a number and the island measures",
    "",
    "The garden finds a letter in winter and the engine writes",
    "The window follows the river",
    "The engine carries a house and the number",
];

/// Writes a file with five prompts.
fn write_prompts(name: &str) -> PathBuf {
    let path = scratch_directory(name).join("prompts.txt");
    std::fs::write(&path, PROMPT_LINES.join("\n")).unwrap();
    path
}

/// The output of a command with `--json`, which must succeed.
fn json(arguments: &[&str]) -> Value {
    let output = rung(&[arguments, &["--json"]].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn eval_measures_the_perplexity_of_the_logits() {
    let (model, file) = (model(), write_prompts("checkpoint-eval"));
    let output = rung(&["eval", path_str(&model), "--prompts", path_str(&file), "--json"]);
    let estimate = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(estimate.contains("eval: 5 prompts, ") && estimate.contains("1 pass over them"), "{estimate}");
    let evaluation: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (mut loss, mut count) = (0.0, 0);
    for line in PROMPT_LINES.iter().filter(|line| !line.is_empty()) {
        let tokens = json(&["generate", path_str(&model), "--prompt", line, "--count", "0"])["prompt_tokens"].clone();
        let tokens: Vec<usize> = tokens.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as usize).collect();
        let list = tokens.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let logits = json(&["logits", path_str(&model), "--tokens", &list]);
        for (row, next) in logits["logits"].as_array().unwrap().iter().zip(&tokens[1..]) {
            let row: Vec<f64> = row.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            loss += row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[*next];
            count += 1;
        }
    }
    let (group, mean) = (&evaluation["groups"][0], loss / f64::from(count));
    assert_eq!(group["accuracy"]["count"].as_i64(), Some(i64::from(count)));
    assert!((group["loss"].as_f64().unwrap() - mean).abs() < 1e-4, "{group} {mean}");
    assert!((group["perplexity"].as_f64().unwrap() - mean.exp()).abs() < 1e-2 * mean.exp());
}

#[test]
fn generate_continues_with_the_likeliest_tokens_of_the_logits() {
    let model = model();
    let generate = |more: &[&str]| json(&[&["generate", path_str(&model), "--count", "8"], more].concat());
    let ids = |value: &Value| -> Vec<u32> { serde_json::from_value(value.clone()).unwrap() };
    let greedy = generate(&["--prompt", PROMPT_LINES[0]]);
    let (prompt, tokens) = (ids(&greedy["prompt_tokens"]), ids(&greedy["tokens"]));
    let sequence = [&prompt[..], &tokens].concat();
    let list = sequence.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let logits = json(&["logits", path_str(&model), "--tokens", &list])["logits"].clone();
    let rows: Vec<Vec<f64>> = serde_json::from_value(logits).unwrap();
    assert_eq!(tokens.len(), 8);
    for (row, next) in rows[prompt.len() - 1..].iter().zip(&tokens) {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        assert!(largest - row[*next as usize] < 1e-4, "token {next}: {} of {largest}", row[*next as usize]);
    }
    // The text of the tokens is the rest of the prompt with them.
    let joined = prompt.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let from_ids = generate(&["--tokens", &joined]);
    assert_eq!((&from_ids["tokens"], &from_ids["text"]), (&greedy["tokens"], &greedy["text"]));
    assert!(greedy["text"].is_string());
    // The last token was sampled and not read.
    let cache = &greedy["cache"];
    assert_eq!(cache["tokens"].as_u64(), Some(sequence.len() as u64 - 1));
    assert_eq!(cache["bytes"], cache["planned_bytes"]);
    // Two layers, keys and values, two heads of 8 channels, four bytes each.
    assert_eq!(cache["bytes"].as_u64(), Some((sequence.len() as u64 - 1) * 2 * 2 * 16 * 4));

    let sampled =
        |seed: &str| generate(&["--prompt", PROMPT_LINES[0], "--temperature", "1.5", "--seed", seed])["tokens"].clone();
    assert_eq!(sampled("3"), sampled("3"), "the seed fixes the samples");
    let different = (0..8).filter(|seed| sampled(&seed.to_string()) != greedy["tokens"]).count();
    assert!(different >= 4, "{different} of 8 seeds differ from the likeliest tokens");
    let output = rung(&["generate", path_str(&model), "--tokens", "5,6", "--count", "2"]);
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(report.contains("cache of 3 tokens: 768 bytes, planned 768"), "{report}");
    assert_fails(&["generate", path_str(&model), "--tokens", "480"], "480");
    assert_fails(&["generate", path_str(&model), "--tokens", "5", "--temperature=-1"], "--temperature");
    assert_fails(&["generate", path_str(&model)], "found no tokens");
}

#[test]
fn analyses_run_on_prompts_of_a_file() {
    let (model, file) = (model(), write_prompts("checkpoint-analyze"));
    let analyze = |name: &str| json(&["analyze", name, path_str(&model), "--prompts", path_str(&file)]);
    let ablation = analyze("ablate");
    let variants = ablation["variants"].as_array().unwrap();
    // The variants: unchanged, without attention, without each of two layers, without feed-forward layers.
    assert_eq!(variants.len(), 5, "{ablation}");
    let logit_lens = analyze("logit_lens");
    let last_level = &logit_lens["scores"][2]["0"];
    let mean = last_level["loss"].as_f64().unwrap() / last_level["count"].as_f64().unwrap();
    assert!((mean - variants[0]["loss"]["0"].as_f64().unwrap()).abs() < 1e-5, "the last level is the network");
    let precision = analyze("precision");
    let steps = precision["steps"].as_array().unwrap();
    let loss = |index: usize| steps[index]["loss"].as_f64().unwrap();
    assert!((loss(0) - mean).abs() < 1e-4, "token by token is the same");
    assert!((loss(1) - loss(0)).abs() < 1e-2 && (loss(5) - loss(0)).abs() > (loss(1) - loss(0)).abs());
    let lens = analyze("lens");
    assert_eq!(lens["levels"].as_array().unwrap().len(), 3);
    assert!(lens["tokens"][1].as_str().unwrap().contains("The"), "{}", lens["tokens"]);
    assert_eq!(analyze("collapse")["levels"].as_array().unwrap().len(), 3);
    assert_eq!(analyze("diversity")["layers"].as_array().unwrap().len(), 2);
}

#[test]
fn inapplicable_commands_fail_with_a_clear_message() {
    let (model, file) = (model(), write_prompts("checkpoint-refused"));
    let (model, file) = (path_str(&model), path_str(&file));
    assert_fails(&["eval", model], "has no task: give --prompts FILE, with a prompt on each line, or --task SPEC");
    assert_fails(&["analyze", "ablate", model, "--prompts", "5"], "has no task");
    assert_fails(&["analyze", "state", model, "--prompts", file], "a causal network with a recurrent mixer");
    assert_fails(&["analyze", "probe", model, "--prompts", file], "a task spec");
    assert_fails(&["trace", model], "without registers and instances of a task: give --prompts FILE");
    assert_fails(&["falsify", model], "has no task: give --task SPEC");
    assert_fails(&["falsify", model, "--task", "funccomp{hops=1,m=2}", "--bits", "4"], "found an external checkpoint");
    assert_fails(&["falsify", "--stack", "full", "--task", "funccomp", "--shots", "1"], "which reads text");
    assert_fails(&["convert", model, "--to", "gdn"], "has no task");
    assert_fails(&["eval", model, "--prompts", "/nonexistent.txt"], "/nonexistent.txt");
    let empty = scratch_directory("checkpoint-empty").join("empty.txt");
    std::fs::write(&empty, "\n\n").unwrap();
    assert_fails(&["eval", model, "--prompts", path_str(&empty)], "found no prompts");
}

#[test]
fn trace_runs_on_a_prompt_and_convert_replaces_layers() {
    let (model, file) = (model(), write_prompts("checkpoint-convert"));
    let (model, file) = (path_str(&model), path_str(&file));
    let trace = json(&["trace", model, "--prompts", file]);
    assert_eq!(trace["layers"].as_array().unwrap().len(), 2);
    assert!(trace["mismatch"].as_f64().unwrap() < 1e-4, "{}", trace["mismatch"]);
    let arguments =
        ["convert", model, "--to", "gdn", "--prompts", file, "--steps", "20", "--threshold", "inf", "--replace", "2"];
    let conversion = json(&arguments);
    assert_eq!(conversion["path"].as_array().unwrap().len(), 2, "{conversion}");
    for layer in conversion["layers"].as_array().unwrap() {
        assert!(layer["after"].as_f64().unwrap() < layer["before"].as_f64().unwrap(), "{layer}");
    }
    let (folder, test_file) =
        (scratch_directory("checkpoint-converted"), scratch_directory("checkpoint-last").join("last.txt"));
    std::fs::write(&test_file, PROMPT_LINES[5]).unwrap();
    let converted = folder.join("out");
    json(&[&arguments[..], &["--out", path_str(&converted)]].concat());
    // The last of the five prompts is the test set.
    let perplexity =
        json(&["eval", path_str(&converted), "--prompts", path_str(&test_file)])["groups"][0]["perplexity"]
            .as_f64()
            .unwrap();
    assert!((perplexity / conversion["test"][1].as_f64().unwrap() - 1.0).abs() < 1e-4, "{perplexity} {conversion}");
    assert!((perplexity / conversion["test"][0].as_f64().unwrap() - 1.0).abs() > 1e-4, "two layers were replaced");
    let logits = |extra_args: &[&str]| {
        let rows =
            json(&[&["logits", path_str(&converted), "--tokens", "5,6,7,8"], extra_args].concat())["logits"].clone();
        let rows: Vec<Vec<f64>> = serde_json::from_value(rows).unwrap();
        rows.concat()
    };
    let (parallel, stepwise) = (logits(&[]), logits(&["--stepwise"]));
    assert!(
        parallel.iter().zip(&stepwise).all(|(a, b)| (a - b).abs() < 1e-4),
        "decoding token by token gives the same logits"
    );
    let description = converted.join("conversion.json");
    std::fs::write(&description, std::fs::read_to_string(&description).unwrap().replace("gdn{", "gone{")).unwrap();
    assert_fails(&["logits", path_str(&converted), "--tokens", "5"], "layers.mixer");
    std::fs::write(&description, format!("{{\"base\": \"{}\", \"layers\": []}}", path_str(&converted))).unwrap();
    assert_fails(&["logits", path_str(&converted), "--tokens", "5"], "field `base`");
    let unchanged = json(&["convert", model, "--to", "gdn", "--prompts", file, "--steps", "2", "--threshold", "0"]);
    assert!(unchanged["path"].as_array().unwrap().is_empty());
    assert_eq!(unchanged["test"][0], unchanged["test"][1], "nothing was replaced");
}

#[test]
fn falsify_finds_prompts_that_random_weights_cannot_answer() {
    let (model, folder) = (model(), scratch_directory("checkpoint-falsify"));
    let file = folder.join("witness.json");
    let arguments =
        ["falsify", path_str(&model), "--task", "funccomp{hops=2,m=2,n=[1]}", "--shots", "1", "--out", path_str(&file)];
    let output = json(&arguments);
    let witness = &output["witness"];
    assert_eq!(output["found"], true);
    // Two prompts that differ in one look-up and in nothing else, and one answer.
    let (prompts, changed) = (witness["prompts"].as_array().unwrap(), witness["changed"].as_u64().unwrap());
    let [first, second] = &prompts[..] else { panic!("{witness}") };
    let lines = |prompt: &Value| prompt.as_str().unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    let (first, second) = (lines(first), lines(second));
    let different: Vec<usize> = (0..first.len()).filter(|line| first[*line] != second[*line]).collect();
    let title = first[..different[0]].iter().rposition(|line| line.starts_with("Table")).unwrap();
    assert_eq!((different.len(), &first[title]), (2, &format!("Table {}", changed + 1)), "{first:?} {second:?}");
    assert_ne!(witness["answers"][0], witness["answers"][1]);
    assert_eq!(witness["outputs"][0], witness["outputs"][1]);
    assert_eq!(json(&["witness", "check", path_str(&file)])["holds"], true);
    // Every change of the file is rejected.
    let original = std::fs::read_to_string(&file).unwrap();
    let forged = folder.join("forged.json");
    for (from, to) in
        [(r#""index":0"#, r#""index":1"#), (r#""fingerprint":""#, r#""fingerprint":"0"#), ("Table 1", "Table 3")]
    {
        assert!(original.contains(from), "{from}");
        std::fs::write(&forged, original.replace(from, to)).unwrap();
        let output = rung(&["witness", "check", path_str(&forged)]);
        assert_eq!(output.status.code(), Some(1), "{to}");
    }
    let shown = String::from_utf8(rung(&["witness", "show", path_str(&file)]).stdout).unwrap();
    assert!(shown.contains("the answer ignores a changed look-up; measured"), "{shown}");
}

#[test]
fn falsify_finds_nothing_against_an_exported_construction() {
    let folder = scratch_directory("checkpoint-export");
    let [built, exported, longer] = ["u1", "u1-hf", "u1-longer"].map(|name| folder.join(name));
    json(&["construct", "U1", "--hops", "2", "--m", "4", "--n", "1", "--out", path_str(&built)]);
    json(&["export", path_str(&built), "--to", "hf", "--out", path_str(&exported)]);
    json(&["export", path_str(&built), "--to", "gguf", "--beyond", "1", "--out", path_str(&longer)]);
    let longer = longer.join("model.gguf");
    let search = |model: &PathBuf, task: &str, budget: &str| {
        let output =
            rung(&["falsify", path_str(model), "--task", task, "--style", "tokens", "--budget", budget, "--json"]);
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap())
    };
    let (code, output) = search(&exported, "funccomp{hops=2,m=4,n=[1]}", "1");
    assert_eq!(code, Some(1), "{output}");
    assert!(output["questions"].as_u64().unwrap() > 1);
    // One more table, which it does not look up.
    let (code, output) = search(&longer, "funccomp{hops=3,m=4,n=[1,1]}", "60");
    assert_eq!((code, output["witness"]["changed"].as_u64()), (Some(0), Some(2)), "{output}");
    assert_fails(
        &["falsify", path_str(&exported), "--task", "funccomp{hops=3,m=4,n=[1,1]}", "--style", "tokens"],
        "token `z3(0,0)=1` is not in the vocabulary",
    );
}
