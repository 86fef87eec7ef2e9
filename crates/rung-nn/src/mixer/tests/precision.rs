//! Every mixer in `CASES` again, with quantised states and attention outputs.

use std::collections::BTreeSet;

use rung_engine::{Native, Ops, Parameters};

use super::{BATCH, Built, CASES, WIDTH, assert_close, build_within, input, run, scalar};
use crate::mixer::TokenMixer;
use crate::precision::Precision;

#[test]
fn rounding_to_many_bits_changes_nothing() {
    let time = 9;
    for &(text, positions) in CASES.iter().filter(|(text, _)| *text != "none") {
        let outcome = |precision| {
            let Built { mixer, mut weights } = build_within::<f64>(text, positions, 4, precision);
            let x = weights.add("x", &[BATCH, time, WIDTH], input(time, 1.0)).id();
            let ops = Native::new();
            ops.bind(&weights);
            let (out, _) = run(&ops, &mixer, &ops.parameter(x), &[time]);
            ops.backward(&scalar(&ops, &mixer, &ops.parameter(x)));
            (out, ops.gradient())
        };
        let (expected, gradient) = outcome(Precision::default());
        let (found, rounded_gradient) = outcome(Precision::bits(24, 32.0));
        assert_close(&found, &expected, 1e-3, text);
        assert_close(&rounded_gradient, &gradient, 1e-3, &format!("gradient of {text}"));
    }
}

#[test]
fn a_state_of_p_bits_takes_at_most_two_to_the_p_values() {
    let time = 9;
    for &(text, positions) in CASES {
        for bits in [1, 4] {
            let Built { mixer, weights } = build_within::<f32>(text, positions, 4, Precision::bits(bits, 1.0));
            let ops = Native::new();
            ops.bind_frozen(&weights);
            let x = ops.constant(&[BATCH, time, WIDTH], &input(time, 1.0));
            let (mut state, mut seen) = (None, BTreeSet::new());
            for token in 0..time {
                let (_, next) = mixer.forward(&ops, &ops.slice(&x, 1, token..token + 1), state.as_ref());
                seen.extend(next.tensors.iter().flatten().flat_map(|part| ops.values(part)).map(f32::to_bits));
                state = Some(next);
            }
            assert!(seen.len() <= 1 << bits, "{text}: {} values in {bits} bits", seen.len());
        }
    }
}

/// Products of one row and of many may add up in another order, so outputs agree only nearly; states are rounded, and agree
/// in every bit.
#[test]
fn steps_and_the_whole_leave_the_same_state_bit_for_bit() {
    let time = 13;
    for &(text, positions) in CASES {
        let Built { mixer, weights } = build_within::<f64>(text, positions, 4, Precision::bits(6, 2.0));
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let x = ops.constant(&[BATCH, time, WIDTH], &input(time, 1.0));
        let (expected, whole) = run(&ops, &mixer, &x, &[time]);
        for segments in [vec![1; time], vec![5, 1, 7]] {
            let (found, state) = run(&ops, &mixer, &x, &segments);
            assert_close(&found, &expected, 1e-10, text);
            for (a, b) in state.tensors.iter().flatten().zip(whole.tensors.iter().flatten()) {
                assert_eq!(ops.values(a), ops.values(b), "{text}");
            }
        }
    }
}

/// Three bits leave little of the numbers, and still every weight that mattered gets a gradient. The range is small, so that small
/// states do not round to zero, whose decay has no gradient.
#[test]
fn gradients_pass_through_coarse_rounding() {
    let time = 9;
    for &(text, positions) in CASES.iter().filter(|(text, _)| *text != "none") {
        let gradient = |precision| {
            let Built { mixer, weights } = build_within::<f64>(text, positions, 4, precision);
            let ops = Native::new();
            ops.bind(&weights);
            let x = ops.constant(&[BATCH, time, WIDTH], &input(time, 1.0));
            ops.backward(&scalar(&ops, &mixer, &x));
            (ops.gradient(), weights)
        };
        let with_gradient = |(gradient, weights): &(Vec<f64>, Parameters<f64>)| -> Vec<String> {
            let entries = weights.entries().map(|(_, entry)| entry);
            let nonzero = entries.filter(|entry| gradient[entry.range.clone()].iter().any(|gradient| *gradient != 0.0));
            nonzero.map(|entry| entry.name.clone()).collect()
        };
        let coarse = gradient(Precision::bits(3, 0.02));
        assert!(coarse.0.iter().all(|gradient| gradient.is_finite()), "{text}");
        assert_eq!(with_gradient(&coarse), with_gradient(&gradient(Precision::default())), "{text}");
    }
}

/// Sums in accumulators of few bits: the same in steps and in one piece, other than exact sums, and with the gradient of exact ones.
#[test]
fn accumulators_of_few_bits_round_the_outcome_and_not_the_gradient() {
    let (time, positions) = (17, crate::position::Positions::None);
    let outcome = |bits: u32, segments: &[usize]| {
        let text = format!("full{{heads=2,kv=1,head=6,accumulator={bits}}}");
        let Built { mixer, weights } = build_within::<f64>(&text, positions, 4, Precision::default());
        let ops = Native::new();
        ops.bind(&weights);
        let x = ops.constant(&[BATCH, time, WIDTH], &input(time, 1.0));
        let (out, _) = run(&ops, &mixer, &x, segments);
        ops.backward(&ops.sum_all(&mixer.forward(&ops, &x, None).0));
        // The output projection is fed with what was rounded, so its gradient is another.
        let gradient = ops.gradient();
        let before = weights.entries().map(|(_, entry)| entry).filter(|entry| !entry.name.starts_with("o_proj"));
        (out, before.flat_map(|entry| gradient[entry.range.clone()].to_vec()).collect::<Vec<f64>>())
    };
    let (exact, gradient) = outcome(0, &[time]);
    for bits in [2, 5] {
        let (whole, own) = outcome(bits, &[time]);
        assert_close(&outcome(bits, &[5, 1, 11]).0, &whole, 1e-10, "in segments");
        assert_close(&own, &gradient, 1e-10, "gradient");
        assert!(whole.iter().zip(&exact).any(|(a, b)| (a - b).abs() > 1e-2), "{bits} bits leave their mark");
    }
    assert_close(&outcome(24, &[time]).0, &exact, 1e-3, "24 bits");
}

/// Two bits in each of eight channels: 16 bits of state, whatever the tokens, read before they are written; step form and whole form
/// agree in every bit.
#[test]
fn a_gated_recurrence_keeps_as_many_bits_as_its_facts_say() {
    const TEXT: &str = "gated{channels=8,bits=2}";
    let (time, positions) = (40, crate::position::Positions::None);
    let Built { mixer, weights } = build_within::<f32>(TEXT, positions, 4, Precision::default());
    let ops = Native::new();
    ops.bind_frozen(&weights);
    let x = ops.constant(&[BATCH, time, WIDTH], &input(time, 4.0));
    let (expected, whole) = run(&ops, &mixer, &x, &[time]);
    let (mut state, mut outputs, mut levels) = (None, Vec::new(), BTreeSet::new());
    for token in 0..time {
        let (out, next) = mixer.forward(&ops, &ops.slice(&x, 1, token..token + 1), state.as_ref());
        levels.extend(ops.values(next.tensors[0].as_ref().unwrap()).into_iter().map(f32::to_bits));
        outputs.push(out);
        state = Some(next);
    }
    let stepped: Vec<f64> = ops.values(&ops.concat(&outputs, 1)).into_iter().map(f64::from).collect();
    assert_close(&stepped, &expected, 1e-5, TEXT);
    let numbers = |state: &crate::mixer::State<_>| ops.values(state.tensors[0].as_ref().unwrap());
    let state = state.unwrap();
    assert_eq!(numbers(&state), numbers(&whole));
    assert_eq!(levels.len(), 4, "all four levels are used");
    let counted = state.numbers(&ops) as u128 * u128::from(levels.len().ilog2());
    assert_eq!((counted, super::resolve(TEXT).state_bits()), (16, 16));
    // The first token reads the empty state, which does not depend on it.
    let first = |scale: f64| {
        let x = ops.constant(&[BATCH, 1, WIDTH], &input(1, scale));
        ops.values(&mixer.forward(&ops, &x, None).1.tensors[0].clone().unwrap())
    };
    assert_ne!(first(4.0), first(-4.0), "what is written depends on the token");
}
