//! What weights say they are for is what they do.

use rung_engine::{Parameter, Role};

use super::*;

/// The weights of these roles.
fn with_roles(weights: &Parameters<f64>, roles: &[Role]) -> Vec<Parameter> {
    weights.entries().filter(|(_, entry)| roles.contains(&entry.role)).map(|(id, _)| id).collect()
}

/// The output for an input, after the weights of some roles were set to zero.
fn output_without(text: &str, positions: Positions, roles: &[Role]) -> (Vec<f64>, usize) {
    let Built { mixer, mut weights } = build::<f64>(text, positions, 4);
    let cleared = with_roles(&weights, roles);
    for &id in &cleared {
        weights.get_mut(id).fill(0.0);
    }
    let ops = Native::new();
    ops.bind_frozen(&weights);
    let x = ops.constant(&[BATCH, 9, WIDTH], &input::<f64>(9, 1.0));
    (run(&ops, &mixer, &x, &[9]).0, cleared.len())
}

#[test]
fn a_mixer_without_its_output_weights_writes_nothing() {
    for &(text, positions) in CASES {
        // These have no projection: they add a convolution of the stream, the token before, or nothing.
        if matches!(text, "conv{taps=1,gated=no}") || matches!(resolve(text).name(), "none" | "shift") {
            continue;
        }
        let (output, cleared) = output_without(text, positions, &[Role::Output, Role::OutputBias]);
        assert!(cleared > 0, "{text} has no output weights");
        assert!(output.iter().all(|value| *value == 0.0), "{text} writes past its output weights");
    }
}

#[test]
fn attention_without_its_values_writes_nothing_and_without_queries_reads_evenly() {
    for text in ["full", "window{size=4}", "moba{block=2,top=2}", "linear"] {
        let (silent, _) = output_without(text, Positions::None, &[Role::Value]);
        assert!(silent.iter().all(|value| *value == 0.0), "{text}");
    }
    let (even, _) = output_without("full", Positions::None, &[Role::Query]);
    let (same, _) = output_without("full", Positions::None, &[Role::Key]);
    assert_close(&even, &same, 1e-12, "scores are zero either way");
    assert!(even.iter().any(|value| *value != 0.0));
}
