//! Checkpoints as GGUF files: their logits are compared with those of transformers, and their log-probabilities with those of llama.cpp.

use std::path::{Path, PathBuf};

use rung_nn::families::decode::{CheckpointDecoder, log_softmax};
use rung_nn::families::open;
use serde_json::Value;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn read_json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn largest_difference(a: impl IntoIterator<Item = f64>, b: &[f64]) -> f64 {
    a.into_iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn gguf_logits_equal_those_of_transformers_and_llama_cpp() {
    let mut failures = Vec::new();
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(fixtures().join("gguf")).unwrap().map(|x| x.unwrap().path()).collect();
    files.sort();
    for path in files.iter().filter(|path| path.extension().is_some_and(|ending| ending == "gguf")) {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let expected = read_json(&fixtures().join("families").join(&name).join("expected.json"));
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
        let expected_logits: Vec<f64> = rows.concat();
        assert_eq!(logits.len(), expected_logits.len(), "{name}");
        let largest = expected_logits.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
        let transformers_difference =
            largest_difference(logits.iter().map(|x| f64::from(*x)), &expected_logits) / largest;
        let mut llama_difference = 0.0_f64;
        for answer in read_json(&path.with_extension("json"))["answers"].as_array().unwrap() {
            let row = answer["length"].as_u64().unwrap() as usize - 1;
            let width = rows[row].len();
            let log_probabilities = log_softmax(&logits[row * width..(row + 1) * width]);
            llama_difference =
                llama_difference.max(largest_difference(log_probabilities, &numbers(&answer["logprobs"])));
        }
        println!("| {name} | {transformers_difference:.1e} | {llama_difference:.1e} |");
        // llama.cpp looks Gemma's GELU up in a table of half-precision numbers.
        let llama_tolerance = if name.starts_with("gemma") { 4e-3 } else { 1e-4 };
        if !(transformers_difference < 1e-4 && llama_difference < llama_tolerance) {
            failures
                .push(format!("{name}: transformers {transformers_difference:.2e}, llama.cpp {llama_difference:.2e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Where `text` starts in `bytes`.
fn offset_of(bytes: &[u8], text: &str) -> usize {
    bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap()
}

#[test]
fn missing_unused_and_misshapen_tensors_are_named() {
    let original = std::fs::read(fixtures().join("gguf/llama-llama3.gguf")).unwrap();
    let path = std::env::temp_dir().join(format!("rung-tensors-{}.gguf", std::process::id()));
    let error_of = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let error = open::<f32>(&path).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("rung-tensors"), "{error}");
        error
    };
    let renamed = |from: &str, to: &str| {
        let (mut bytes, offset) = (original.clone(), offset_of(&original, from));
        bytes[offset..offset + to.len()].copy_from_slice(to.as_bytes());
        error_of(&bytes)
    };
    let missing = renamed("blk.1.attn_q.weight", "blk.9.attn_q.weight");
    assert!(missing.contains("blk.1.attn_q.weight") && missing.contains("[48, 32]"), "{missing}");
    // Without this tensor the frequencies are not divided, so that it is missing is no error, but the other one is left over.
    let unused = renamed("rope_freqs.weight", "rope_other.weight");
    assert!(unused.contains("rope_other.weight") && unused.contains("[6]"), "{unused}");
    let unknown = renamed("llama", "lxama");
    assert!(unknown.contains("lxama") && unknown.contains("gemma3"), "{unknown}");
    // After the name: the number of dimensions, and each of them.
    let name = "blk.0.ffn_gate.weight";
    let dimensions = offset_of(&original, name) + name.len() + 4;
    let mut bytes = original.clone();
    bytes[dimensions..dimensions + 16].rotate_left(8);
    let misshapen = error_of(&bytes);
    for part in [name, "[32, 48]", "[48, 32]"] {
        assert!(misshapen.contains(part), "{misshapen}");
    }
    std::fs::remove_file(&path).ok();
}
