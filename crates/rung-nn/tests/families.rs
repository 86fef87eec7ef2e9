//! External checkpoints: tiny models created by transformers, whose logits are compared with ours.

use std::path::{Path, PathBuf};

use rung_engine::{Native, Ops, Parameters};
use rung_nn::Model;
use rung_nn::families::{Checkpoint, open};

struct Expected {
    class: String,
    tokens: Vec<u32>,
    logits: Vec<Vec<f64>>,
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/families")
}

fn read_expected(folder: &Path) -> Expected {
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let row = |row: &serde_json::Value| row.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    Expected {
        class: value["class"].as_str().unwrap().to_owned(),
        tokens: value["tokens"].as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as u32).collect(),
        logits: value["logits"].as_array().unwrap().iter().map(row).collect(),
    }
}

/// Logits of one forward pass over all tokens.
fn parallel_logits(model: &Model, weights: &Parameters<f32>, tokens: &[u32]) -> Vec<f32> {
    let ops = Native::new();
    ops.bind_frozen(weights);
    let (hidden, _) = model.forward(&ops, tokens, 1, None).unwrap();
    ops.values(&model.logits(&ops, &hidden))
}

/// Logits of one forward pass per token, each from the state before it.
fn stepwise_logits(model: &Model, weights: &Parameters<f32>, tokens: &[u32]) -> Vec<f32> {
    let ops = Native::new();
    ops.bind_frozen(weights);
    let (mut state, mut logits) = (None, Vec::new());
    for token in tokens {
        let (hidden, next) = model.forward(&ops, &[*token], 1, state.as_ref()).unwrap();
        logits.extend(ops.values(&model.logits(&ops, &hidden)));
        state = Some(next);
    }
    logits
}

/// The largest difference, relative to the largest logit.
fn relative_difference(actual: &[f32], expected: &[Vec<f64>]) -> f64 {
    let expected: Vec<f64> = expected.iter().flatten().copied().collect();
    assert_eq!(actual.len(), expected.len());
    let largest = expected.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
    let differences = actual.iter().zip(&expected).map(|(actual, expected)| (f64::from(*actual) - expected).abs());
    differences.fold(0.0, f64::max) / largest
}

fn cases() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    folders
}

#[test]
fn parallel_and_stepwise_logits_equal_those_of_transformers() {
    let mut failures = Vec::new();
    for path in cases() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let expected = read_expected(&path);
        let Checkpoint { model, weights, .. } = match open::<f32>(&path) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                failures.push(format!("{name}: {error}"));
                continue;
            }
        };
        let parallel = relative_difference(&parallel_logits(&model, &weights, &expected.tokens), &expected.logits);
        let stepwise = relative_difference(&stepwise_logits(&model, &weights, &expected.tokens), &expected.logits);
        println!("| {name} | {} | {parallel:.1e} | {stepwise:.1e} |", expected.class);
        if !(parallel < 1e-4 && stepwise < 1e-4) {
            failures.push(format!("{name}: all at once {parallel:.2e}, token by token {stepwise:.2e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn logits_differ_if_one_tensor_is_reversed() {
    for path in cases() {
        let expected = read_expected(&path);
        let Checkpoint { model, mut weights, .. } = open::<f32>(&path).unwrap();
        let matrix = weights.entries().filter(|(_, entry)| entry.shape.len() == 2).nth(1).unwrap().0;
        weights.get_mut(matrix).reverse();
        let difference = relative_difference(&parallel_logits(&model, &weights, &expected.tokens), &expected.logits);
        assert!(difference > 1e-3, "{}: {difference:.1e}", path.display());
    }
}
