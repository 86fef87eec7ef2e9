//! Weights act as their roles say.

use rung_engine::{Parameter, Role};

use super::*;

/// The weights of these roles.
fn with_roles(weights: &Parameters<f64>, roles: &[Role]) -> Vec<Parameter> {
    weights.entries().filter(|(_, entry)| roles.contains(&entry.role)).map(|(id, _)| id).collect()
}

/// The output for an input, after the weights of some roles were set to zero.
fn output_without(text: &str, positions: Positions, roles: &[Role]) -> (Vec<f64>, usize) {
    let MixerWithWeights { mixer, mut weights } = build::<f64>(text, positions, 4);
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
fn mixer_with_zero_output_weights_outputs_zero() {
    for &(text, positions) in CASES {
        // These have no output projection.
        if matches!(text, "conv{taps=1,gated=no}") || matches!(resolve(text).name(), "none" | "shift") {
            continue;
        }
        let (output, cleared) = output_without(text, positions, &[Role::Output, Role::OutputBias]);
        assert!(cleared > 0, "{text} has no output weights");
        assert!(output.iter().all(|value| *value == 0.0), "{text} has an output without output weights");
    }
}

#[test]
fn attention_with_zero_values_outputs_zero_and_with_zero_queries_is_uniform() {
    for text in ["full", "window{size=4}", "moba{block=2,top=2}", "linear"] {
        let (output, _) = output_without(text, Positions::None, &[Role::Value]);
        assert!(output.iter().all(|value| *value == 0.0), "{text}");
    }
    let (without_queries, _) = output_without("full", Positions::None, &[Role::Query]);
    let (without_keys, _) = output_without("full", Positions::None, &[Role::Key]);
    assert_close(&without_queries, &without_keys, 1e-12, "all scores are zero");
    assert!(without_queries.iter().any(|value| *value != 0.0));
}
