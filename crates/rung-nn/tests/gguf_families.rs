//! State-space checkpoints as GGUF files, held to transformers' logits and to llama.cpp's log-probabilities.

use std::path::{Path, PathBuf};

use rung_nn::families::decode::{CheckpointDecoder, log_softmax};
use rung_nn::families::open;
use serde_json::Value;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn largest_difference(a: impl IntoIterator<Item = f64>, b: &[f64]) -> f64 {
    a.into_iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn gguf_files_give_what_transformers_and_llama_cpp_give() {
    let mut failures = Vec::new();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(fixtures().join("gguf")).unwrap().map(|x| x.unwrap().path()).collect();
    files.sort();
    for path in files.iter().filter(|path| path.extension().is_some_and(|ending| ending == "gguf")) {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let expected = read(&fixtures().join("families").join(&name).join("expected.json"));
        let tokens: Vec<u32> = numbers(&expected["tokens"]).into_iter().map(|token| token as u32).collect();
        let rows: Vec<Vec<f64>> = expected["logits"].as_array().unwrap().iter().map(numbers).collect();
        let checkpoint = match open::<f32>(path) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                failures.push(format!("{name}: {error}"));
                continue;
            }
        };
        let logits = CheckpointDecoder::new(&checkpoint.model, &checkpoint.weights, 1).logits(&tokens).unwrap();
        let flat: Vec<f64> = rows.concat();
        assert_eq!(logits.len(), flat.len(), "{name}");
        let largest = flat.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
        let apart = largest_difference(logits.iter().map(|x| f64::from(*x)), &flat) / largest;
        let mut apart_from_llama = 0.0_f64;
        for answer in read(&path.with_extension("json"))["answers"].as_array().unwrap() {
            let row = answer["length"].as_u64().unwrap() as usize - 1;
            let width = rows[row].len();
            let ours = log_softmax(&logits[row * width..(row + 1) * width]);
            apart_from_llama = apart_from_llama.max(largest_difference(ours, &numbers(&answer["logprobs"])));
        }
        println!("| {name} | {apart:.1e} | {apart_from_llama:.1e} |");
        if !(apart < 1e-4 && apart_from_llama < 1e-4) {
            failures.push(format!("{name}: transformers {apart:.2e}, llama.cpp {apart_from_llama:.2e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
