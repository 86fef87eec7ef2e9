//! Native sparse attention: compressed blocks, a few chosen blocks, and a window.
//!
//! Three branches with gates: attention to block summaries, to the tokens of the blocks those summaries make look best,
//! and to the last tokens.
//!
//! # Recurrence
//! `o = g_cmp o_cmp + g_slc o_slc + g_win o_win`. Summaries: a learned map of `length` tokens at every `stride`. A block's score is
//! the attention its summaries get, summed over the query heads of a group.
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
//! A second implementation from the definition, simpler than the paper in three ways. The branches share keys and values, as
//! in `fla`; the paper gives each its own. A summary is a weighted sum over the places of its tokens, for each channel; the
//! paper has an MLP with positions, `fla` a mean. The first block, the one before and the query's own are always taken, as in
//! `fla`.
//!
//! # Source
//! Yuan et al. 2025 (2502.11089).

use super::{
    Facts, HEAD, KEY, KV_HEADS, Message, MixerKind, QUERY_HEADS, Reach, Selection, Summaries, VALUE, Work, attention,
    count, size, with_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "nsa",
    aliases: &["native-sparse"],
    fields: &[
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
        let (heads, kv, key, value) = (n.wide("heads"), n.wide("kv"), n.wide("key"), n.wide("value"));
        let (block, top, window) = (n.wide("block"), n.wide("top"), n.wide("window"));
        let (length, stride) = (n.wide("length"), n.wide("stride"));
        // Gates of the branches, and a weight for each channel and place of a summary.
        let branches = if window == 0 { 2 } else { 3 };
        let projections = with_weights(&attention(n), n.width() * branches * heads + length * kv * (key + value));
        // Summaries that overlap a block: those that start in it, and those that reach into it from before.
        let summaries = block.div_ceil(stride) + length.div_ceil(stride) - 1;
        let selection = Selection {
            groups: kv,
            // Beside the chosen blocks those of the window, and those of summaries that are not yet complete.
            picked: top + window.max(length - 1).div_ceil(block),
            block,
            cached: key + value,
            compressed: true,
            summary: summaries * kv * (key + value),
        };
        Facts {
            reach: Reach::Full(Message { heads, value, selection: Some(selection) }),
            growing: kv * (key + value),
            summaries: Summaries { numbers: kv * (key + value), length, stride },
            work: Work { limit: Some(top * block + window), ..projections.work },
            ..projections
        }
    },
};
