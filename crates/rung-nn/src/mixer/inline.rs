//! InLine attention: linear attention normalised by subtraction, with a local term.
//!
//! Definition, state and sources: `rung explain inline`.
//!
//! # Computed as
//! Two recurrences in chunks. An extra key channel of 1 adds the mean of values to the state, so that the query
//! `[q, 1 - q.z / n] / n` gives both terms at once. A bidirectional model sums over all tokens, centres the local term on the
//! token, and computes its taps from the mean of all tokens, as in the paper.

use rung_engine::{Decay, Ops, Parameter, Recurrence, Role, Scalar};
use rung_theory::stack::Mixer;

use super::linear::bidirectional_sum;
use super::{MixerConfig, State, TokenMixer, number, require_divisor};
use crate::error::ModelError;
use crate::param_builder::{Init, ParamBuilder};
use crate::precision::apply_rounding;
use crate::submodules::{
    Linear, LinearRecurrence, QkvProjection, merge_heads, per_head_matmul, scale_query, split_heads,
};

/// Sizes of InLine attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineConfig {
    /// Number of heads.
    pub heads: usize,
    /// Width of a key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
    /// Kernel size of the local term.
    pub local: usize,
}

/// InLine attention.
pub struct Inline {
    config: InlineConfig,
    projections: QkvProjection,
    /// To a head's width, then to the taps of every channel of the head.
    taps: [HeadLinear; 2],
    output: Linear,
    recurrence: LinearRecurrence,
    causal: bool,
}

/// A separate projection of every head's channels: PyTorch's `Conv1d` of kernel size 1 with as many groups as heads.
struct HeadLinear {
    /// `[heads * out, in, 1]`.
    weight: Parameter,
    /// `[heads * out]`.
    bias: Parameter,
    heads: usize,
}

impl HeadLinear {
    fn init<S: Scalar>(
        params: &mut ParamBuilder<'_, S>,
        name: &str,
        heads: usize,
        inputs: usize,
        outputs: usize,
    ) -> Self {
        let init = Init::Normal(params.settings.init_std);
        let weight = params.weight(&format!("{name}.weight"), &[heads * outputs, inputs, 1], init);
        let bias =
            params.parameter_without_weight_decay(&format!("{name}.bias"), &[heads * outputs], Init::Constant(0.0));
        Self { weight, bias, heads }
    }

    /// `[batch, time, heads, in]` to `[batch, time, heads, out]`.
    fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let weight = ops.parameter(self.weight);
        let (outputs, inputs) = (ops.shape(&weight)[0] / self.heads, ops.shape(&weight)[1]);
        let out = per_head_matmul(ops, x, &ops.reshape(&weight, &[self.heads, outputs, inputs]), true);
        ops.add(&out, &ops.reshape(&ops.parameter(self.bias), &[self.heads, outputs]))
    }
}

impl MixerConfig for InlineConfig {
    type Mixer = Inline;
    const NAME: &'static str = "inline";

    fn width_divisor(mixer: &Mixer) -> u64 {
        mixer.number("heads").unwrap_or(1)
    }

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, key_dim, value_dim, local] = ["heads", "key", "value", "local"].map(|option| number(mixer, option));
        Ok(Self { heads, key_dim, value_dim, local })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Inline, ModelError> {
        let Self { heads, key_dim, value_dim, local } = *self;
        let width = params.settings.width;
        require_divisor(Self::NAME, "heads", width, heads)?;
        let init = Init::Normal(params.settings.init_std);
        Ok(Inline {
            config: *self,
            projections: QkvProjection::init(params, [heads, key_dim, value_dim], |_| init),
            taps: [
                HeadLinear::init(params, "residual.0", heads, width / heads, value_dim),
                HeadLinear::init(params, "residual.2", heads, value_dim, value_dim * local),
            ],
            output: params.role(Role::Output).linear("o_proj", heads * value_dim, width),
            recurrence: params.recurrence(),
            causal: params.settings.causal,
        })
    }
}

impl Inline {
    /// The output of every head with its local term, before the projection, and the state.
    pub(super) fn head_outputs<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (batch, time, heads) = (ops.shape(x)[0], ops.shape(x)[1], self.config.heads);
        let past_len = State::past_len(state);
        let reciprocal = |token: usize| 1.0 / if self.causal { past_len + token + 1 } else { time } as f64;
        let reciprocals: Vec<O::Scalar> = (0..time).map(|token| O::Scalar::from_f64(reciprocal(token))).collect();
        // One over the number n of tokens that a query attends to.
        let reciprocal = ops.constant(&[time, 1, 1], &reciprocals);
        let [query, key, value] = self.projections.apply(ops, x);
        let query = ops.mul(&scale_query(ops, &query), &reciprocal);
        let one = ops.full(&[batch, time, heads, 1], 1.0);
        let (score_mean, key_state) = self.sum_values(ops, [&query, &key, &one], State::tensor(state, 0));
        let mean_weight = ops.mul(&ops.affine(&score_mean, -1.0, 1.0), &reciprocal);
        let (query, key) = (ops.concat(&[query, mean_weight], 3), ops.concat(&[key, one], 3));
        let (out, value_state) = self.sum_values(ops, [&query, &key, &value], State::tensor(state, 1));
        let (local, conv_state) = self.local_term(ops, x, &merge_heads(ops, &value), State::tensor(state, 2));
        let out = ops.add(&out, &split_heads(ops, &local, heads));
        (out, State::new(past_len + time, [Some(key_state), Some(value_state), conv_state]))
    }

    /// The weighted sum of values for every query, and the matrix state.
    fn sum_values<O: Ops>(
        &self,
        ops: &O,
        [query, key, value]: [&O::Tensor; 3],
        state: Option<&O::Tensor>,
    ) -> (O::Tensor, O::Tensor) {
        let LinearRecurrence { chunk, rounding } = self.recurrence;
        if self.causal {
            let decay = Decay::None;
            return ops.recurrence(&Recurrence { query, key, value, decay, beta: None, state, chunk, rounding });
        }
        bidirectional_sum(ops, [query, key, value], self.recurrence)
    }

    /// The local term, and the last values, which are the state of the next call.
    fn local_term<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        value: &O::Tensor,
        state: Option<&O::Tensor>,
    ) -> (O::Tensor, Option<O::Tensor>) {
        let (time, local) = (ops.shape(x)[1], self.config.local);
        let [batch, _, channels] = ops.shape(value)[..] else { panic!("channels of {}", ops.shape(value)) };
        let tap_input = if self.causal { x.clone() } else { ops.mean(x, 1) };
        let taps = self.taps[0].apply(ops, &split_heads(ops, &tap_input, self.config.heads));
        let taps = self.taps[1].apply(ops, &ops.gelu_exact(&taps));
        let tap_tokens = ops.shape(&tap_input)[1];
        let taps = ops.reshape(&taps, &[batch, tap_tokens, channels, local]);
        let mut value = apply_rounding(ops, value, self.recurrence.rounding);
        // Later tokens are within reach of a causal convolution whose output is taken `lookahead` tokens later.
        let lookahead = if self.causal { 0 } else { local - 1 - local / 2 };
        if lookahead > 0 {
            value = ops.concat(&[value, ops.zeros(&[batch, lookahead, channels])], 1);
        }
        let (mut sum, mut conv_state) = (None, None);
        for tap in 0..local {
            // A filter with a single 1 shifts the values.
            let one_hot: Vec<O::Scalar> = (0..channels * local)
                .map(|index| O::Scalar::from_f64(f64::from(u8::from(index % local == tap))))
                .collect();
            let filters = ops.constant(&[channels, local], &one_hot);
            let (shifted, next_state) = ops.short_convolution(&value, &filters, None, state);
            let tap_weights = ops.reshape(&ops.slice(&taps, 3, tap..tap + 1), &[batch, tap_tokens, channels]);
            let term = ops.mul(&ops.slice(&shifted, 1, lookahead..lookahead + time), &tap_weights);
            sum = Some(sum.map_or(term.clone(), |sum| ops.add(&sum, &term)));
            conv_state = (local > 1).then_some(next_state);
        }
        (sum.expect("at least one tap"), conv_state)
    }
}

impl TokenMixer for Inline {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.head_outputs(ops, x, state);
        (self.output.apply(ops, &merge_heads(ops, &out)), state)
    }
}
