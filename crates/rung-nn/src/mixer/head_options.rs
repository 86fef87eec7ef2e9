//! Options of attention in published checkpoints: norms on queries and keys, caps on scores, attention sinks, an output gate.
//!
//! Attention with a cap or a sink is composed of primitives here, because the fused kernel does not support them.

use rung_engine::{AttentionMask, Ops, Parameter, Scalar};

use super::attention::{HeadsConfig, KvCache, MASKED};
use crate::submodules::{Linear, merge_heads, split_heads};

/// Options of attention heads; none by default.
#[derive(Clone, Default)]
pub struct HeadOptions {
    /// Scale of the scores, if not one over the root of the key width.
    pub scale: Option<f64>,
    /// Norm of queries, before their rotation.
    pub query_norm: Option<HeadNorm>,
    /// Norm of keys, before their rotation.
    pub key_norm: Option<HeadNorm>,
    /// Scores become `cap tanh(score / cap)`.
    pub score_cap: Option<f64>,
    /// One score per head that takes part in the softmax but has no value.
    pub sinks: Option<Parameter>,
    /// The outputs of the heads are multiplied by the sigmoid of this projection of the token.
    pub gate: Option<Linear>,
}

/// An RMS norm of queries or keys.
#[derive(Clone, Copy, Debug)]
pub struct HeadNorm {
    /// A gain per channel, of one head or of all heads.
    pub weight: Parameter,
    /// Added to the mean of squares.
    pub epsilon: f64,
    /// Whether the norm is over all heads together, not over each separately.
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
    let Some(norm) = norm else { return split_heads(ops, &x, heads) };
    let apply_norm = |x: &O::Tensor| ops.rms_norm(x, Some(&ops.parameter(norm.weight)), norm.epsilon);
    if norm.over_all_heads {
        split_heads(ops, &apply_norm(&x), heads)
    } else {
        apply_norm(&split_heads(ops, &x, heads))
    }
}

impl HeadOptions {
    /// Whether the fused attention kernel can compute these heads.
    pub(super) fn supports_fused_kernel(&self) -> bool {
        self.score_cap.is_none() && self.sinks.is_none()
    }

    /// Merges the outputs of the heads and multiplies them by the gate of the mixer's input `x`, if there is a gate.
    pub(super) fn gate_heads<O: Ops>(&self, ops: &O, x: &O::Tensor, head_outputs: &O::Tensor) -> O::Tensor {
        let out = merge_heads(ops, head_outputs);
        match &self.gate {
            Some(gate) => ops.mul(&ops.sigmoid(&gate.apply(ops, x)), &out),
            None => out,
        }
    }

    /// Softmax attention with caps and sinks: `[batch, queries, heads, value width]`.
    ///
    /// # Panics
    /// If a tensor has other than four axes.
    pub(super) fn attend<O: Ops>(
        &self,
        ops: &O,
        config: HeadsConfig,
        query: &O::Tensor,
        cache: &KvCache<O::Tensor>,
        mask: AttentionMask,
        scale: f64,
    ) -> O::Tensor {
        let [batch, query_count, heads, width] = ops.shape(query)[..] else { panic!("heads of {}", ops.shape(query)) };
        let key_count = ops.shape(&cache.key)[1];
        let groups = batch * config.kv_heads;
        let rows = heads / config.kv_heads * query_count;
        let group_heads = |x: &O::Tensor, rows: usize, width: usize| {
            ops.reshape(&ops.permute(x, &[0, 2, 1, 3]), &[groups, rows, width])
        };
        let (query, key) = (group_heads(query, rows, width), group_heads(&cache.key, key_count, width));
        let value = group_heads(&cache.value, key_count, config.value_dim);
        let mut scores = ops.scale(&ops.product(&query, false, &key, true), scale);
        if let Some(cap) = self.score_cap {
            scores = ops.scale(&ops.tanh(&ops.scale(&scores, 1.0 / cap)), cap);
        }
        let mask_values = (0..query_count).flat_map(|query| {
            let visible = mask.range(key_count - query_count + query, key_count);
            (0..key_count).map(move |key| O::Scalar::from_f64(if visible.contains(&key) { 0.0 } else { MASKED }))
        });
        let mask = ops.constant(&[1, 1, query_count, key_count], &mask_values.collect::<Vec<_>>());
        scores = ops.add(&ops.reshape(&scores, &[batch, heads, query_count, key_count]), &mask);
        if let Some(sinks) = self.sinks {
            let sinks = ops.reshape(&ops.parameter(sinks), &[1, heads, 1, 1]);
            scores = ops.concat(&[scores, ops.broadcast(&sinks, &[batch, heads, query_count, 1])], 3);
        }
        let mut weights = ops.softmax(&scores);
        if self.sinks.is_some() {
            weights = ops.slice(&weights, 3, 0..key_count);
        }
        let out = ops.product(&ops.reshape(&weights, &[groups, rows, key_count]), false, &value, false);
        ops.permute(&ops.reshape(&out, &[batch, heads, query_count, config.value_dim]), &[0, 2, 1, 3])
    }
}
