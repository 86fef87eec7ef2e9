//! What attention in published checkpoints has besides plain heads: norms on queries and keys, caps on scores, sinks, a gate.
//!
//! A read with a cap or a sink is composed of primitives here: no kernel knows them.

use rung_engine::{AttentionMask, Ops, Parameter, Scalar};

use super::attention::{HeadsConfig, KvCache, MASKED};
use crate::parts::{Linear, join, split};

/// Parts that a head may have; none by default.
#[derive(Clone, Default)]
pub struct HeadOptions {
    /// Factor on scores, if not the root of the key width.
    pub scale: Option<f64>,
    /// On queries, before they are turned.
    pub query_norm: Option<HeadNorm>,
    /// On keys, before they are turned.
    pub key_norm: Option<HeadNorm>,
    /// Scores become `cap tanh(score / cap)`.
    pub score_cap: Option<f64>,
    /// A score for each head that takes part in the softmax and reads nothing.
    pub sinks: Option<Parameter>,
    /// What heads read is multiplied by the sigmoid of this projection of the token.
    pub gate: Option<Linear>,
}

/// An RMS norm of queries or keys.
#[derive(Clone, Copy, Debug)]
pub struct HeadNorm {
    /// A gain per channel of one head, or of all.
    pub weight: Parameter,
    /// Added to the mean of squares.
    pub epsilon: f64,
    /// Over all heads together, instead of each by itself.
    pub over_all_heads: bool,
}

/// A projection of tokens, split into heads, with its norm.
pub(super) fn project<O: Ops>(
    ops: &O,
    linear: &Linear,
    norm: Option<&HeadNorm>,
    x: &O::Tensor,
    heads: usize,
) -> O::Tensor {
    let x = linear.apply(ops, x);
    let Some(norm) = norm else { return split(ops, &x, heads) };
    let normed = |x: &O::Tensor| ops.rms_norm(x, Some(&ops.parameter(norm.weight)), norm.epsilon);
    if norm.over_all_heads { split(ops, &normed(&x), heads) } else { normed(&split(ops, &x, heads)) }
}

impl HeadOptions {
    /// Whether the fused kernel can read for such heads.
    pub(super) fn plain_scores(&self) -> bool {
        self.score_cap.is_none() && self.sinks.is_none()
    }

    /// What the heads read, times the gate of the tokens `x`.
    pub(super) fn gated<O: Ops>(&self, ops: &O, x: &O::Tensor, read: &O::Tensor) -> O::Tensor {
        let read = join(ops, read);
        match &self.gate {
            Some(gate) => ops.mul(&ops.sigmoid(&gate.apply(ops, x)), &read),
            None => read,
        }
    }

    /// Softmax attention with caps and sinks: `[batch, queries, heads, value width]`.
    ///
    /// # Panics
    /// If a tensor has other than four axes.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        config: HeadsConfig,
        query: &O::Tensor,
        cache: &KvCache<O::Tensor>,
        mask: AttentionMask,
        scale: f64,
    ) -> O::Tensor {
        let [batch, queries, heads, width] = ops.shape(query)[..] else { panic!("heads of {}", ops.shape(query)) };
        let keys = ops.shape(&cache.key)[1];
        let groups = batch * config.kv_heads;
        let rows = heads / config.kv_heads * queries;
        let by_group = |x: &O::Tensor, rows: usize, width: usize| {
            ops.reshape(&ops.permute(x, &[0, 2, 1, 3]), &[groups, rows, width])
        };
        let (query, key) = (by_group(query, rows, width), by_group(&cache.key, keys, width));
        let value = by_group(&cache.value, keys, config.value);
        let mut scores = ops.scale(&ops.product(&query, false, &key, true), scale);
        if let Some(cap) = self.score_cap {
            scores = ops.scale(&ops.tanh(&ops.scale(&scores, 1.0 / cap)), cap);
        }
        let masked = (0..queries).flat_map(|query| {
            let seen = mask.range(keys - queries + query, keys);
            (0..keys).map(move |key| O::Scalar::from_f64(if seen.contains(&key) { 0.0 } else { MASKED }))
        });
        let mask = ops.constant(&[1, 1, queries, keys], &masked.collect::<Vec<_>>());
        scores = ops.add(&ops.reshape(&scores, &[batch, heads, queries, keys]), &mask);
        if let Some(sinks) = self.sinks {
            let sinks = ops.reshape(&ops.parameter(sinks), &[1, heads, 1, 1]);
            scores = ops.concat(&[scores, ops.broadcast(&sinks, &[batch, heads, queries, 1])], 3);
        }
        let mut weights = ops.softmax(&scores);
        if self.sinks.is_some() {
            weights = ops.slice(&weights, 3, 0..keys);
        }
        let read = ops.product(&ops.reshape(&weights, &[groups, rows, keys]), false, &value, false);
        ops.permute(&ops.reshape(&read, &[batch, heads, queries, config.value]), &[0, 2, 1, 3])
    }
}
