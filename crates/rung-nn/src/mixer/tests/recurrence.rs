//! The linear recurrence of the mixers, run directly on chosen keys, betas and decays.
//!
//! Every case runs through the kernel and through the reference implementation.

use rung_engine::{Decay, Native, Ops, Parameters, Scalar, Tensor};
use rung_theory::task::seeded;

use super::{assert_close, uniform_sample};
use crate::mixer::State;
use crate::no_fused_kernels::NoFusedKernels;
use crate::submodules::LinearRecurrence;

const HEADS: usize = 2;
const KEY_DIM: usize = 4;
const VALUE_DIM: usize = 3;

/// Inputs of one sequence, per token and head.
struct Inputs {
    time: usize,
    query: Vec<f64>,
    key: Vec<f64>,
    value: Vec<f64>,
    /// Log-decays: empty, one per head, or one per key channel.
    decay: Vec<f64>,
    /// Empty, or one per head.
    beta: Vec<f64>,
    /// The matrix states before the first token, or empty.
    state: Vec<f64>,
}

fn random_values(seed: u64, count: usize) -> Vec<f64> {
    let mut rng = seeded(seed);
    (0..count).map(|_| uniform_sample(&mut rng)).collect()
}

/// For every token the unit vector of the axis that `axis` returns, the same in all heads.
fn one_hot(time: usize, axis: impl Fn(usize) -> usize) -> Vec<f64> {
    let vector = |token: usize| (0..KEY_DIM).map(move |channel| (token, channel));
    let indices = (0..time).flat_map(|token| (0..HEADS).flat_map(move |_| vector(token)));
    indices.map(|(token, channel)| f64::from(u8::from(axis(token) == channel))).collect()
}

impl Inputs {
    /// Random queries, keys and values, without decay and beta.
    fn random(time: usize) -> Self {
        let rows = time * HEADS;
        Self {
            time,
            query: random_values(1, rows * KEY_DIM),
            key: random_values(2, rows * KEY_DIM),
            value: random_values(3, rows * VALUE_DIM),
            decay: Vec::new(),
            beta: Vec::new(),
            state: Vec::new(),
        }
    }

    /// Log-decays from 0 to -2, one per head or one per channel.
    fn with_decay(self, channels: usize) -> Self {
        let decay = random_values(4, self.time * HEADS * channels).into_iter().map(|x| -1.0 - x).collect();
        Self { decay, ..self }
    }

    fn with_beta(self, beta: f64) -> Self {
        Self { beta: vec![beta; self.time * HEADS], ..self }
    }

    /// The value of a token, in all heads.
    fn token_values(&self, token: usize) -> Vec<f64> {
        self.value[token * HEADS * VALUE_DIM..][..HEADS * VALUE_DIM].to_vec()
    }

    fn run_on<O: Ops>(&self, ops: &O, chunk: usize) -> (O::Tensor, O::Tensor) {
        let tensor = |values: &[f64], shape: &[usize]| {
            let values: Vec<O::Scalar> = values.iter().map(|value| O::Scalar::from_f64(*value)).collect();
            (!values.is_empty()).then(|| ops.constant(shape, &values))
        };
        let per_head = |values: &[f64], width: usize| tensor(values, &[1, self.time, HEADS, width]).unwrap();
        let (query, key, value) =
            (per_head(&self.query, KEY_DIM), per_head(&self.key, KEY_DIM), per_head(&self.value, VALUE_DIM));
        let beta = tensor(&self.beta, &[1, self.time, HEADS]);
        let scalar = self.decay.len() == self.time * HEADS;
        let decay = if scalar {
            tensor(&self.decay, &[1, self.time, HEADS])
        } else {
            tensor(&self.decay, &[1, self.time, HEADS, KEY_DIM])
        };
        let decay = match &decay {
            None => Decay::None,
            Some(decay) if scalar => Decay::Scalar(decay),
            Some(decay) => Decay::Vector(decay),
        };
        let state = tensor(&self.state, &[1, HEADS, KEY_DIM, VALUE_DIM]).map(|state| State::new(0, [Some(state)]));
        LinearRecurrence { chunk, rounding: None }.run(
            ops,
            [&query, &key, &value],
            decay,
            beta.as_ref(),
            state.as_ref(),
        )
    }

    /// Outputs and last state of the kernel, after comparing them with the reference implementation.
    fn run(&self) -> (Vec<f64>, Vec<f64>) {
        let (native, composed) = (Native::new(), NoFusedKernels(Native::new()));
        let values = |(out, state): (Tensor<f64>, Tensor<f64>)| (native.values(&out), native.values(&state));
        let (out, state) = values(self.run_on(&native, 3));
        let (expected, expected_state) = values(self.run_on(&composed, 5));
        assert_close(&out, &expected, 1e-12, "outputs");
        assert_close(&state, &expected_state, 1e-12, "state");
        (out, state)
    }
}

fn assert_same(actual: &Inputs, expected: &Inputs, what: &str) {
    let (actual, expected) = (actual.run(), expected.run());
    assert_close(&actual.0, &expected.0, 1e-12, what);
    assert_close(&actual.1, &expected.1, 1e-12, what);
}

#[test]
fn log_decay_of_zero_equals_no_decay() {
    let time = 11;
    for channels in [1, KEY_DIM] {
        let no_decay = Inputs { decay: vec![0.0; time * HEADS * channels], ..Inputs::random(time) };
        assert_same(&no_decay, &Inputs::random(time), "a sum without decay");
        let delta = Inputs { decay: vec![0.0; time * HEADS * channels], ..Inputs::random(time).with_beta(0.7) };
        assert_same(&delta, &Inputs::random(time).with_beta(0.7), "DeltaNet");
    }
}

#[test]
fn equal_decays_of_all_channels_equal_a_scalar_decay() {
    let scalar = Inputs::random(11).with_decay(1);
    let repeated = scalar.decay.iter().flat_map(|decay| [*decay; KEY_DIM]).collect();
    assert_same(&Inputs { decay: repeated, ..Inputs::random(11) }, &scalar, "GLA and a scalar decay");
}

/// With orthogonal keys the old value of a key is zero, so that Gated DeltaNet's recurrence equals Mamba-2's.
#[test]
fn gated_delta_rule_with_orthogonal_keys_equals_a_scalar_decay() {
    let time = KEY_DIM;
    let scalar_decay = Inputs { key: one_hot(time, |token| token), ..Inputs::random(time).with_decay(1) };
    let gated = Inputs { beta: vec![1.0; time * HEADS], decay: scalar_decay.decay.clone(), ..Inputs::random(time) };
    assert_same(&Inputs { key: scalar_decay.key.clone(), ..gated }, &scalar_decay, "beta = 1");
    let half_values = Inputs {
        value: scalar_decay.value.iter().map(|value| 0.5 * value).collect(),
        key: scalar_decay.key.clone(),
        ..Inputs::random(time).with_decay(1)
    };
    assert_same(
        &Inputs { key: scalar_decay.key.clone(), ..Inputs::random(time).with_decay(1).with_beta(0.5) },
        &half_values,
        "beta = 1/2",
    );
}

#[test]
fn delta_rule_recalls_orthonormal_keys_exactly() {
    // Keys 0 to 3 are written, then queried again with a beta of zero.
    let time = 2 * KEY_DIM;
    let key = one_hot(time, |token| token % KEY_DIM);
    let beta = (0..time * HEADS).map(|index| if index < KEY_DIM * HEADS { 1.0 } else { 0.0 }).collect();
    let inputs = Inputs { query: key.clone(), key, beta, ..Inputs::random(time) };
    let (out, _) = inputs.run();
    for token in 0..KEY_DIM {
        let actual = &out[(KEY_DIM + token) * HEADS * VALUE_DIM..][..HEADS * VALUE_DIM];
        assert_close(actual, &inputs.token_values(token), 1e-14, &format!("key {token}"));
    }
}

#[test]
fn beta_of_one_overwrites_and_beta_of_zero_keeps_the_state() {
    let time = 5;
    let key = one_hot(time, |_| 2);
    let inputs = Inputs { query: key.clone(), key: key.clone(), ..Inputs::random(time).with_beta(1.0) };
    let (out, state) = inputs.run();
    // Each output is the latest value of the key, and the state has no other keys.
    assert_close(&out, &inputs.value, 1e-14, "overwritten");
    for head in 0..HEADS {
        for (channel, row) in state[head * KEY_DIM * VALUE_DIM..][..KEY_DIM * VALUE_DIM].chunks(VALUE_DIM).enumerate() {
            let last = &inputs.token_values(time - 1)[head * VALUE_DIM..][..VALUE_DIM];
            assert_close(
                row,
                &last.iter().map(|x| if channel == 2 { *x } else { 0.0 }).collect::<Vec<_>>(),
                1e-14,
                "row",
            );
        }
    }
    let before = random_values(9, HEADS * KEY_DIM * VALUE_DIM);
    let (_, after) = Inputs { state: before.clone(), ..Inputs::random(time).with_beta(0.0) }.run();
    assert_eq!(after, before, "beta of zero");
}

/// With a beta of two and values of zero, the state of a key changes its sign at every token, which counts parity.
#[test]
fn beta_of_two_reflects_the_state() {
    for time in [1, 2, 3, 6] {
        let before = random_values(9, HEADS * KEY_DIM * VALUE_DIM);
        let inputs = Inputs {
            key: one_hot(time, |_| 1),
            value: vec![0.0; time * HEADS * VALUE_DIM],
            state: before.clone(),
            ..Inputs::random(time).with_beta(2.0)
        };
        let (_, after) = inputs.run();
        let sign = |channel: usize| if channel == 1 && time % 2 == 1 { -1.0 } else { 1.0 };
        let expected: Vec<f64> =
            before.iter().enumerate().map(|(index, value)| sign(index / VALUE_DIM % KEY_DIM) * value).collect();
        assert_close(&after, &expected, 1e-14, &format!("{time} reflections"));
    }
}

#[test]
fn immediate_decay_leaves_only_the_current_token() {
    let time = 9;
    for channels in [1, KEY_DIM] {
        let inputs = Inputs { decay: vec![-1e4; time * HEADS * channels], ..Inputs::random(time) };
        let (out, _) = inputs.run();
        for (row, actual) in out.chunks(VALUE_DIM).enumerate() {
            let score: f64 = inputs.query[row * KEY_DIM..][..KEY_DIM]
                .iter()
                .zip(&inputs.key[row * KEY_DIM..])
                .map(|(q, k)| q * k)
                .sum();
            let expected: Vec<f64> =
                inputs.value[row * VALUE_DIM..][..VALUE_DIM].iter().map(|value| score * value).collect();
            assert_close(actual, &expected, 1e-14, "current token only");
        }
    }
}

/// Log-decays of zero, of minus fifty, and alternating, in single precision, with gradients.
#[test]
fn extreme_decays_give_finite_outputs_and_gradients() {
    fn weight(ops: &Native<f32>, weights: &Parameters<f32>, name: &str) -> Tensor<f32> {
        ops.parameter(weights.find(name).unwrap())
    }
    let time = 150;
    let patterns: [fn(usize) -> f64; 3] = [|_| 0.0, |_| -50.0, |index| if index % 3 == 0 { -50.0 } else { 0.0 }];
    for pattern in patterns {
        for channels in [1, KEY_DIM] {
            for delta in [false, true] {
                let inputs = Inputs::random(time);
                let mut weights = Parameters::<f32>::new();
                let to_f32 = |values: &[f64]| values.iter().map(|value| *value as f32).collect::<Vec<_>>();
                weights.add("query", &[1, time, HEADS, KEY_DIM], to_f32(&inputs.query));
                weights.add("key", &[1, time, HEADS, KEY_DIM], to_f32(&inputs.key));
                weights.add("value", &[1, time, HEADS, VALUE_DIM], to_f32(&inputs.value));
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
