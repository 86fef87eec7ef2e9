//! Linear attention: a feature map in place of the exponential, so that the past is one sum.
//!
//! Definition, state and sources: `rung explain linear`.
//!
//! # Computed as
//! `tril(phi(Q) phi(K)') V` in chunks, rows divided by their sums if normalised. A bidirectional model drops the mask.

use rung_engine::{Decay, Ops, Recurrence, Role, Scalar};
use rung_theory::stack::Mixer;
pub use rung_theory::stack::mixer::FeatureMap;

use super::{MixerConfig, State, TokenMixer, flag, number};
use crate::error::ModelError;
use crate::parts::{NormGain, Linear, LinearRecurrence, Projections, join, scaled};
use crate::precision::rounded;
use crate::param_builder::{Init, ParamBuilder};

/// Sizes of linear attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearAttentionConfig {
    /// Heads.
    pub heads: usize,
    /// Width of a key head.
    pub key: usize,
    /// Width of a value head.
    pub value: usize,
    /// Whether to divide by the sum of weights.
    pub normaliser: bool,
    /// The feature map.
    pub map: FeatureMap,
}

/// Linear attention.
pub struct LinearAttention {
    config: LinearAttentionConfig,
    projections: Projections,
    norm: Option<NormGain>,
    output: Linear,
    recurrence: LinearRecurrence,
    causal: bool,
}

impl MixerConfig for LinearAttentionConfig {
    type Mixer = LinearAttention;
    const NAME: &'static str = "linear";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        Ok(Self {
            heads: number(mixer, "heads"),
            key: number(mixer, "key"),
            value: number(mixer, "value"),
            normaliser: flag(mixer, "normaliser"),
            map: mixer.options().choice("map"),
        })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<LinearAttention, ModelError> {
        let Self { heads, key, value, .. } = *self;
        let width = params.settings.width;
        let init = Init::Normal(params.settings.deviation);
        Ok(LinearAttention {
            config: *self,
            projections: Projections::init(params, [heads, key, value], |_| init),
            norm: (!self.normaliser).then(|| params.gain("norm", value)),
            output: params.role(Role::Output).linear("o_proj", heads * value, width),
            recurrence: params.recurrence(),
            causal: params.settings.causal,
        })
    }
}

impl LinearAttention {
    /// Keeps the division away from zero where no key agrees with the query.
    const EPSILON: f64 = 1e-6;

    fn map<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        match self.config.map {
            FeatureMap::EluPlusOne => ops.elu_plus_one(x),
            FeatureMap::Relu => ops.relu(x),
            FeatureMap::Identity => x.clone(),
        }
    }

    /// The read of every head before norm and projection, and the state.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let [query, key, value] = self.projections.apply(ops, x);
        let (query, key) = (self.map(ops, &query), self.map(ops, &key));
        let seen = State::seen(state) + ops.shape(x)[1];
        if !self.config.normaliser {
            let (out, matrix) = self.sum(ops, [&scaled(ops, &query), &key, &value], state);
            return (out, State::new(seen, [Some(matrix)]));
        }
        let (out, matrix) = self.sum(ops, [&query, &key, &value], state);
        let (weight, sums) = self.weigh(ops, &query, &key, State::part(state, 1));
        let out = ops.div(&out, &ops.affine(&weight, 1.0, Self::EPSILON));
        (out, State::new(seen, [Some(matrix), Some(sums)]))
    }

    /// The sum of values that a query reads, and the matrix that holds it.
    fn sum<O: Ops>(
        &self,
        ops: &O,
        inputs: [&O::Tensor; 3],
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, O::Tensor) {
        if self.causal {
            return self.recurrence.run(ops, inputs, Decay::None, None, state);
        }
        sum_of_all(ops, inputs, self.recurrence)
    }

    /// The sum of weights that a query gives, `[batch, time, heads, 1]`, and the sum of keys, `[batch, 1, heads, key]`.
    fn weigh<O: Ops>(
        &self,
        ops: &O,
        query: &O::Tensor,
        key: &O::Tensor,
        before: Option<&O::Tensor>,
    ) -> (O::Tensor, O::Tensor) {
        let [batch, time, heads, width] = ops.shape(query)[..] else { panic!("heads of {}", ops.shape(query)) };
        if self.causal && self.recurrence.rounding.is_some() {
            // The sum goes through the same rounding as the matrix: it is one, with values of one.
            let column = before.map(|before| ops.reshape(before, &[batch, heads, width, 1]));
            let (weight, sums) = ops.recurrence(&Recurrence {
                query,
                key,
                value: &ops.full(&[batch, time, heads, 1], 1.0),
                decay: Decay::None,
                beta: None,
                state: column.as_ref(),
                chunk: self.recurrence.chunk,
                rounding: self.recurrence.rounding,
            });
            return (weight, ops.reshape(&sums, &[batch, 1, heads, width]));
        }
        let sums = match (self.causal, before) {
            (false, _) => rounded(ops, &ops.sum(key, 1), self.recurrence.rounding),
            (true, None) => ops.cumulative_sum(key, 1),
            (true, Some(before)) => ops.add(&ops.cumulative_sum(key, 1), before),
        };
        let last = ops.shape(&sums)[1];
        (ops.sum(&ops.mul(query, &sums), 3), ops.slice(&sums, 1, last - 1..last))
    }
}

/// The sum over all tokens, before and after it, that every query reads, and the matrix that holds it.
pub(super) fn sum_of_all<O: Ops>(ops: &O, inputs: [&O::Tensor; 3], recurrence: LinearRecurrence) -> (O::Tensor, O::Tensor) {
    let [query, key, value] = inputs.map(|x| ops.permute(x, &[0, 2, 1, 3]));
    let matrix = rounded(ops, &ops.product(&key, true, &value, false), recurrence.rounding);
    (ops.permute(&ops.matmul(&query, &matrix), &[0, 2, 1, 3]), matrix)
}

impl TokenMixer for LinearAttention {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.read(ops, x, state);
        let out = self.norm.map_or(out.clone(), |norm| norm.norm(ops, &out));
        (self.output.apply(ops, &join(ops, &out)), state)
    }
}
