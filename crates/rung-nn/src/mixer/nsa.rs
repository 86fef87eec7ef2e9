//! Native sparse attention: summaries of the past, a few blocks that they make look best, and a window.
//!
//! # Recurrence
//! A summary is one key and one value of `length` tokens, begun at every `stride`: each channel a weighted sum over the tokens,
//! with a weight for each place. Three softmaxes over the same keys and values, `o = g_1 o_1 + g_2 o_2 + g_3 o_3` with gates
//! between 0 and 1 from the token: `o_1` over the summaries whose last token is seen (zero where there is none), `o_2` over the
//! tokens of the chosen blocks, `o_3` over the last `window`. A block's score is the weight that summaries got in `o_1`, by how much
//! of it they cover, summed over the heads that share a key head. Of the `top` blocks one is the query's own, one that before,
//! one the first, and the others score highest, of equal ones the earlier.
//!
//! # Parallel form
//! As written; the second softmax goes block by block. No gradient passes through the choice.
//!
//! # State
//! `kv * (key + value)` numbers for each token so far, and as many for each summary.
//!
//! # Reduces to
//! Full attention in its second branch when `top` reaches the number of blocks.
//!
//! # Source
//! Yuan et al. 2025 (2502.11089), with keys and values that the branches share, and linear summaries that start as means.

use rung_engine::{Attention, BlockAttention, Choice, Ops, Parameter, Rounding, Scalar, Sight, highest};
use rung_theory::stack::Mixer;

use super::attention::{Cache, Heads, HeadsConfig, MASKED, Reach};
use super::{MixerConfig, State, TokenMixer, causal_only, number, without_alibi};
use crate::error::ModelError;
use crate::parts::Linear;
use crate::precision::rounded;
use crate::site::{Fill, Site};

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
    heads: Heads,
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
}

impl MixerConfig for NativeSparseConfig {
    type Mixer = NativeSparse;
    const NAME: &'static str = "nsa";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [block, top, length] = ["block", "top", "length"].map(|option| number(mixer, option));
        let [stride, window] = ["stride", "window"].map(|option| number(mixer, option));
        Ok(Self { heads: HeadsConfig::resolve(mixer)?, block, top, length, stride, window })
    }

    fn init<S: Scalar>(&self, site: &mut Site<'_, S>) -> Result<NativeSparse, ModelError> {
        causal_only(Self::NAME, site)?;
        without_alibi(Self::NAME, site)?;
        let rounding = site.settings.precision.message;
        let heads = self.heads.init(Self::NAME, site, Reach::Past, rounding)?;
        let mean = Fill::Constant(1.0 / self.length as f64);
        let HeadsConfig { heads: count, kv_heads, key, value, .. } = self.heads;
        let summaries = [("k_compress.weight", key), ("v_compress.weight", value)]
            .map(|(name, width)| site.weight(name, &[self.length, kv_heads * width], mean));
        let branches = if self.window == 0 { 2 } else { 3 };
        let gate = site.linear("g_proj", site.settings.width, branches * count);
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

    /// Weights `[batch, kv, queries of the heads that share it, summaries]` of the first branch, and what it reads.
    fn survey<O: Ops>(
        &self,
        ops: &O,
        query: &O::Tensor,
        keys: usize,
        (key, value): &(O::Tensor, O::Tensor),
    ) -> (O::Tensor, O::Tensor) {
        let HeadsConfig { heads, kv_heads, key: width, value: value_width, .. } = self.config.heads;
        let (batch, time, count) = (ops.shape(query)[0], ops.shape(query)[1], ops.shape(key)[1]);
        let shared = heads / kv_heads;
        let visible = |query: usize| self.config.summaries(query + keys - time + 1);
        let cells = (0..shared * time).flat_map(|row| (0..count).map(move |summary| (row % time, summary)));
        let mask: Vec<O::Scalar> =
            cells.map(|(query, summary)| O::Scalar::of(if summary < visible(query) { 0.0 } else { MASKED })).collect();
        // A query that sees none reads nothing.
        let some: Vec<O::Scalar> =
            (0..shared * time).map(|row| O::Scalar::of(f64::from(u8::from(visible(row % time) > 0)))).collect();
        let [key, value] = [key, value].map(|x| ops.permute(x, &[0, 2, 1, 3]));
        let query = ops.reshape(&ops.permute(query, &[0, 2, 1, 3]), &[batch, kv_heads, shared * time, width]);
        let scores = ops.scale(&ops.product(&query, false, &key, true), self.config.heads.scale());
        let weights = ops.softmax(&ops.add(&scores, &ops.constant(&[shared * time, count], &mask)));
        let weights = ops.mul(&weights, &ops.constant(&[shared * time, 1], &some));
        let read = ops.reshape(&ops.matmul(&weights, &value), &[batch, heads, time, value_width]);
        (weights, ops.permute(&read, &[0, 2, 1, 3]))
    }

    /// The blocks that each of the last queries reads, by the weights of the summaries, if there are any.
    fn choose<O: Ops>(&self, ops: &O, [batch, time, keys]: [usize; 3], weights: Option<&O::Tensor>) -> Choice {
        let NativeSparseConfig { heads: HeadsConfig { heads, kv_heads, .. }, block, top, .. } = self.config;
        let blocks = keys.div_ceil(block);
        let scores = weights.map(|weights| {
            let count = ops.shape(weights)[3];
            let cells = (0..count).flat_map(|summary| (0..blocks).map(move |block| (summary, block)));
            let shares: Vec<O::Scalar> =
                cells.map(|(summary, block)| O::Scalar::of(self.config.share(summary, block))).collect();
            let scores = ops.matmul(&ops.detach(weights), &ops.constant(&[count, blocks], &shares));
            ops.values(&ops.sum(&ops.reshape(&scores, &[batch, kv_heads, heads / kv_heads, time, blocks]), 2))
        });
        let mut choice = Choice::new(block, kv_heads);
        for row in 0..batch * kv_heads * time {
            let own = (row % time + keys - time) / block;
            let mut line = scores
                .as_ref()
                .map_or_else(|| vec![O::Scalar::ZERO; own + 1], |all| all[row * blocks..][..=own].to_vec());
            // Above every score, which is a sum of weights: in this order, should `top` be too few for all three.
            for (place, rank) in [(0, 1.0), (own.saturating_sub(1), 2.0), (own, 3.0)] {
                line[place] = O::Scalar::of(rank * 1e9);
            }
            choice.push(highest(&line, top));
        }
        choice
    }

    /// The branches that there are, each `[batch, time, heads, value]`.
    fn branches<O: Ops>(
        &self,
        ops: &O,
        query: &O::Tensor,
        cache: &Cache<O::Tensor>,
        summaries: Option<(O::Tensor, O::Tensor)>,
    ) -> [Option<O::Tensor>; 3] {
        let (extents, keys) = (ops.shape(query), ops.shape(&cache.key)[1]);
        let (weights, first) = summaries.map(|summaries| self.survey(ops, query, keys, &summaries)).unzip();
        let choice = self.choose(ops, [extents[0], extents[1], keys], weights.as_ref());
        let (key, value, scale) = (&cache.key, &cache.value, self.config.heads.scale());
        let second = ops.block_attention(&BlockAttention { query, key, value, choice: &choice, scale });
        let third = (self.config.window > 0).then(|| {
            let sight = Sight::Window(self.config.window);
            ops.attention(&Attention { query, key, value, bias: None, sight, scale })
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
        let (cache, mut next) = self.heads.keep(ops, x, state);
        let summaries = [(0, &cache.key), (1, &cache.value)].map(|(kind, x)| self.summarise(ops, kind, x, state));
        next.tensors[2..4].clone_from_slice(&summaries);
        let [key, value] = summaries;
        let query = self.heads.reader().ask(ops, x, State::seen(state));
        let branches = self.branches(ops, &query, &cache, key.zip(value));
        let (batch, time, heads) = (ops.shape(x)[0], ops.shape(x)[1], self.config.heads.heads);
        let gates = ops.sigmoid(&self.gate.apply(ops, x));
        let terms = branches.iter().enumerate().filter_map(|(index, read)| {
            let read = read.as_ref()?;
            let gate = ops.slice(&gates, 2, index * heads..(index + 1) * heads);
            Some(ops.mul(read, &ops.reshape(&gate, &[batch, time, heads, 1])))
        });
        let sum = terms.reduce(|sum, term| ops.add(&sum, &term)).expect("the second branch is always there");
        (self.heads.reader().answer(ops, &sum), next)
    }
}
