//! Native sparse attention: summaries of the past, a few blocks that they make look best, and a window.
//!
//! Definition, state and sources: `rung explain nsa`.
//!
//! # Computed as
//! As written; the second softmax goes block by block. No gradient passes through the choice.

use std::ops::Range;

use rung_engine::{AttentionInputs, BlockAttention, BlockChoice, Ops, Parameter, Role, Rounding, Scalar, AttentionMask, highest};
use rung_theory::stack::Mixer;

use super::attention::{KvCache, MultiHeadAttention, HeadsConfig, MASKED, Visibility};
use super::{MixerConfig, State, TokenMixer, causal_only, number, without_alibi};
use crate::error::ModelError;
use crate::parts::Linear;
use crate::precision::rounded;
use crate::param_builder::{Init, ParamBuilder};

/// Queries that are held against the summaries at a time.
const SURVEYED: usize = 256;

/// Sizes of native sparse attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeSparseConfig {
    /// The heads.
    pub heads: HeadsConfig,
    /// Tokens in a block that can be chosen.
    pub block: usize,
    /// Blocks chosen.
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
    /// Weights of a summary's places, `[length, channels]`, of keys and of values.
    summaries: [Parameter; 2],
    gate: Linear,
    rounding: Option<Rounding>,
}

impl NativeSparseConfig {
    /// Summaries of a text of that many tokens.
    fn summaries(&self, tokens: usize) -> usize {
        if tokens < self.length { 0 } else { (tokens - self.length) / self.stride + 1 }
    }

    /// How much of a block a summary covers, in strides.
    fn share(&self, summary: usize, block: usize) -> f64 {
        let start = (summary * self.stride).max(block * self.block);
        let end = (summary * self.stride + self.length).min((block + 1) * self.block);
        end.saturating_sub(start) as f64 / self.stride as f64
    }

    /// For every block of a text of that many tokens, the summaries that touch it and how much of it each covers.
    fn covers<S: Scalar>(&self, tokens: usize) -> Vec<(Range<usize>, Vec<S>)> {
        let cover = |block: usize| {
            let (start, end) = (block * self.block, (block + 1) * self.block);
            let first = if start < self.length { 0 } else { (start - self.length) / self.stride + 1 };
            let touching = first..end.div_ceil(self.stride);
            (touching.clone(), touching.map(|summary| S::from_f64(self.share(summary, block))).collect())
        };
        (0..tokens.div_ceil(self.block)).map(cover).collect()
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
        causal_only(Self::NAME, params)?;
        without_alibi(Self::NAME, params)?;
        let rounding = params.settings.precision.message;
        let heads = self.heads.init(Self::NAME, params, Visibility::Past, rounding)?;
        let mean = Init::Constant(1.0 / self.length as f64);
        let HeadsConfig { heads: count, kv_heads, key, value, .. } = self.heads;
        let summaries = [("k_compress.weight", key), ("v_compress.weight", value)]
            .map(|(name, width)| params.weight(name, &[self.length, kv_heads * width], mean));
        let branches = if self.window == 0 { 2 } else { 3 };
        let width = params.settings.width;
        let gate = params.role(Role::Gate).linear("g_proj", width, branches * count);
        Ok(NativeSparse { config: *self, heads, summaries, gate, rounding })
    }
}

impl NativeSparse {
    /// The summaries of one kind after new tokens: those that were kept, and those that the tokens complete.
    fn summarise<O: Ops>(
        &self,
        ops: &O,
        kind: usize,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> Option<O::Tensor> {
        let NativeSparseConfig { length, stride, .. } = self.config;
        let [batch, tokens, heads, width] = ops.shape(x)[..] else { unreachable!("keys have four axes") };
        let kept = State::part(state, 2 + kind).cloned();
        let new = kept.as_ref().map_or(0, |kept| ops.shape(kept)[1])..self.config.summaries(tokens);
        if new.is_empty() {
            return kept;
        }
        let starts = (0..batch).flat_map(|row| new.clone().map(move |summary| row * tokens + summary * stride));
        let rows: Vec<usize> = starts.flat_map(|start| start..start + length).collect();
        let covered = ops.gather_rows(&ops.reshape(x, &[batch * tokens, heads * width]), &rows);
        let covered = ops.reshape(&covered, &[batch, new.len(), length, heads * width]);
        let sums = ops.sum(&ops.mul(&covered, &ops.parameter(self.summaries[kind])), 2);
        let sums = rounded(ops, &ops.reshape(&sums, &[batch, new.len(), heads, width]), self.rounding);
        Some(kept.map_or_else(|| sums.clone(), |kept| ops.concat(&[kept, sums.clone()], 1)))
    }

    /// What the last queries read of the summaries, and the score of every block for each of them, `[batch, kv, time, blocks]`. It goes
    /// by some queries at a time, and those look no further than the summaries that the last of them sees.
    fn survey<O: Ops>(
        &self,
        ops: &O,
        query: &O::Tensor,
        keys: usize,
        summaries: (&O::Tensor, &O::Tensor),
    ) -> (O::Tensor, Vec<O::Scalar>) {
        let HeadsConfig { heads, kv_heads, value: value_width, .. } = self.config.heads;
        let (batch, time) = (ops.shape(query)[0], ops.shape(query)[1]);
        let shared = heads / kv_heads;
        let covers = self.config.covers::<O::Scalar>(keys);
        let mut scores = vec![O::Scalar::ZERO; batch * kv_heads * time * covers.len()];
        let [key, value] = [summaries.0, summaries.1].map(|x| ops.permute(x, &[0, 2, 1, 3]));
        let reads: Vec<O::Tensor> = (0..time)
            .step_by(SURVEYED)
            .map(|first| {
                let rows = first..time.min(first + SURVEYED);
                let visible: Vec<usize> =
                    rows.clone().map(|row| self.config.summaries(row + keys - time + 1)).collect();
                let weights = self.weights(ops, &ops.slice(query, 1, rows.clone()), &key, &visible);
                let count = ops.shape(&weights)[3];
                for (line, weights) in ops.values(&weights).chunks_exact(count).enumerate() {
                    let (table, row) = (line / (shared * rows.len()), rows.start + line % rows.len());
                    let places = (table * time + row) * covers.len()..;
                    for (score, (covering, shares)) in scores[places].iter_mut().zip(&covers) {
                        let touching = &weights[covering.start.min(count)..covering.end.min(count)];
                        *score += touching.iter().zip(shares).map(|(&weight, &share)| weight * share).sum::<O::Scalar>();
                    }
                }
                let read = ops.matmul(&weights, &ops.slice(&value, 2, 0..count));
                ops.permute(&ops.reshape(&read, &[batch, heads, rows.len(), value_width]), &[0, 2, 1, 3])
            })
            .collect();
        (ops.concat(&reads, 1), scores)
    }

    /// Weights `[batch, kv, queries of the heads that share it, summaries]` of queries that see so many summaries each.
    fn weights<O: Ops>(&self, ops: &O, query: &O::Tensor, key: &O::Tensor, visible: &[usize]) -> O::Tensor {
        let HeadsConfig { heads, kv_heads, key: width, .. } = self.config.heads;
        let (batch, rows, shared) = (ops.shape(query)[0], visible.len(), heads / kv_heads);
        let count = visible[rows - 1].max(1);
        let query = ops.reshape(&ops.permute(query, &[0, 2, 1, 3]), &[batch, kv_heads, shared * rows, width]);
        let scores = ops.product(&query, false, &ops.slice(key, 2, 0..count), true);
        let mut mask = vec![O::Scalar::ZERO; rows * count];
        for (line, visible) in mask.chunks_exact_mut(count).zip(visible) {
            line[*visible..].fill(O::Scalar::from_f64(MASKED));
        }
        let mask = ops.constant(&[shared * rows, count], &mask.repeat(shared));
        let weights = ops.softmax(&ops.add(&ops.scale(&scores, self.config.heads.scale()), &mask));
        if visible[0] > 0 {
            return weights;
        }
        // A query that sees none reads nothing.
        let some: Vec<O::Scalar> =
            visible.iter().map(|visible| O::Scalar::from_f64(if *visible > 0 { 1.0 } else { 0.0 })).collect();
        ops.mul(&weights, &ops.constant(&[shared * rows, 1], &some.repeat(shared)))
    }

    /// The blocks that each of the last queries reads, by their scores; by their places alone if there are no scores.
    fn choose<S: Scalar>(&self, [batch, time, keys]: [usize; 3], scores: Option<Vec<S>>) -> BlockChoice {
        let NativeSparseConfig { heads: HeadsConfig { kv_heads, .. }, block, top, .. } = self.config;
        let blocks = keys.div_ceil(block);
        let mut scores = scores.unwrap_or_else(|| vec![S::ZERO; batch * kv_heads * time * blocks]);
        let mut choice = BlockChoice::new(block, kv_heads);
        for (row, line) in scores.chunks_exact_mut(blocks).enumerate() {
            let own = (row % time + keys - time) / block;
            // Above every score, which is a sum of weights: in this order, should `top` be too few for all three.
            for (place, rank) in [(0, 1.0), (own.saturating_sub(1), 2.0), (own, 3.0)] {
                line[place] = S::from_f64(rank * 1e9);
            }
            choice.push(highest(&line[..=own], top));
        }
        choice
    }

    /// The branches that there are, each `[batch, time, heads, value]`.
    fn branches<O: Ops>(
        &self,
        ops: &O,
        query: &O::Tensor,
        cache: &KvCache<O::Tensor>,
        summaries: Option<(&O::Tensor, &O::Tensor)>,
    ) -> [Option<O::Tensor>; 3] {
        let (extents, keys) = (ops.shape(query), ops.shape(&cache.key)[1]);
        let (first, scores) = summaries.map(|summaries| self.survey(ops, query, keys, summaries)).unzip();
        let choice = self.choose([extents[0], extents[1], keys], scores);
        let (key, value, scale) = (&cache.key, &cache.value, self.config.heads.scale());
        let second = ops.block_attention(&BlockAttention { query, key, value, choice: &choice, scale });
        let third = (self.config.window > 0).then(|| {
            let mask = AttentionMask::Window(self.config.window);
            ops.attention(&AttentionInputs { query, key, value, bias: None, mask, scale })
        });
        [first, Some(second), third]
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
        let query = self.heads.reader().project_query(ops, x, State::seen(state));
        let branches = self.branches(ops, &query, &cache, key.as_ref().zip(value.as_ref()));
        let (batch, time, heads) = (ops.shape(x)[0], ops.shape(x)[1], self.config.heads.heads);
        let gates = ops.sigmoid(&self.gate.apply(ops, x));
        let terms = branches.iter().enumerate().filter_map(|(index, read)| {
            let read = read.as_ref()?;
            let gate = ops.slice(&gates, 2, index * heads..(index + 1) * heads);
            Some(ops.mul(read, &ops.reshape(&gate, &[batch, time, heads, 1])))
        });
        let sum = terms.reduce(|sum, term| ops.add(&sum, &term)).expect("the second branch is always there");
        (self.heads.reader().project_output(ops, x, &sum), next)
    }
}
