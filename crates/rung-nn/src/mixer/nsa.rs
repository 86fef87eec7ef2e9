//! Native sparse attention: attention to summaries of the past, to the few blocks with the highest scores, and to a window.
//!
//! Definition, state and sources: `rung explain nsa`.
//!
//! # Computed as
//! As defined; attention to the chosen blocks runs block by block. No gradient passes through the choice.

use std::ops::Range;

use rung_engine::{
    AttentionInputs, AttentionMask, BlockAttention, BlockChoice, Ops, Parameter, Role, Rounding, Scalar, top_k,
};
use rung_theory::stack::Mixer;

use super::attention::{HeadsConfig, KvCache, MASKED, MultiHeadAttention, Visibility};
use super::{MixerConfig, State, TokenMixer, number, reject_alibi, require_causal};
use crate::error::ModelError;
use crate::param_builder::{Init, ParamBuilder};
use crate::precision::apply_rounding;
use crate::submodules::Linear;

/// Queries that attend to the summaries at a time.
const QUERY_CHUNK: usize = 256;

/// Sizes of native sparse attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeSparseConfig {
    /// Sizes of the heads.
    pub heads: HeadsConfig,
    /// Tokens in a block.
    pub block: usize,
    /// Blocks that a query attends to.
    pub top: usize,
    /// Tokens in a summary.
    pub length: usize,
    /// Tokens from the start of a summary to that of the next.
    pub stride: usize,
    /// Tokens of the window; 0 for no window.
    pub window: usize,
}

/// Native sparse attention.
pub struct NativeSparse {
    config: NativeSparseConfig,
    heads: MultiHeadAttention,
    /// Weights of the tokens of a summary, `[length, channels]`, for keys and for values.
    summaries: [Parameter; 2],
    gate: Linear,
    rounding: Option<Rounding>,
}

impl NativeSparseConfig {
    /// Number of complete summaries of a sequence of this many tokens.
    fn summary_count(&self, tokens: usize) -> usize {
        if tokens < self.length { 0 } else { (tokens - self.length) / self.stride + 1 }
    }

    /// The overlap of a summary and a block, in strides.
    fn overlap(&self, summary: usize, block: usize) -> f64 {
        let start = (summary * self.stride).max(block * self.block);
        let end = (summary * self.stride + self.length).min((block + 1) * self.block);
        end.saturating_sub(start) as f64 / self.stride as f64
    }

    /// For every block of a sequence of this many tokens, the range of summaries that overlap it, and their overlaps.
    fn overlaps<S: Scalar>(&self, tokens: usize) -> Vec<(Range<usize>, Vec<S>)> {
        let block_overlaps = |block: usize| {
            let (start, end) = (block * self.block, (block + 1) * self.block);
            let first = if start < self.length { 0 } else { (start - self.length) / self.stride + 1 };
            let summaries = first..end.div_ceil(self.stride);
            (summaries.clone(), summaries.map(|summary| S::from_f64(self.overlap(summary, block))).collect())
        };
        (0..tokens.div_ceil(self.block)).map(block_overlaps).collect()
    }
}

impl MixerConfig for NativeSparseConfig {
    type Mixer = NativeSparse;
    const NAME: &'static str = "nsa";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [block, top, length] = ["block", "top", "length"].map(|option| number(mixer, option));
        let [stride, window] = ["stride", "window"].map(|option| number(mixer, option));
        Ok(Self { heads: HeadsConfig::resolve(mixer)?, block, top, length, stride, window })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<NativeSparse, ModelError> {
        require_causal(Self::NAME, params)?;
        reject_alibi(Self::NAME, params)?;
        let rounding = params.settings.precision.message;
        let heads = self.heads.init(Self::NAME, params, Visibility::Past, rounding)?;
        let mean = Init::Constant(1.0 / self.length as f64);
        let HeadsConfig { heads: head_count, kv_heads, key_dim, value_dim, .. } = self.heads;
        let summaries = [("k_compress.weight", key_dim), ("v_compress.weight", value_dim)]
            .map(|(name, width)| params.weight(name, &[self.length, kv_heads * width], mean));
        let branches = if self.window == 0 { 2 } else { 3 };
        let width = params.settings.width;
        let gate = params.role(Role::Gate).linear("g_proj", width, branches * head_count);
        Ok(NativeSparse { config: *self, heads, summaries, gate, rounding })
    }
}

impl NativeSparse {
    /// The summaries of keys (`kind` 0) or values (1) after new tokens: those in the state, and those that the new tokens complete.
    fn summarise<O: Ops>(
        &self,
        ops: &O,
        kind: usize,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> Option<O::Tensor> {
        let NativeSparseConfig { length, stride, .. } = self.config;
        let [batch, tokens, heads, width] = ops.shape(x)[..] else { unreachable!("keys have four axes") };
        let cached = State::tensor(state, 2 + kind).cloned();
        let new = cached.as_ref().map_or(0, |cached| ops.shape(cached)[1])..self.config.summary_count(tokens);
        if new.is_empty() {
            return cached;
        }
        let starts = (0..batch).flat_map(|row| new.clone().map(move |summary| row * tokens + summary * stride));
        let rows: Vec<usize> = starts.flat_map(|start| start..start + length).collect();
        let summarised = ops.gather_rows(&ops.reshape(x, &[batch * tokens, heads * width]), &rows);
        let summarised = ops.reshape(&summarised, &[batch, new.len(), length, heads * width]);
        let sums = ops.sum(&ops.mul(&summarised, &ops.parameter(self.summaries[kind])), 2);
        let sums = apply_rounding(ops, &ops.reshape(&sums, &[batch, new.len(), heads, width]), self.rounding);
        Some(cached.map_or_else(|| sums.clone(), |cached| ops.concat(&[cached, sums.clone()], 1)))
    }

    /// Attention of the last queries to the summaries, and the score of every block for each query, `[batch, kv, time, blocks]`. It
    /// processes [`QUERY_CHUNK`] queries at a time, and for them only the summaries that the last of them may attend to.
    fn attend_to_summaries<O: Ops>(
        &self,
        ops: &O,
        query: &O::Tensor,
        keys: usize,
        summaries: (&O::Tensor, &O::Tensor),
    ) -> (O::Tensor, Vec<O::Scalar>) {
        let HeadsConfig { heads, kv_heads, value_dim, .. } = self.config.heads;
        let (batch, time) = (ops.shape(query)[0], ops.shape(query)[1]);
        let group_size = heads / kv_heads;
        let overlaps = self.config.overlaps::<O::Scalar>(keys);
        let mut scores = vec![O::Scalar::ZERO; batch * kv_heads * time * overlaps.len()];
        let [key, value] = [summaries.0, summaries.1].map(|x| ops.permute(x, &[0, 2, 1, 3]));
        let outputs: Vec<O::Tensor> = (0..time)
            .step_by(QUERY_CHUNK)
            .map(|first| {
                let rows = first..time.min(first + QUERY_CHUNK);
                let visible: Vec<usize> =
                    rows.clone().map(|row| self.config.summary_count(row + keys - time + 1)).collect();
                let weights = self.summary_weights(ops, &ops.slice(query, 1, rows.clone()), &key, &visible);
                let count = ops.shape(&weights)[3];
                for (index, weights_row) in ops.values(&weights).chunks_exact(count).enumerate() {
                    let (kv_head, row) = (index / (group_size * rows.len()), rows.start + index % rows.len());
                    let blocks = (kv_head * time + row) * overlaps.len()..;
                    for (score, (summaries, overlaps)) in scores[blocks].iter_mut().zip(&overlaps) {
                        let weights = &weights_row[summaries.start.min(count)..summaries.end.min(count)];
                        *score +=
                            weights.iter().zip(overlaps).map(|(&weight, &overlap)| weight * overlap).sum::<O::Scalar>();
                    }
                }
                let out = ops.matmul(&weights, &ops.slice(&value, 2, 0..count));
                ops.permute(&ops.reshape(&out, &[batch, heads, rows.len(), value_dim]), &[0, 2, 1, 3])
            })
            .collect();
        (ops.concat(&outputs, 1), scores)
    }

    /// Attention weights on summaries, `[batch, kv, queries of the heads in the group, summaries]`. Query i may attend to the first
    /// `visible[i]` summaries.
    fn summary_weights<O: Ops>(&self, ops: &O, query: &O::Tensor, key: &O::Tensor, visible: &[usize]) -> O::Tensor {
        let HeadsConfig { heads, kv_heads, key_dim, .. } = self.config.heads;
        let (batch, rows, group_size) = (ops.shape(query)[0], visible.len(), heads / kv_heads);
        let count = visible[rows - 1].max(1);
        let query = ops.reshape(&ops.permute(query, &[0, 2, 1, 3]), &[batch, kv_heads, group_size * rows, key_dim]);
        let scores = ops.product(&query, false, &ops.slice(key, 2, 0..count), true);
        let mut mask = vec![O::Scalar::ZERO; rows * count];
        for (mask_row, visible) in mask.chunks_exact_mut(count).zip(visible) {
            mask_row[*visible..].fill(O::Scalar::from_f64(MASKED));
        }
        let mask = ops.constant(&[group_size * rows, count], &mask.repeat(group_size));
        let weights = ops.softmax(&ops.add(&ops.scale(&scores, self.config.heads.scale()), &mask));
        if visible[0] > 0 {
            return weights;
        }
        // The weights of a query without visible summaries are zero.
        let has_visible: Vec<O::Scalar> =
            visible.iter().map(|visible| O::Scalar::from_f64(if *visible > 0 { 1.0 } else { 0.0 })).collect();
        ops.mul(&weights, &ops.constant(&[group_size * rows, 1], &has_visible.repeat(group_size)))
    }

    /// The blocks that each of the last queries attends to, by their scores, or by their positions alone if there are no scores.
    fn choose<S: Scalar>(&self, [batch, time, keys]: [usize; 3], scores: Option<Vec<S>>) -> BlockChoice {
        let NativeSparseConfig { heads: HeadsConfig { kv_heads, .. }, block, top, .. } = self.config;
        let blocks = keys.div_ceil(block);
        let mut scores = scores.unwrap_or_else(|| vec![S::ZERO; batch * kv_heads * time * blocks]);
        let mut choice = BlockChoice::new(block, kv_heads);
        for (row, block_scores) in scores.chunks_exact_mut(blocks).enumerate() {
            let current = (row % time + keys - time) / block;
            // The first, previous and current block get scores above every sum of weights; if `top` < 3, the current block comes first.
            for (index, rank) in [(0, 1.0), (current.saturating_sub(1), 2.0), (current, 3.0)] {
                block_scores[index] = S::from_f64(rank * 1e9);
            }
            choice.push(top_k(&block_scores[..=current], top));
        }
        choice
    }

    /// The outputs of the branches (summaries, chosen blocks, window), each `[batch, time, heads, value]`.
    fn branches<O: Ops>(
        &self,
        ops: &O,
        query: &O::Tensor,
        cache: &KvCache<O::Tensor>,
        summaries: Option<(&O::Tensor, &O::Tensor)>,
    ) -> [Option<O::Tensor>; 3] {
        let (extents, keys) = (ops.shape(query), ops.shape(&cache.key)[1]);
        let (summary_branch, scores) =
            summaries.map(|summaries| self.attend_to_summaries(ops, query, keys, summaries)).unzip();
        let choice = self.choose([extents[0], extents[1], keys], scores);
        let (key, value, scale) = (&cache.key, &cache.value, self.config.heads.scale());
        let block_branch = ops.block_attention(&BlockAttention { query, key, value, choice: &choice, scale });
        let window_branch = (self.config.window > 0).then(|| {
            let mask = AttentionMask::Window(self.config.window);
            ops.attention(&AttentionInputs { query, key, value, bias: None, mask, scale })
        });
        [summary_branch, Some(block_branch), window_branch]
    }
}

impl TokenMixer for NativeSparse {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (cache, mut next) = self.heads.append_to_cache(ops, x, state);
        let summaries = [(0, &cache.key), (1, &cache.value)].map(|(kind, x)| self.summarise(ops, kind, x, state));
        next.tensors[2..4].clone_from_slice(&summaries);
        let [key, value] = summaries;
        let query = self.heads.query_heads().project_query(ops, x, State::past_len(state));
        let branches = self.branches(ops, &query, &cache, key.as_ref().zip(value.as_ref()));
        let (batch, time, heads) = (ops.shape(x)[0], ops.shape(x)[1], self.config.heads.heads);
        let gates = ops.sigmoid(&self.gate.apply(ops, x));
        let terms = branches.iter().enumerate().filter_map(|(index, branch)| {
            let branch = branch.as_ref()?;
            let gate = ops.slice(&gates, 2, index * heads..(index + 1) * heads);
            Some(ops.mul(branch, &ops.reshape(&gate, &[batch, time, heads, 1])))
        });
        let sum = terms.reduce(|sum, term| ops.add(&sum, &term)).expect("the branch of chosen blocks always exists");
        (self.heads.query_heads().project_output(ops, x, &sum), next)
    }
}
