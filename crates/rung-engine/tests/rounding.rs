//! States in few bits: what the theory calls p, simulated inside of a recurrence.

use rung_engine::{
    AccumulatorRounding, AttentionInputs, AttentionMask, Decay, GatedScan, Native, Ops, Parameters, Recurrence,
    Rounding, Tensor, composed,
};
use std::collections::BTreeSet;

const BATCH: usize = 2;
const TIME: usize = 13;
const HEADS: usize = 2;
const KEY: usize = 3;
const VALUE: usize = 4;

/// How the state changes: numbers per log-decay (0 for none), and whether the write is a delta step.
const KINDS: [(usize, bool); 6] = [(0, false), (1, false), (KEY, false), (0, true), (1, true), (KEY, true)];

/// Inputs as weights: query, key, value, decay, beta.
fn inputs(fading: usize) -> Parameters<f64> {
    let mut weights = Parameters::new();
    let mut turn = 0.0_f64;
    for (name, width) in [("query", KEY), ("key", KEY), ("value", VALUE), ("decay", fading.max(1)), ("beta", 1)] {
        let values = (0..BATCH * TIME * HEADS * width).map(|_| {
            turn += 1.0;
            (turn * turn * 0.37).sin()
        });
        weights.add(name, &[BATCH, TIME, HEADS, width], values.collect());
    }
    weights
}

/// Outputs and last state over spans of tokens, and the state after each span.
fn run(
    ops: &Native<f64>,
    weights: &Parameters<f64>,
    (fading, delta): (usize, bool),
    rounding: Option<Rounding>,
    spans: &[usize],
) -> (Tensor<f64>, Vec<Tensor<f64>>) {
    let get = |name: &str| ops.parameter(weights.find(name).unwrap());
    let decay = ops.neg(&ops.softplus(&get("decay")));
    let beta = ops.sigmoid(&get("beta"));
    let (mut start, mut outputs, mut states) = (0, Vec::new(), Vec::<Tensor<f64>>::new());
    for &length in spans {
        let part = |x: &Tensor<f64>| ops.slice(x, 1, start..start + length);
        let flat = |x: &Tensor<f64>| ops.reshape(&part(x), &[BATCH, length, HEADS]);
        let (scalar, vector);
        let decay = match fading {
            0 => Decay::None,
            1 => {
                scalar = flat(&decay);
                Decay::Scalar(&scalar)
            }
            _ => {
                vector = part(&decay);
                Decay::Vector(&vector)
            }
        };
        let beta = flat(&beta);
        let (out, state) = ops.recurrence(&Recurrence {
            query: &part(&get("query")),
            key: &ops.l2_norm(&part(&get("key")), 1e-6),
            value: &part(&get("value")),
            decay,
            beta: delta.then_some(&beta),
            state: states.last(),
            chunk: 4,
            rounding,
        });
        outputs.push(out);
        states.push(state);
        start += length;
    }
    (ops.concat(&outputs, 1), states)
}

#[test]
fn many_bits_are_as_good_as_none() {
    for kind in KINDS {
        let weights = inputs(kind.0);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let values = |rounding| {
            let (out, states) = run(&ops, &weights, kind, rounding, &[TIME]);
            [ops.values(&out), ops.values(&states[0])].concat()
        };
        let exact = values(None);
        let distance = |bits| {
            let rounded = values(Some(Rounding { bits, range: 16.0 }));
            rounded.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        };
        assert!(distance(24) < 1e-4, "{kind:?}: {}", distance(24));
        assert!(distance(4) > 0.05, "{kind:?}: four bits should be felt, {}", distance(4));
    }
}

#[test]
fn a_state_of_p_bits_takes_at_most_two_to_the_p_values() {
    for kind in KINDS {
        let weights = inputs(kind.0);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        for bits in [1, 2, 3, 5] {
            let (_, states) = run(&ops, &weights, kind, Some(Rounding { bits, range: 0.7 }), &[1; TIME]);
            let seen: BTreeSet<u64> = states.iter().flat_map(|state| ops.values(state)).map(f64::to_bits).collect();
            assert!(seen.len() <= 1 << bits, "{kind:?}: {} values in {bits} bits", seen.len());
            assert!(seen.len() > 1, "{kind:?}: a state that never moves");
        }
    }
}

#[test]
fn steps_are_the_whole_bit_for_bit() {
    for kind in KINDS {
        let weights = inputs(kind.0);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let rounding = Some(Rounding { bits: 6, range: 2.0 });
        let bits = |spans: &[usize]| {
            let (out, states) = run(&ops, &weights, kind, rounding, spans);
            let all = [ops.values(&out), ops.values(states.last().unwrap())].concat();
            all.into_iter().map(f64::to_bits).collect::<Vec<_>>()
        };
        let whole = bits(&[TIME]);
        assert_eq!(bits(&[1; TIME]), whole, "{kind:?}");
        assert_eq!(bits(&[5, 1, 7]), whole, "{kind:?}");
    }
}

#[test]
fn gradients_pass_straight_through_the_rounding() {
    // Without a delta step the last state is linear in what was written, so its gradient does not know of the rounding.
    for fading in [0, 1, KEY] {
        let weights = inputs(fading);
        let gradient = |rounding| {
            let ops = Native::new();
            ops.bind(&weights);
            let (_, states) = run(&ops, &weights, (fading, false), rounding, &[TIME]);
            ops.backward(&ops.sum_all(&states[0]));
            let gradient = ops.gradient();
            let value = weights.entry(weights.find("value").unwrap()).range.clone();
            gradient[value].to_vec()
        };
        let (straight, exact) = (gradient(Some(Rounding { bits: 2, range: 0.5 })), gradient(None));
        assert!(exact.iter().any(|value| value.abs() > 0.1));
        for (found, expected) in straight.iter().zip(&exact) {
            assert!((found - expected).abs() < 1e-12, "{fading}: {found}, expected {expected}");
        }
    }
}

/// Kernel and composed body of the gated scan: the same levels, the same gradient.
#[test]
fn a_gated_scan_rounds_to_the_same_levels_in_both_forms() {
    for bits in [1, 2, 5] {
        let rounding = Some(Rounding { bits, range: 1.0 });
        let run = |fused: bool| {
            let mut weights = Parameters::<f32>::new();
            let mut turn = 0.0_f32;
            let mut add = |name: &str, shape: &[usize]| {
                let values = (0..shape.iter().product()).map(|_| {
                    turn += 1.0;
                    (turn * turn * 0.37).sin()
                });
                weights.add(name, shape, values.collect()).id()
            };
            let ids =
                [add("value", &[BATCH, TIME, VALUE]), add("gate", &[BATCH, TIME, 1]), add("state", &[BATCH, 1, VALUE])];
            let ops = Native::new();
            ops.bind(&weights);
            let [value, gate, state] = ids.map(|id| ops.parameter(id));
            let (value, gate) = (ops.tanh(&value), ops.sigmoid(&gate));
            let inputs = GatedScan { value: &value, gate: &gate, state: &state, rounding };
            let states = if fused { ops.gated_scan(&inputs) } else { composed::gated_scan(&ops, &inputs) };
            let weighted = ops.mul(&states, &ops.add(&states, &value));
            ops.backward(&ops.sum_all(&weighted));
            (ops.values(&states), ops.gradient())
        };
        let ((states, gradient), (expected, composed)) = (run(true), run(false));
        assert_eq!(states, expected);
        let levels: BTreeSet<u32> = states.iter().map(|state| state.to_bits()).collect();
        assert!(levels.len() > 1 && levels.len() <= 1 << bits, "{levels:?}");
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * (1.0 + b.abs());
        assert!(gradient.iter().zip(&composed).all(close), "{gradient:?}, expected {composed:?}");
    }
}

/// Queries, keys, values and a bias of attention whose two query heads share one key head.
fn attention_inputs(ops: &Native<f64>, queries: usize) -> [Tensor<f64>; 4] {
    let mut turn = 0.0_f64;
    let mut draw = |shape: &[usize]| {
        let values = (0..shape.iter().product()).map(|_| {
            turn += 1.0;
            2.0 * (turn * turn * 0.37).sin()
        });
        ops.constant(shape, &values.collect::<Vec<f64>>())
    };
    [
        draw(&[BATCH, queries, 2, KEY]),
        draw(&[BATCH, TIME, 1, KEY]),
        draw(&[BATCH, TIME, 1, VALUE]),
        draw(&[1, 2, queries, TIME]),
    ]
}

/// Kernel and composed body: the same levels for every reach, number of queries and number of bits. Without rounding both are
/// ordinary attention.
#[test]
fn attention_from_left_to_right_agrees_in_all_its_forms() {
    let ops = Native::<f64>::new();
    for (queries, mask) in [
        (TIME, AttentionMask::Causal),
        (TIME, AttentionMask::Window(4)),
        (3, AttentionMask::Causal),
        (TIME, AttentionMask::None),
    ] {
        let [query, key, value, penalty] = attention_inputs(&ops, queries);
        let attention =
            AttentionInputs { query: &query, key: &key, value: &value, bias: Some(&penalty), mask, scale: 0.8 };
        for bits in [Some(1), Some(3), Some(8), None] {
            let rounding = bits.map(|bits| AccumulatorRounding {
                mean: Rounding { bits, range: 2.0 },
                log_sum: Rounding { bits, range: 16.0 },
            });
            let found = ops.values(&ops.left_to_right_attention(&attention, rounding));
            let slow = ops.values(&composed::left_to_right_attention(&ops, &attention, rounding));
            let near =
                |left: &[f64], right: &[f64], most: f64| left.iter().zip(right).all(|(a, b)| (a - b).abs() <= most);
            assert!(near(&found, &slow, 1e-9), "{bits:?} bits, {mask:?}");
            let usual = ops.values(&ops.attention(&attention));
            match bits {
                None => assert!(near(&found, &usual, 1e-9), "{mask:?}"),
                Some(bits) => {
                    let levels: BTreeSet<u64> = found.iter().map(|value| value.to_bits()).collect();
                    assert!(levels.len() > 1 && levels.len() <= 1 << bits, "{} levels in {bits} bits", levels.len());
                }
            }
        }
    }
}

/// What a query reads from a prefix is a function of its accumulators after it: prefixes that leave the same numbers are the same to it.
#[test]
fn accumulators_are_all_that_passes() {
    let ops = Native::<f64>::new();
    let rounding =
        Some(AccumulatorRounding { mean: Rounding { bits: 2, range: 2.0 }, log_sum: Rounding { bits: 2, range: 8.0 } });
    let [query, key, value, _] = attention_inputs(&ops, 1);
    let read = |first: usize, last: usize, value: &Tensor<f64>| {
        let part = |x: &Tensor<f64>| ops.slice(x, 1, first..last);
        let (key, value) = (part(&key), part(value));
        let attention = AttentionInputs {
            query: &query,
            key: &key,
            value: &value,
            bias: None,
            mask: AttentionMask::Causal,
            scale: 0.8,
        };
        ops.values(&ops.left_to_right_attention(&attention, rounding))
    };
    // Values that differ by less than half a level round alike, so nothing that follows can tell them apart.
    let nudged = ops.affine(&value, 1.0, 1e-3);
    let both = |last: usize| (read(0, last, &value), read(0, last, &nudged));
    let same = (1..=TIME).filter(|last| both(*last).0 == both(*last).1).count();
    assert_eq!(same, TIME);
    assert_ne!(read(0, TIME, &value), read(0, TIME, &ops.affine(&value, 1.0, 1.5)));
}
