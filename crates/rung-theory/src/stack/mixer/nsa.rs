//! Native sparse attention: compressed blocks, a few chosen blocks, and a window.
//!
//! Three branches with gates: attention to block summaries, to the tokens of the blocks those summaries make look best,
//! and to the last tokens.
//!
//! # Recurrence
//! A summary is one key and one value of `length` tokens, begun at every `stride`: each channel a weighted sum over
//! the tokens, with a weight for each place. Three softmaxes over the same keys and values, `o = g_1 o_1 + g_2 o_2 +
//! g_3 o_3` with gates between 0 and 1 from the token: `o_1` over the summaries whose last token is seen (zero where
//! there is none), `o_2` over the tokens of the chosen blocks, `o_3` over the last `window`. A block's score is the
//! weight that summaries got in `o_1`, by how much of it they cover, summed over the heads that share a key head. Of
//! the `top` blocks one is the query's own, one that before, one the first, and the others score highest, of equal
//! ones the earlier.
//!
//! # Parallel form
//! Three masked softmaxes, the second with a mask that depends on the first.
//!
//! # State
//! None of fixed size: `kv * (key + value)` numbers per token, and one compressed pair per `stride` tokens.
//!
//! # Reduces to
//! Full causal attention in its second branch when `top` reaches the number of blocks.
//!
//! # Held against
//! A second implementation from the definition, simpler than the paper in three ways. The branches share keys and
//! values, as in `fla`; the paper gives each its own. A summary is a weighted sum over the places of its tokens, for
//! each channel; the paper has an MLP with positions, `fla` a mean. The first block, the one before and the query's
//! own are always taken, as in `fla`.
//!
//! # Source
//! Yuan et al. 2025 (2502.11089), with keys and values that the branches share, and linear summaries that start as
//! means.

use super::{
    Benchmark, Facts, Flops, HEAD, KEY, KV_HEADS, MessageSize, MixerKind, QUERY_HEADS, MixerReach, Reference, TokenSelection,
    Summaries, VALUE, attention, count, size, with_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "nsa",
    aliases: &["native-sparse"],
    options: &[
        QUERY_HEADS,
        KV_HEADS,
        HEAD,
        KEY,
        VALUE,
        size("block", "tokens in a block that can be chosen", |_| 64),
        size("top", "blocks chosen by a group", |_| 16),
        size("length", "tokens in a summary", |_| 32),
        size("stride", "tokens between summaries", |_| 16),
        count("window", "tokens of the window, 0 for none", |_| 512),
    ],
    facts: |n| {
        let (heads, kv, key, value) = (n.size("heads"), n.size("kv"), n.size("key"), n.size("value"));
        let (block, top, window) = (n.size("block"), n.size("top"), n.size("window"));
        let (length, stride) = (n.size("length"), n.size("stride"));
        // Gates of the branches, and a weight for each channel and position of a summary.
        let branches = if window == 0 { 2 } else { 3 };
        let projections = with_weights(&attention(n), n.width() * branches * heads + length * kv * (key + value));
        // Summaries that overlap a block: those that start in it, and those that reach into it from before.
        let summaries = block.div_ceil(stride) + length.div_ceil(stride) - 1;
        let selection = TokenSelection {
            groups: kv,
            // Beside the chosen blocks those of the window, and those of summaries that are not yet complete.
            picked: top + window.max(length - 1).div_ceil(block),
            block,
            cached: key + value,
            compressed: true,
            summary: summaries * kv * (key + value),
        };
        Facts {
            reach: MixerReach::Full(MessageSize { heads, value, selection: Some(selection) }),
            cache_per_token: kv * (key + value),
            summaries: Summaries { numbers: kv * (key + value), length, stride },
            flops: Flops { max_attended: Some(top * block + window), ..projections.flops },
            ..projections
        }
    },
    benchmark: |benchmark| match benchmark {
        Benchmark::Length(_) => vec![
            ("block", benchmark.block()),
            ("top", 4),
            ("length", benchmark.block()),
            ("stride", benchmark.block() / 2),
            ("window", benchmark.quarter()),
        ],
        Benchmark::Growth(_) => vec![("block", 64), ("top", 4), ("length", 32), ("stride", 16), ("window", 64)],
    },
    reference: Reference::Definition,
    ..MixerKind::DEFAULT
};
