//! Native sparse attention: compressed blocks, a few selected blocks, and a window.
//!
//! Three gated branches: attention to block summaries, to the tokens of the blocks with the highest scores, and to the last
//! tokens.
//!
//! # Recurrence
//! A summary is one key and one value for `length` tokens, starting at every `stride`: each channel is a weighted sum over
//! the tokens, with a weight for each position. Three softmaxes over the same keys and values, `o = g_1 o_1 + g_2 o_2 +
//! g_3 o_3` with gates between 0 and 1 from the token: `o_1` over the summaries whose last token is not later than the query
//! (zero if there is none), `o_2` over the tokens of the selected blocks, `o_3` over the last `window`. A block's score is the
//! weight of its summaries in `o_1`, in proportion to their overlap with it, summed over the heads that share a key head. The `top`
//! blocks are the query's own, the one before it, the first, and those with the highest scores, the earlier of equal ones.
//!
//! # Parallel form
//! Three masked softmaxes, the second with a mask that depends on the first.
//!
//! # State
//! None of fixed size: `kv * (key + value)` elements per token, and one compressed pair per `stride` tokens.
//!
//! # Reduces to
//! Full causal attention in its second branch if `top` is at least the number of blocks.
//!
//! # Reference implementation
//! A second implementation from the definition, simpler than the paper in three ways. The branches share keys and
//! values, as in `fla`; the paper gives each its own. A summary is a weighted sum over the positions of its tokens, for
//! each channel; the paper has an MLP with positions, `fla` a mean. The first block, the one before and the query's
//! own are always selected, as in `fla`.
//!
//! # Source
//! Yuan et al. 2025 (2502.11089), with keys and values that the branches share, and linear summaries that start as
//! means.

use super::{
    Benchmark, Facts, Flops, HEAD_DIM, KEY_HEAD_DIM, KV_HEADS, MessageSize, MixerKind, MixerReach, QUERY_HEADS,
    Reference, Summaries, TokenSelection, VALUE_HEAD_DIM, attention, count, size, with_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "nsa",
    aliases: &["native-sparse"],
    options: &[
        QUERY_HEADS,
        KV_HEADS,
        HEAD_DIM,
        KEY_HEAD_DIM,
        VALUE_HEAD_DIM,
        size("block", "tokens in a block that can be chosen", |_| 64),
        size("top", "blocks chosen by a group", |_| 16),
        size("length", "tokens in a summary", |_| 32),
        size("stride", "tokens between summaries", |_| 16),
        count("window", "tokens of the window, 0 for none", |_| 512),
    ],
    facts: |options| {
        let (heads, kv_heads, key_head_dim, value_head_dim) =
            (options.size("heads"), options.size("kv"), options.size("key"), options.size("value"));
        let (block, top, window) = (options.size("block"), options.size("top"), options.size("window"));
        let (length, stride) = (options.size("length"), options.size("stride"));
        // Gates of the branches, and a weight for each channel and position of a summary.
        let branches = if window == 0 { 2 } else { 3 };
        let projections = with_weights(
            &attention(options),
            options.width() * branches * heads + length * kv_heads * (key_head_dim + value_head_dim),
        );
        // Summaries that overlap a block: those that start in it, and those that start before and end in it.
        let summaries = block.div_ceil(stride) + length.div_ceil(stride) - 1;
        let selection = TokenSelection {
            groups: kv_heads,
            // The selected blocks, those of the window, and those of summaries that are not yet complete.
            selected_count: top + window.max(length - 1).div_ceil(block),
            block,
            cached_elements_per_token: key_head_dim + value_head_dim,
            compressed: true,
            summary_elements: summaries * kv_heads * (key_head_dim + value_head_dim),
        };
        Facts {
            reach: MixerReach::Full(MessageSize { heads, value_head_dim, selection: Some(selection) }),
            cache_per_token: kv_heads * (key_head_dim + value_head_dim),
            summaries: Summaries { entry_size: kv_heads * (key_head_dim + value_head_dim), length, stride },
            flops: Flops { max_attended: Some(top * block + window), ..projections.flops },
            ..projections
        }
    },
    benchmark: |benchmark| match benchmark {
        Benchmark::Length(_) => vec![
            ("block", benchmark.block_tokens()),
            ("top", 4),
            ("length", benchmark.block_tokens()),
            ("stride", benchmark.block_tokens() / 2),
            ("window", benchmark.window_tokens()),
        ],
        Benchmark::Growth(_) => vec![("block", 64), ("top", 4), ("length", 32), ("stride", 16), ("window", 64)],
    },
    reference: Reference::Definition,
    ..MixerKind::DEFAULT
};
