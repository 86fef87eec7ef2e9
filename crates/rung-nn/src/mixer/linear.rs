//! Linear attention: a feature map instead of the exponential, so that the state is one sum over past tokens.
//!
//! Definition, state and sources: `rung explain linear`.
//!
//! # Computed as
//! `tril(phi(Q) phi(K)') V` in chunks, rows divided by their sums if normalised. A bidirectional model drops the mask.

use rung_engine::{Decay, Ops, Recurrence, Role, Scalar};
use rung_theory::stack::Mixer;
pub use rung_theory::stack::mixer::FeatureMap;

use super::head_output::{HeadOutput, OutputGate, OutputNorm, RecurrentHeads};
use super::{MixerConfig, State, flag, number};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::{Init, ParamBuilder};
use crate::precision::apply_rounding;
use crate::submodules::{LinearRecurrence, NormGain, QkvProjection, scale_query};

/// Sizes of linear attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearAttentionConfig {
    /// Number of heads.
    pub heads: usize,
    /// Width of a key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
    /// Whether to divide by the sum of attention weights; without it, head outputs are normalized.
    pub normaliser: bool,
    /// Feature map of queries and keys.
    pub map: FeatureMap,
}

/// Linear attention.
pub struct LinearAttention {
    config: LinearAttentionConfig,
    projections: QkvProjection,
    recurrence: LinearRecurrence,
    output: HeadOutput,
    causal: bool,
}

impl MixerConfig for LinearAttentionConfig {
    type Mixer = LinearAttention;
    const NAME: &'static str = "linear";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::linear);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        Ok(Self {
            heads: number(mixer, "heads"),
            key_dim: number(mixer, "key"),
            value_dim: number(mixer, "value"),
            normaliser: flag(mixer, "normaliser"),
            map: mixer.options().choice("map"),
        })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<LinearAttention, ModelError> {
        let Self { heads, key_dim, value_dim, .. } = *self;
        let width = params.settings.width;
        let init = Init::Normal(params.settings.init_std);
        Ok(LinearAttention {
            config: *self,
            projections: QkvProjection::init(params, [heads, key_dim, value_dim], |_| init),
            recurrence: params.recurrence(),
            output: HeadOutput {
                norm: (!self.normaliser)
                    .then(|| OutputNorm::per_head(params.gain("norm", value_dim), NormGain::EPSILON)),
                gate: OutputGate::None,
                projection: params.role(Role::Output).linear("o_proj", heads * value_dim, width),
            },
            causal: params.settings.causal,
        })
    }
}

impl LinearAttention {
    /// Keeps the divisor above zero where no key matches the query.
    const EPSILON: f64 = 1e-6;

    fn apply_feature_map<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        match self.config.map {
            FeatureMap::EluPlusOne => ops.elu_plus_one(x),
            FeatureMap::Relu => ops.relu(x),
            FeatureMap::Identity => x.clone(),
        }
    }

    /// The weighted sum of values for every query, and the matrix state.
    fn sum_values<O: Ops>(
        &self,
        ops: &O,
        inputs: [&O::Tensor; 3],
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, O::Tensor) {
        if self.causal {
            return self.recurrence.run(ops, inputs, Decay::None, None, state);
        }
        bidirectional_sum(ops, inputs, self.recurrence)
    }

    /// The sum of attention weights of every query, `[batch, time, heads, 1]`, and the sum of keys, `[batch, 1, heads, key]`.
    fn sum_weights<O: Ops>(
        &self,
        ops: &O,
        query: &O::Tensor,
        key: &O::Tensor,
        past_sum: Option<&O::Tensor>,
    ) -> (O::Tensor, O::Tensor) {
        let [batch, time, heads, width] = ops.shape(query)[..] else { panic!("heads of {}", ops.shape(query)) };
        if self.causal && self.recurrence.rounding.is_some() {
            // The same recurrence as for the values, with every value equal to 1, so that the sum is rounded after every token.
            let column = past_sum.map(|sum| ops.reshape(sum, &[batch, heads, width, 1]));
            let (weight_sum, key_sum) = ops.recurrence(&Recurrence {
                query,
                key,
                value: &ops.full(&[batch, time, heads, 1], 1.0),
                decay: Decay::None,
                beta: None,
                state: column.as_ref(),
                chunk: self.recurrence.chunk,
                rounding: self.recurrence.rounding,
            });
            return (weight_sum, ops.reshape(&key_sum, &[batch, 1, heads, width]));
        }
        let sums = match (self.causal, past_sum) {
            (false, _) => apply_rounding(ops, &ops.sum(key, 1), self.recurrence.rounding),
            (true, None) => ops.cumulative_sum(key, 1),
            (true, Some(sum)) => ops.add(&ops.cumulative_sum(key, 1), sum),
        };
        let last = ops.shape(&sums)[1];
        (ops.sum(&ops.mul(query, &sums), 3), ops.slice(&sums, 1, last - 1..last))
    }
}

/// Linear attention without a causal mask: the weighted sum of the values of all tokens for every query, and the matrix state.
pub(super) fn bidirectional_sum<O: Ops>(
    ops: &O,
    inputs: [&O::Tensor; 3],
    recurrence: LinearRecurrence,
) -> (O::Tensor, O::Tensor) {
    let [query, key, value] = inputs.map(|x| ops.permute(x, &[0, 2, 1, 3]));
    let matrix = apply_rounding(ops, &ops.product(&key, true, &value, false), recurrence.rounding);
    (ops.permute(&ops.matmul(&query, &matrix), &[0, 2, 1, 3]), matrix)
}

impl RecurrentHeads for LinearAttention {
    /// The output of every head before norm and projection, and the state.
    fn head_outputs<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let [query, key, value] = self.projections.apply(ops, x);
        let (query, key) = (self.apply_feature_map(ops, &query), self.apply_feature_map(ops, &key));
        let past_len = State::past_len(state) + ops.shape(x)[1];
        if !self.config.normaliser {
            let (out, matrix) = self.sum_values(ops, [&scale_query(ops, &query), &key, &value], state);
            return (out, State::new(past_len, [Some(matrix)]));
        }
        let (out, matrix) = self.sum_values(ops, [&query, &key, &value], state);
        let (weight_sum, key_sum) = self.sum_weights(ops, &query, &key, State::tensor(state, 1));
        let out = ops.div(&out, &ops.affine(&weight_sum, 1.0, Self::EPSILON));
        (out, State::new(past_len, [Some(matrix), Some(key_sum)]))
    }

    fn output(&self) -> &HeadOutput {
        &self.output
    }
}
