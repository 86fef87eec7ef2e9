//! Compressed attention: the past is kept as one entry for every few tokens, beside a window of single tokens.
//!
//! Whatever the ratio, the cache still grows with the text and any part of the past can be read, so it is a full layer
//! in the sense of the bounds. With `top = 0` all entries are attended to; else an indexer picks that many of them.
//!
//! # Recurrence
//! Every `ratio` tokens a weighted sum of them becomes one entry that serves as key and value of all heads; softmax
//! attention over the (chosen) entries and the last `window` tokens.
//!
//! # Parallel form
//! Pool, then masked softmax over entries and window together.
//!
//! # State
//! `window` tokens of `head` numbers; and for every `ratio` tokens one entry of `head` numbers, and of `index-head`
//! numbers if there is an indexer. Tokens that are not yet part of an entry wait in a buffer: up to `ratio - 1` of them, each
//! with a vector and its weights, `2 * head` numbers (and `2 * index-head`). With `overlap=yes` an entry pools twice as
//! many tokens: vectors in the buffer are twice as wide, and half of the last entry's `ratio` tokens stay for the next one.
//!
//! # Reduces to
//! Attention with one shared key/value head when `ratio = 1` and `top = 0`.
//!
//! # Held against
//! Nothing: there is no network.
//!
//! # Source
//! Used by DeepSeek-V4, at ratio 4 with an indexer and at ratio 128 without one.

use super::{
    Facts, Field, Message, MixerKind, NO_YES, QUERY_HEADS, Reach, Selection, Work, choice, count, size,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "compressed",
    aliases: &["csa", "hca"],
    fields: &[
        QUERY_HEADS,
        size("head", "width of a head, and of an entry", |n| n.defaults.head_dim),
        size("ratio", "tokens in an entry", |_| 4),
        count("top", "entries chosen by the indexer, 0 to read them all", |_| 0),
        count("index-heads", "heads of the indexer", |n| if n.get("top") == 0 { 0 } else { 64 }),
        count("index-head", "width of an index key", |n| if n.get("top") == 0 { 0 } else { 128 }),
        count("window", "tokens of the window", |_| 128),
        count("query-rank", "rank of the query projection, 0 for full rank", |_| 0),
        Field {
            default: |n| u64::from(n.get("top") > 0),
            ..choice("overlap", "whether an entry also pools the tokens of the one before", NO_YES)
        },
    ],
    facts: |n| {
        let (heads, head, ratio, top) = (n.wide("heads"), n.wide("head"), n.wide("ratio"), n.wide("top"));
        let (index_heads, index_head, window) = (n.wide("index-heads"), n.wide("index-head"), n.wide("window"));
        let (rank, width) = (n.wide("query-rank"), n.width());
        let asking = if rank == 0 { width } else { rank };
        let queries = if rank == 0 { 0 } else { width * rank } + asking * heads * head;
        let index = asking * index_heads * index_head + width * (index_head + index_heads);
        let parameters = queries + 2 * width * head + heads * head * width + index;
        let selection = (top > 0).then_some(Selection {
            groups: 1,
            picked: top,
            block: 1,
            cached: head,
            compressed: false,
            summary: index_head,
        });
        // Of every `ratio` tokens one entry is looked at: by attention if it reads all, else by the indexer.
        let (entry, picked) = if top == 0 { (4 * heads * head, 0) } else { (2 * index_heads * index_head, top) };
        let (pooled, waiting) = (2 * (head + index_head), ratio - 1);
        let buffer = if n.get("overlap") == 0 { waiting } else { 2 * waiting + ratio };
        Facts {
            reach: Reach::Full(Message { heads, value: head, selection }),
            network: false,
            tail: buffer * pooled,
            growing: (head + index_head).div_ceil(ratio),
            window: head,
            window_tokens: window,
            parameters,
            work: Work {
                token: 2 * parameters + 4 * heads * head * (picked + window),
                seen: entry.div_ceil(ratio),
                limit: None,
            },
            ..Facts::NOTHING
        }
    },
};
