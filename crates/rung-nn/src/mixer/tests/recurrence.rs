//! The recurrence that the mixers stand on, run directly, without a mixer, on chosen keys, betas and decays.
//!
//! Every case runs through the kernel and through the reference implementation.

use rung_engine::{Decay, Native, Ops, Parameters, Scalar, Tensor};
use rung_theory::task::seeded;

use super::{assert_close, draw};
use crate::mixer::State;
use crate::no_fused_kernels::NoFusedKernels;
use crate::parts::LinearRecurrence;

const HEADS: usize = 2;
const KEY: usize = 4;
const VALUE: usize = 3;

/// Numbers for one sequence; per token and head.
struct Inputs {
    time: usize,
    query: Vec<f64>,
    key: Vec<f64>,
    value: Vec<f64>,
    /// None, one per head, or one per key channel.
    decay: Vec<f64>,
    /// None, or one per head.
    beta: Vec<f64>,
    /// The matrices before the first token, if any.
    state: Vec<f64>,
}

fn numbers(seed: u64, count: usize) -> Vec<f64> {
    let mut rng = seeded(seed);
    (0..count).map(|_| draw(&mut rng)).collect()
}

/// The unit vector of a token's number, the same in all heads.
fn one_hot(time: usize, axis: impl Fn(usize) -> usize) -> Vec<f64> {
    let vector = |token: usize| (0..KEY).map(move |channel| (token, channel));
    let cells = (0..time).flat_map(|token| (0..HEADS).flat_map(move |_| vector(token)));
    cells.map(|(token, channel)| f64::from(u8::from(axis(token) == channel))).collect()
}

impl Inputs {
    /// Random queries, keys and values; a plain sum.
    fn random(time: usize) -> Self {
        let rows = time * HEADS;
        Self {
            time,
            query: numbers(1, rows * KEY),
            key: numbers(2, rows * KEY),
            value: numbers(3, rows * VALUE),
            decay: Vec::new(),
            beta: Vec::new(),
            state: Vec::new(),
        }
    }

    /// Log-decays from 0 to -2, one per head or one per channel.
    fn with_decay(self, channels: usize) -> Self {
        let decay = numbers(4, self.time * HEADS * channels).into_iter().map(|x| -1.0 - x).collect();
        Self { decay, ..self }
    }

    fn with_beta(self, beta: f64) -> Self {
        Self { beta: vec![beta; self.time * HEADS], ..self }
    }

    /// The value of a token, in all heads.
    fn values_of(&self, token: usize) -> Vec<f64> {
        self.value[token * HEADS * VALUE..][..HEADS * VALUE].to_vec()
    }

    fn run_on<O: Ops>(&self, ops: &O, chunk: usize) -> (O::Tensor, O::Tensor) {
        let tensor = |values: &[f64], shape: &[usize]| {
            let values: Vec<O::Scalar> = values.iter().map(|value| O::Scalar::from_f64(*value)).collect();
            (!values.is_empty()).then(|| ops.constant(shape, &values))
        };
        let per_head = |values: &[f64], width: usize| tensor(values, &[1, self.time, HEADS, width]).unwrap();
        let (query, key, value) = (per_head(&self.query, KEY), per_head(&self.key, KEY), per_head(&self.value, VALUE));
        let beta = tensor(&self.beta, &[1, self.time, HEADS]);
        let scalar = self.decay.len() == self.time * HEADS;
        let decay = if scalar {
            tensor(&self.decay, &[1, self.time, HEADS])
        } else {
            tensor(&self.decay, &[1, self.time, HEADS, KEY])
        };
        let decay = match &decay {
            None => Decay::None,
            Some(decay) if scalar => Decay::Scalar(decay),
            Some(decay) => Decay::Vector(decay),
        };
        let state = tensor(&self.state, &[1, HEADS, KEY, VALUE]).map(|state| State::new(0, [Some(state)]));
        LinearRecurrence { chunk, rounding: None }.run(
            ops,
            [&query, &key, &value],
            decay,
            beta.as_ref(),
            state.as_ref(),
        )
    }

    /// Outputs and last state, which the kernel and the reference implementation agree on.
    fn run(&self) -> (Vec<f64>, Vec<f64>) {
        let (native, composed) = (Native::new(), NoFusedKernels(Native::new()));
        let values = |(out, state): (Tensor<f64>, Tensor<f64>)| (native.values(&out), native.values(&state));
        let (out, state) = values(self.run_on(&native, 3));
        let (expected, last) = values(self.run_on(&composed, 5));
        assert_close(&out, &expected, 1e-12, "outputs");
        assert_close(&state, &last, 1e-12, "state");
        (out, state)
    }
}

fn assert_same(found: &Inputs, expected: &Inputs, what: &str) {
    let (found, expected) = (found.run(), expected.run());
    assert_close(&found.0, &expected.0, 1e-12, what);
    assert_close(&found.1, &expected.1, 1e-12, what);
}

#[test]
fn decays_of_zero_are_no_decay() {
    let time = 11;
    for channels in [1, KEY] {
        let no_decay = Inputs { decay: vec![0.0; time * HEADS * channels], ..Inputs::random(time) };
        assert_same(&no_decay, &Inputs::random(time), "a plain sum");
        let delta = Inputs { decay: vec![0.0; time * HEADS * channels], ..Inputs::random(time).with_beta(0.7) };
        assert_same(&delta, &Inputs::random(time).with_beta(0.7), "DeltaNet");
    }
}

#[test]
fn channels_that_decay_alike_are_one_decay() {
    let scalar = Inputs::random(11).with_decay(1);
    let spread = scalar.decay.iter().flat_map(|decay| [*decay; KEY]).collect();
    assert_same(&Inputs { decay: spread, ..Inputs::random(11) }, &scalar, "GLA and a scalar decay");
}

/// Gated DeltaNet with nothing to erase is Mamba-2's core: where keys are orthogonal, the old value under a key is zero.
#[test]
fn a_gated_delta_rule_that_finds_nothing_to_erase_is_a_scalar_decay() {
    let time = KEY;
    let plain = Inputs { key: one_hot(time, |token| token), ..Inputs::random(time).with_decay(1) };
    let gated = Inputs { beta: vec![1.0; time * HEADS], decay: plain.decay.clone(), ..Inputs::random(time) };
    assert_same(&Inputs { key: plain.key.clone(), ..gated }, &plain, "beta = 1");
    let half = Inputs {
        value: plain.value.iter().map(|value| 0.5 * value).collect(),
        key: plain.key.clone(),
        ..Inputs::random(time).with_decay(1)
    };
    assert_same(
        &Inputs { key: plain.key.clone(), ..Inputs::random(time).with_decay(1).with_beta(0.5) },
        &half,
        "beta = 1/2",
    );
}

#[test]
fn orthonormal_keys_are_recalled_exactly() {
    // Keys 0 to 3 are written, then asked for once more with strength zero.
    let time = 2 * KEY;
    let key = one_hot(time, |token| token % KEY);
    let beta = (0..time * HEADS).map(|cell| if cell < KEY * HEADS { 1.0 } else { 0.0 }).collect();
    let inputs = Inputs { query: key.clone(), key, beta, ..Inputs::random(time) };
    let (out, _) = inputs.run();
    for token in 0..KEY {
        let found = &out[(KEY + token) * HEADS * VALUE..][..HEADS * VALUE];
        assert_close(found, &inputs.values_of(token), 1e-14, &format!("key {token}"));
    }
}

#[test]
fn full_strength_overwrites_and_none_leaves_the_state() {
    let time = 5;
    let key = one_hot(time, |_| 2);
    let inputs = Inputs { query: key.clone(), key: key.clone(), ..Inputs::random(time).with_beta(1.0) };
    let (out, state) = inputs.run();
    // Whatever was there, the last value alone is read; nothing is stored under another key.
    assert_close(&out, &inputs.value, 1e-14, "overwritten");
    for head in 0..HEADS {
        for (channel, row) in state[head * KEY * VALUE..][..KEY * VALUE].chunks(VALUE).enumerate() {
            let last = &inputs.values_of(time - 1)[head * VALUE..][..VALUE];
            assert_close(
                row,
                &last.iter().map(|x| if channel == 2 { *x } else { 0.0 }).collect::<Vec<_>>(),
                1e-14,
                "row",
            );
        }
    }
    let before = numbers(9, HEADS * KEY * VALUE);
    let (_, after) = Inputs { state: before.clone(), ..Inputs::random(time).with_beta(0.0) }.run();
    assert_eq!(after, before, "strength zero");
}

/// With strength two and a zero value, the state under a key changes its sign at every token: that is how a state counts
/// parity.
#[test]
fn strength_two_reflects() {
    for time in [1, 2, 3, 6] {
        let before = numbers(9, HEADS * KEY * VALUE);
        let inputs = Inputs {
            key: one_hot(time, |_| 1),
            value: vec![0.0; time * HEADS * VALUE],
            state: before.clone(),
            ..Inputs::random(time).with_beta(2.0)
        };
        let (_, after) = inputs.run();
        let sign = |channel: usize| if channel == 1 && time % 2 == 1 { -1.0 } else { 1.0 };
        let expected: Vec<f64> =
            before.iter().enumerate().map(|(cell, value)| sign(cell / VALUE % KEY) * value).collect();
        assert_close(&after, &expected, 1e-14, &format!("{time} reflections"));
    }
}

#[test]
fn what_decays_at_once_remembers_only_the_token_itself() {
    let time = 9;
    for channels in [1, KEY] {
        let inputs = Inputs { decay: vec![-1e4; time * HEADS * channels], ..Inputs::random(time) };
        let (out, _) = inputs.run();
        for (row, found) in out.chunks(VALUE).enumerate() {
            let score: f64 =
                inputs.query[row * KEY..][..KEY].iter().zip(&inputs.key[row * KEY..]).map(|(q, k)| q * k).sum();
            let expected: Vec<f64> = inputs.value[row * VALUE..][..VALUE].iter().map(|value| score * value).collect();
            assert_close(found, &expected, 1e-14, "memoryless");
        }
    }
}

/// Decays of exactly zero, of minus fifty, and the two in turn, in single precision, with gradients.
#[test]
fn extreme_decays_stay_finite() {
    fn weight(ops: &Native<f32>, weights: &Parameters<f32>, name: &str) -> Tensor<f32> {
        ops.parameter(weights.find(name).unwrap())
    }
    let time = 150;
    let patterns: [fn(usize) -> f64; 3] = [|_| 0.0, |_| -50.0, |cell| if cell % 3 == 0 { -50.0 } else { 0.0 }];
    for pattern in patterns {
        for channels in [1, KEY] {
            for delta in [false, true] {
                let inputs = Inputs::random(time);
                let mut weights = Parameters::<f32>::new();
                let to_f32 = |values: &[f64]| values.iter().map(|value| *value as f32).collect::<Vec<_>>();
                weights.add("query", &[1, time, HEADS, KEY], to_f32(&inputs.query));
                weights.add("key", &[1, time, HEADS, KEY], to_f32(&inputs.key));
                weights.add("value", &[1, time, HEADS, VALUE], to_f32(&inputs.value));
                let decay: Vec<f64> = (0..time * HEADS * channels).map(pattern).collect();
                let shape = [1, time, HEADS, channels];
                weights.add("decay", &shape[..3 + usize::from(channels > 1)], to_f32(&decay));
                weights.add("beta", &[1, time, HEADS], vec![1.0; time * HEADS]);
                let ops = Native::new();
                ops.bind(&weights);
                let [query, key, value] = ["query", "key", "value"].map(|name| weight(&ops, &weights, name));
                let key = ops.l2_norm(&key, 1e-6);
                let (decay, beta) = (weight(&ops, &weights, "decay"), weight(&ops, &weights, "beta"));
                let decay = if channels == 1 { Decay::Scalar(&decay) } else { Decay::Vector(&decay) };
                let recurrence = LinearRecurrence { chunk: 64, rounding: None };
                let (out, state) = recurrence.run(&ops, [&query, &key, &value], decay, delta.then_some(&beta), None);
                assert!(ops.values(&out).iter().chain(&ops.values(&state)).all(|value| value.is_finite()));
                ops.backward(&ops.add(&ops.sum_all(&out), &ops.sum_all(&state)));
                assert!(
                    ops.gradient().iter().all(|gradient| gradient.is_finite()),
                    "{channels} channels, delta {delta}"
                );
            }
        }
    }
}
