//! Every mixer of [`CASES`] with rounded states and messages.

use std::collections::BTreeSet;

use rung_engine::{Native, Ops, Parameters};

use super::{
    BATCH, CASES, MixerWithWeights, WIDTH, assert_close, build_with_precision, input, run, weighted_sum_of_results,
};
use crate::mixer::TokenMixer;
use crate::precision::SimulatedPrecision;

#[test]
fn rounding_to_many_bits_hardly_changes_outputs_and_gradients() {
    let time = 9;
    for &(text, positions) in CASES.iter().filter(|(text, _)| *text != "none") {
        let output_and_gradient = |precision| {
            let MixerWithWeights { mixer, mut weights } = build_with_precision::<f64>(text, positions, 4, precision);
            let x = weights.add("x", &[BATCH, time, WIDTH], input(time, 1.0)).id();
            let ops = Native::new();
            ops.bind(&weights);
            let (out, _) = run(&ops, &mixer, &ops.parameter(x), &[time]);
            ops.backward(&weighted_sum_of_results(&ops, &mixer, &ops.parameter(x)));
            (out, ops.gradient())
        };
        let (expected, gradient) = output_and_gradient(SimulatedPrecision::default());
        let (actual, rounded_gradient) = output_and_gradient(SimulatedPrecision::bits(24, 32.0));
        assert_close(&actual, &expected, 1e-3, text);
        assert_close(&rounded_gradient, &gradient, 1e-3, &format!("gradient of {text}"));
    }
}

#[test]
fn state_of_p_bits_has_at_most_two_to_the_p_distinct_values() {
    let time = 9;
    for &(text, positions) in CASES {
        for bits in [1, 4] {
            let MixerWithWeights { mixer, weights } =
                build_with_precision::<f32>(text, positions, 4, SimulatedPrecision::bits(bits, 1.0));
            let ops = Native::new();
            ops.bind_frozen(&weights);
            let x = ops.constant(&[BATCH, time, WIDTH], &input(time, 1.0));
            let (mut state, mut distinct) = (None, BTreeSet::new());
            for token in 0..time {
                let (_, next) = mixer.forward(&ops, &ops.slice(&x, 1, token..token + 1), state.as_ref());
                distinct.extend(next.tensors.iter().flatten().flat_map(|tensor| ops.values(tensor)).map(f32::to_bits));
                state = Some(next);
            }
            assert!(distinct.len() <= 1 << bits, "{text}: {} values in {bits} bits", distinct.len());
        }
    }
}

/// Matrix products of one row and of many rows may sum in different orders, so that outputs agree approximately; states are rounded, and
/// agree bit for bit.
#[test]
fn rounded_state_does_not_depend_on_spans() {
    let time = 13;
    for &(text, positions) in CASES {
        let MixerWithWeights { mixer, weights } =
            build_with_precision::<f64>(text, positions, 4, SimulatedPrecision::bits(6, 2.0));
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let x = ops.constant(&[BATCH, time, WIDTH], &input(time, 1.0));
        let (expected, expected_state) = run(&ops, &mixer, &x, &[time]);
        for spans in [vec![1; time], vec![5, 1, 7]] {
            let (actual, state) = run(&ops, &mixer, &x, &spans);
            assert_close(&actual, &expected, 1e-10, text);
            for (a, b) in state.tensors.iter().flatten().zip(expected_state.tensors.iter().flatten()) {
                assert_eq!(ops.values(a), ops.values(b), "{text}");
            }
        }
    }
}

/// With three bits, every weight that has a gradient without rounding still has one. The range is small, so that small states do not
/// round to zero, where the decay has no gradient.
#[test]
fn gradients_pass_through_coarse_rounding() {
    let time = 9;
    for &(text, positions) in CASES.iter().filter(|(text, _)| *text != "none") {
        let gradient = |precision| {
            let MixerWithWeights { mixer, weights } = build_with_precision::<f64>(text, positions, 4, precision);
            let ops = Native::new();
            ops.bind(&weights);
            let x = ops.constant(&[BATCH, time, WIDTH], &input(time, 1.0));
            ops.backward(&weighted_sum_of_results(&ops, &mixer, &x));
            (ops.gradient(), weights)
        };
        let with_gradient = |(gradient, weights): &(Vec<f64>, Parameters<f64>)| -> Vec<String> {
            let entries = weights.entries().map(|(_, entry)| entry);
            let nonzero = entries.filter(|entry| gradient[entry.range.clone()].iter().any(|gradient| *gradient != 0.0));
            nonzero.map(|entry| entry.name.clone()).collect()
        };
        let coarse = gradient(SimulatedPrecision::bits(3, 0.02));
        assert!(coarse.0.iter().all(|gradient| gradient.is_finite()), "{text}");
        assert_eq!(with_gradient(&coarse), with_gradient(&gradient(SimulatedPrecision::default())), "{text}");
    }
}

/// Sums in low-precision accumulators do not depend on spans, differ from exact sums, and have the gradient of exact sums.
#[test]
fn low_precision_accumulators_round_outputs_but_not_gradients() {
    let (time, positions) = (17, crate::position::Positions::None);
    let output_and_gradient = |bits: u32, spans: &[usize]| {
        let text = format!("full{{heads=2,kv=1,head=6,accumulator={bits}}}");
        let MixerWithWeights { mixer, weights } =
            build_with_precision::<f64>(&text, positions, 4, SimulatedPrecision::default());
        let ops = Native::new();
        ops.bind(&weights);
        let x = ops.constant(&[BATCH, time, WIDTH], &input(time, 1.0));
        let (out, _) = run(&ops, &mixer, &x, spans);
        ops.backward(&ops.sum_all(&mixer.forward(&ops, &x, None).0));
        // The input of the output projection is rounded, so that its gradient differs.
        let gradient = ops.gradient();
        let other_weights = weights.entries().map(|(_, entry)| entry).filter(|entry| !entry.name.starts_with("o_proj"));
        (out, other_weights.flat_map(|entry| gradient[entry.range.clone()].to_vec()).collect::<Vec<f64>>())
    };
    let (exact, gradient) = output_and_gradient(0, &[time]);
    for bits in [2, 5] {
        let (rounded, rounded_gradient) = output_and_gradient(bits, &[time]);
        assert_close(&output_and_gradient(bits, &[5, 1, 11]).0, &rounded, 1e-10, "in spans");
        assert_close(&rounded_gradient, &gradient, 1e-10, "gradient");
        assert!(rounded.iter().zip(&exact).any(|(a, b)| (a - b).abs() > 1e-2), "{bits} bits change the output");
    }
    assert_close(&output_and_gradient(24, &[time]).0, &exact, 1e-3, "24 bits");
}

/// Eight channels of two bits are 16 bits of state. States agree bit for bit between one span and single tokens.
#[test]
fn gated_recurrence_has_the_state_bits_of_the_plan() {
    const TEXT: &str = "gated{channels=8,bits=2}";
    let (time, positions) = (40, crate::position::Positions::None);
    let MixerWithWeights { mixer, weights } =
        build_with_precision::<f32>(TEXT, positions, 4, SimulatedPrecision::default());
    let ops = Native::new();
    ops.bind_frozen(&weights);
    let x = ops.constant(&[BATCH, time, WIDTH], &input(time, 4.0));
    let (expected, expected_state) = run(&ops, &mixer, &x, &[time]);
    let (mut state, mut outputs, mut levels) = (None, Vec::new(), BTreeSet::new());
    for token in 0..time {
        let (out, next) = mixer.forward(&ops, &ops.slice(&x, 1, token..token + 1), state.as_ref());
        levels.extend(ops.values(next.tensors[0].as_ref().unwrap()).into_iter().map(f32::to_bits));
        outputs.push(out);
        state = Some(next);
    }
    let actual: Vec<f64> = ops.values(&ops.concat(&outputs, 1)).into_iter().map(f64::from).collect();
    assert_close(&actual, &expected, 1e-5, TEXT);
    let state_values = |state: &crate::mixer::State<_>| ops.values(state.tensors[0].as_ref().unwrap());
    let state = state.unwrap();
    assert_eq!(state_values(&state), state_values(&expected_state));
    assert_eq!(levels.len(), 4, "all four levels are used");
    let state_bits = state.element_count(&ops) as u128 * u128::from(levels.len().ilog2());
    assert_eq!((state_bits, super::resolve(TEXT).state_bits()), (16, 16));
    let state_after_one_token = |scale: f64| {
        let x = ops.constant(&[BATCH, 1, WIDTH], &input(1, scale));
        ops.values(&mixer.forward(&ops, &x, None).1.tensors[0].clone().unwrap())
    };
    assert_ne!(state_after_one_token(4.0), state_after_one_token(-4.0), "the state depends on the token");
}
