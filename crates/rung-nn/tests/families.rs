//! Checkpoints of other programs: tiny models made by transformers, with the logits that it gives.

use std::path::{Path, PathBuf};

use rung_engine::{Native, Ops, Parameters};
use rung_nn::Model;
use rung_nn::families::{Checkpoint, open};

struct Expected {
    class: String,
    tokens: Vec<u32>,
    logits: Vec<Vec<f64>>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/families")
}

fn expected(folder: &Path) -> Expected {
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let row = |row: &serde_json::Value| row.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    Expected {
        class: value["class"].as_str().unwrap().to_owned(),
        tokens: value["tokens"].as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as u32).collect(),
        logits: value["logits"].as_array().unwrap().iter().map(row).collect(),
    }
}

/// Logits of the whole prompt.
fn whole(model: &Model, weights: &Parameters<f32>, tokens: &[u32]) -> Vec<f32> {
    let ops = Native::new();
    ops.bind_frozen(weights);
    let (hidden, _) = model.forward(&ops, tokens, 1, None).unwrap();
    ops.values(&model.logits(&ops, &hidden))
}

/// Logits token by token, from the state before each.
fn stepwise(model: &Model, weights: &Parameters<f32>, tokens: &[u32]) -> Vec<f32> {
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
fn difference(found: &[f32], expected: &[Vec<f64>]) -> f64 {
    let expected: Vec<f64> = expected.iter().flatten().copied().collect();
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0_f64, |largest, x| largest.max(x.abs()));
    let apart = found.iter().zip(&expected).map(|(found, expected)| (f64::from(*found) - expected).abs());
    apart.fold(0.0, f64::max) / largest
}

fn cases() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

#[test]
fn logits_are_those_of_transformers_whole_and_token_by_token() {
    let mut failures = Vec::new();
    for path in cases() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let expected = expected(&path);
        let Checkpoint { model, weights, .. } = match open::<f32>(&path) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                failures.push(format!("{name}: {error}"));
                continue;
            }
        };
        let together = difference(&whole(&model, &weights, &expected.tokens), &expected.logits);
        let apart = difference(&stepwise(&model, &weights, &expected.tokens), &expected.logits);
        println!("| {name} | {} | {together:.1e} | {apart:.1e} |", expected.class);
        if !(together < 1e-4 && apart < 1e-4) {
            failures.push(format!("{name}: whole {together:.2e}, token by token {apart:.2e}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn one_tensor_turned_around_is_noticed() {
    for path in cases() {
        let expected = expected(&path);
        let Checkpoint { model, mut weights, .. } = open::<f32>(&path).unwrap();
        let largest = weights.entries().filter(|(_, entry)| entry.shape.len() == 2).nth(1).unwrap().0;
        weights.get_mut(largest).reverse();
        let apart = difference(&whole(&model, &weights, &expected.tokens), &expected.logits);
        assert!(apart > 1e-3, "{}: {apart:.1e}", path.display());
    }
}
