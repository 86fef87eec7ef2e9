//! States rounded to few bits (the p of the bounds): the recurrences and attention that simulate them.

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

/// Variants of the recurrence: columns of the log-decay (0 for none), and whether it is a delta rule.
const VARIANTS: [(usize, bool); 6] = [(0, false), (1, false), (KEY, false), (0, true), (1, true), (KEY, true)];

/// Inputs as weights: query, key, value, decay, beta.
fn inputs(decay_columns: usize) -> Parameters<f64> {
    let mut weights = Parameters::new();
    let mut counter = 0.0_f64;
    for (name, width) in [("query", KEY), ("key", KEY), ("value", VALUE), ("decay", decay_columns.max(1)), ("beta", 1)]
    {
        let values = (0..BATCH * TIME * HEADS * width).map(|_| {
            counter += 1.0;
            (counter * counter * 0.37).sin()
        });
        weights.add(name, &[BATCH, TIME, HEADS, width], values.collect());
    }
    weights
}

/// The outputs of all tokens, and the state after each span, with one call per span of tokens.
fn run(
    ops: &Native<f64>,
    weights: &Parameters<f64>,
    (decay_columns, delta): (usize, bool),
    rounding: Option<Rounding>,
    spans: &[usize],
) -> (Tensor<f64>, Vec<Tensor<f64>>) {
    let get = |name: &str| ops.parameter(weights.find(name).unwrap());
    let decay = ops.neg(&ops.softplus(&get("decay")));
    let beta = ops.sigmoid(&get("beta"));
    let (mut start, mut outputs, mut states) = (0, Vec::new(), Vec::<Tensor<f64>>::new());
    for &length in spans {
        let span = |x: &Tensor<f64>| ops.slice(x, 1, start..start + length);
        let flat = |x: &Tensor<f64>| ops.reshape(&span(x), &[BATCH, length, HEADS]);
        let (scalar, vector);
        let decay = match decay_columns {
            0 => Decay::None,
            1 => {
                scalar = flat(&decay);
                Decay::Scalar(&scalar)
            }
            _ => {
                vector = span(&decay);
                Decay::Vector(&vector)
            }
        };
        let beta = flat(&beta);
        let (out, state) = ops.recurrence(&Recurrence {
            query: &span(&get("query")),
            key: &ops.l2_norm(&span(&get("key")), 1e-6),
            value: &span(&get("value")),
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
fn rounding_to_many_bits_changes_little_and_to_few_bits_much() {
    for variant in VARIANTS {
        let weights = inputs(variant.0);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let values = |rounding| {
            let (out, states) = run(&ops, &weights, variant, rounding, &[TIME]);
            [ops.values(&out), ops.values(&states[0])].concat()
        };
        let exact = values(None);
        let distance = |bits| {
            let rounded = values(Some(Rounding { bits, range: 16.0 }));
            rounded.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        };
        assert!(distance(24) < 1e-4, "{variant:?}: {}", distance(24));
        assert!(distance(4) > 0.05, "{variant:?}: four bits should change the result, {}", distance(4));
    }
}

#[test]
fn a_state_of_p_bits_has_at_most_two_to_the_p_values() {
    for variant in VARIANTS {
        let weights = inputs(variant.0);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        for bits in [1, 2, 3, 5] {
            let (_, states) = run(&ops, &weights, variant, Some(Rounding { bits, range: 0.7 }), &[1; TIME]);
            let distinct: BTreeSet<u64> = states.iter().flat_map(|state| ops.values(state)).map(f64::to_bits).collect();
            assert!(distinct.len() <= 1 << bits, "{variant:?}: {} values in {bits} bits", distinct.len());
            assert!(distinct.len() > 1, "{variant:?}: a constant state");
        }
    }
}

#[test]
fn token_by_token_and_in_one_call_have_the_same_bits() {
    for variant in VARIANTS {
        let weights = inputs(variant.0);
        let ops = Native::new();
        ops.bind_frozen(&weights);
        let rounding = Some(Rounding { bits: 6, range: 2.0 });
        let bits = |spans: &[usize]| {
            let (out, states) = run(&ops, &weights, variant, rounding, spans);
            let all = [ops.values(&out), ops.values(states.last().unwrap())].concat();
            all.into_iter().map(f64::to_bits).collect::<Vec<_>>()
        };
        let one_call = bits(&[TIME]);
        assert_eq!(bits(&[1; TIME]), one_call, "{variant:?}");
        assert_eq!(bits(&[5, 1, 7]), one_call, "{variant:?}");
    }
}

#[test]
fn gradients_treat_the_rounding_as_the_identity() {
    // Without the delta rule the last state is linear in the values, so its gradient does not depend on the rounding.
    for decay_columns in [0, 1, KEY] {
        let weights = inputs(decay_columns);
        let gradient = |rounding| {
            let ops = Native::new();
            ops.bind(&weights);
            let (_, states) = run(&ops, &weights, (decay_columns, false), rounding, &[TIME]);
            ops.backward(&ops.sum_all(&states[0]));
            let gradient = ops.gradient();
            let value = weights.entry(weights.find("value").unwrap()).range.clone();
            gradient[value].to_vec()
        };
        let (rounded, exact) = (gradient(Some(Rounding { bits: 2, range: 0.5 })), gradient(None));
        assert!(exact.iter().any(|value| value.abs() > 0.1));
        for (actual, expected) in rounded.iter().zip(&exact) {
            assert!((actual - expected).abs() < 1e-12, "{decay_columns}: {actual}, expected {expected}");
        }
    }
}

/// Kernel and composed function of the gated scan have the same levels and the same gradient.
#[test]
fn gated_scan_kernel_and_composition_round_alike() {
    for bits in [1, 2, 5] {
        let rounding = Some(Rounding { bits, range: 1.0 });
        let run = |fused: bool| {
            let mut weights = Parameters::<f32>::new();
            let mut counter = 0.0_f32;
            let mut add = |name: &str, shape: &[usize]| {
                let values = (0..shape.iter().product()).map(|_| {
                    counter += 1.0;
                    (counter * counter * 0.37).sin()
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

/// Queries, keys, values and a bias for attention whose two query heads share one KV head.
fn attention_inputs(ops: &Native<f64>, queries: usize) -> [Tensor<f64>; 4] {
    let mut counter = 0.0_f64;
    let mut sample_tensor = |shape: &[usize]| {
        let values = (0..shape.iter().product()).map(|_| {
            counter += 1.0;
            2.0 * (counter * counter * 0.37).sin()
        });
        ops.constant(shape, &values.collect::<Vec<f64>>())
    };
    [
        sample_tensor(&[BATCH, queries, 2, KEY]),
        sample_tensor(&[BATCH, TIME, 1, KEY]),
        sample_tensor(&[BATCH, TIME, 1, VALUE]),
        sample_tensor(&[1, 2, queries, TIME]),
    ]
}

/// Kernel and composed function have the same levels for every mask, number of queries and number of bits. Without rounding both are
/// ordinary attention.
#[test]
fn left_to_right_attention_kernel_and_composition_agree() {
    let ops = Native::<f64>::new();
    for (queries, mask) in [
        (TIME, AttentionMask::Causal),
        (TIME, AttentionMask::Window(4)),
        (3, AttentionMask::Causal),
        (TIME, AttentionMask::None),
    ] {
        let [query, key, value, score_bias] = attention_inputs(&ops, queries);
        let attention =
            AttentionInputs { query: &query, key: &key, value: &value, bias: Some(&score_bias), mask, scale: 0.8 };
        for bits in [Some(1), Some(3), Some(8), None] {
            let rounding = bits.map(|bits| AccumulatorRounding {
                mean: Rounding { bits, range: 2.0 },
                log_sum: Rounding { bits, range: 16.0 },
            });
            let actual = ops.values(&ops.left_to_right_attention(&attention, rounding));
            let composition = ops.values(&composed::left_to_right_attention(&ops, &attention, rounding));
            let agree = |left: &[f64], right: &[f64]| left.iter().zip(right).all(|(a, b)| (a - b).abs() <= 1e-9);
            assert!(agree(&actual, &composition), "{bits:?} bits, {mask:?}");
            let ordinary = ops.values(&ops.attention(&attention));
            match bits {
                None => assert!(agree(&actual, &ordinary), "{mask:?}"),
                Some(bits) => {
                    let levels: BTreeSet<u64> = actual.iter().map(|value| value.to_bits()).collect();
                    assert!(levels.len() > 1 && levels.len() <= 1 << bits, "{} levels in {bits} bits", levels.len());
                }
            }
        }
    }
}

/// A query reads from a prefix only through its accumulators: prefixes with the same accumulators give the same output.
#[test]
fn left_to_right_attention_depends_on_rounded_accumulators_only() {
    let ops = Native::<f64>::new();
    let rounding =
        Some(AccumulatorRounding { mean: Rounding { bits: 2, range: 2.0 }, log_sum: Rounding { bits: 2, range: 8.0 } });
    let [query, key, value, _] = attention_inputs(&ops, 1);
    let attend = |key_count: usize, value: &Tensor<f64>| {
        let prefix = |x: &Tensor<f64>| ops.slice(x, 1, 0..key_count);
        let (key, value) = (prefix(&key), prefix(value));
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
    // These values differ by much less than a level and round alike.
    let close_value = ops.affine(&value, 1.0, 1e-3);
    for key_count in 1..=TIME {
        assert_eq!(attend(key_count, &value), attend(key_count, &close_value), "{key_count} keys");
    }
    assert_ne!(attend(TIME, &value), attend(TIME, &ops.affine(&value, 1.0, 1.5)));
}
