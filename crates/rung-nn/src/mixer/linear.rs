//! Linear attention: a feature map in place of the exponential, so that the past is one sum.
//!
//! # Recurrence
//! `S_t = S_{t-1} + phi(k_t) v_t'`, `z_t = z_{t-1} + phi(k_t)`, `o_t = S_t' phi(q_t) / (phi(q_t).z_t + 1e-6)`; phi is elu+1, relu
//! or the identity. Without the normaliser z and the division go, q is divided by the root of its width, and a norm per head
//! stands after the read.
//!
//! # Parallel form
//! `tril(phi(Q) phi(K)') V` in chunks, rows divided by their sums if normalised. A bidirectional model drops the mask.
//!
//! # State
//! `heads * key * value` numbers, and `heads * key` more with the normaliser.
//!
//! # Reduces to
//! RetNet with decay 1 and no rotation; GLA with open gates.
//!
//! # Source
//! Katharopoulos et al. 2020 (2006.16236).

use rung_engine::{Decay, Ops, Recurrence, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, number};
use crate::error::ModelError;
use crate::parts::{Gain, Linear, join};
use crate::site::Site;

/// The feature map of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureMap {
    /// `x + 1` above zero, `exp(x)` below.
    EluPlusOne,
    /// `max(x, 0)`.
    Relu,
    /// x itself.
    Identity,
}

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
    query: Linear,
    key: Linear,
    value: Linear,
    norm: Option<Gain>,
    output: Linear,
    chunk: usize,
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
            normaliser: number(mixer, "normaliser") == 0,
            map: [FeatureMap::EluPlusOne, FeatureMap::Relu, FeatureMap::Identity][number(mixer, "map")],
        })
    }

    fn init<S: Scalar>(&self, site: &mut Site<'_, S>) -> Result<LinearAttention, ModelError> {
        let Self { heads, key, value, .. } = *self;
        let width = site.settings.width;
        let query = site.linear("q_proj", width, heads * key);
        let keys = site.linear("k_proj", width, heads * key);
        site.tie(&query, &keys, heads, heads);
        Ok(LinearAttention {
            config: *self,
            query,
            key: keys,
            value: site.linear("v_proj", width, heads * value),
            norm: (!self.normaliser).then(|| site.gain("norm", value)),
            output: site.linear("o_proj", heads * value, width),
            chunk: site.settings.chunk,
            causal: site.settings.causal,
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
        let LinearAttentionConfig { heads, key: width, normaliser, .. } = self.config;
        let mut query = self.map(ops, &self.query.heads(ops, x, heads));
        let key = self.map(ops, &self.key.heads(ops, x, heads));
        let value = self.value.heads(ops, x, heads);
        if !normaliser {
            query = ops.scale(&query, (width as f64).powf(-0.5));
        }
        let time = ops.shape(x)[1];
        let (out, matrix) = if self.causal {
            ops.recurrence(&Recurrence {
                query: &query,
                key: &key,
                value: &value,
                decay: Decay::None,
                beta: None,
                state: State::part(state, 0),
                chunk: self.chunk,
            })
        } else {
            read_all(ops, &query, &key, &value)
        };
        let seen = State::seen(state) + time;
        if !normaliser {
            return (out, State::new(seen, [Some(matrix)]));
        }
        let sums = match (self.causal, State::part(state, 1)) {
            (false, _) => ops.sum(&key, 1),
            (true, None) => ops.cumulative_sum(&key, 1),
            (true, Some(before)) => ops.add(&ops.cumulative_sum(&key, 1), before),
        };
        let weight = ops.affine(&ops.sum(&ops.mul(&query, &sums), 3), 1.0, Self::EPSILON);
        let last = ops.shape(&sums)[1];
        (ops.div(&out, &weight), State::new(seen, [Some(matrix), Some(ops.slice(&sums, 1, last - 1..last))]))
    }
}

/// Every query reads the sum over all tokens, before and after it.
fn read_all<O: Ops>(ops: &O, query: &O::Tensor, key: &O::Tensor, value: &O::Tensor) -> (O::Tensor, O::Tensor) {
    let first = |x: &O::Tensor| ops.permute(x, &[0, 2, 1, 3]);
    let matrix = ops.product(&first(key), true, &first(value), false);
    (first(&ops.matmul(&first(query), &matrix)), matrix)
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
