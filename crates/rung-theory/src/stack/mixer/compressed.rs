//! Compressed attention: the cache has one entry for every few tokens, and a window of single tokens.
//!
//! For every ratio the cache grows with the sequence and all of the prefix can be read, so it is a full layer
//! in the sense of the bounds. With `top = 0` all entries are attended to; else an indexer selects that many of them.
//!
//! # Recurrence
//! Every `ratio` tokens a weighted sum of them becomes one entry that serves as key and value of all heads; softmax
//! attention over the (selected) entries and the last `window` tokens.
//!
//! # Parallel form
//! Pool, then masked softmax over entries and window together.
//!
//! # State
//! `window` tokens of `head` elements; and for every `ratio` tokens one entry of `head` elements, and of `index-head`
//! elements if there is an indexer. Tokens that are not yet part of an entry wait in a buffer: up to `ratio - 1` of them, each
//! with a vector and its weights, `2 * head` elements (and `2 * index-head`). With `overlap=yes` an entry pools twice as
//! many tokens: vectors in the buffer are twice as wide, and half of the last entry's vectors stay for the next entry.
//!
//! # Reduces to
//! Attention with one shared key/value head when `ratio = 1` and `top = 0`.
//!
//! # Reference implementation
//! None: there is no network.
//!
//! # Source
//! Used by DeepSeek-V4, at ratio 4 with an indexer and at ratio 128 without one.

use super::{
    CacheLayout, CacheReach, Facts, Flops, KeyValueLayout, MessageSize, MixerKind, MixerReach, QUERY_HEADS,
    TokenSelection, count, flag, size,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "compressed",
    aliases: &["csa", "hca"],
    options: &[
        QUERY_HEADS,
        size("head", "width of a head, and of an entry", |options| options.defaults.head_dim),
        size("ratio", "tokens in an entry", |_| 4),
        count("top", "entries chosen by the indexer, 0 to read them all", |_| 0),
        count("index-heads", "heads of the indexer", |options| if options.integer("top") == 0 { 0 } else { 64 }),
        count("index-head", "width of an index key", |options| if options.integer("top") == 0 { 0 } else { 128 }),
        count("window", "tokens of the window", |_| 128),
        count("query-rank", "rank of the query projection, 0 for full rank", |_| 0),
        flag("overlap", "whether an entry also pools the tokens of the one before", |options| {
            options.integer("top") > 0
        }),
    ],
    facts: |options| {
        let (heads, head_dim, ratio, top) =
            (options.size("heads"), options.size("head"), options.size("ratio"), options.size("top"));
        let (index_heads, index_head, window) =
            (options.size("index-heads"), options.size("index-head"), options.size("window"));
        let (rank, width) = (options.size("query-rank"), options.width());
        let index_input = if rank == 0 { width } else { rank };
        let queries = if rank == 0 { 0 } else { width * rank } + index_input * heads * head_dim;
        let index = index_input * index_heads * index_head + width * (index_head + index_heads);
        let parameters = queries + 2 * width * head_dim + heads * head_dim * width + index;
        let selection = (top > 0).then_some(TokenSelection {
            groups: 1,
            selected_count: top,
            block: 1,
            cached_elements_per_token: head_dim,
            compressed: false,
            summary_elements: index_head,
        });
        let layout = KeyValueLayout {
            reach: CacheReach::Compressed { ratio: options.integer("ratio"), window: options.integer("window") },
            kv_heads: 1,
            key_head_dim: options.integer("head"),
            value_head_dim: 0,
            latent: true,
            index_key_dim: options.integer("index-head"),
        };
        // For every `ratio` tokens one entry is read: by attention if `top` is 0, else by the indexer.
        let (entry, selected_count) =
            if top == 0 { (4 * heads * head_dim, 0) } else { (2 * index_heads * index_head, top) };
        // Tokens that are not yet part of an entry, each with a vector and its weights.
        let (elements_per_token, incomplete_tokens) = (2 * (head_dim + index_head), ratio - 1);
        let buffered_tokens = if options.flag("overlap") { 2 * incomplete_tokens + ratio } else { incomplete_tokens };
        Facts {
            reach: MixerReach::Full(MessageSize { heads, value_head_dim: head_dim, selection }),
            is_implemented: false,
            conv_state: buffered_tokens * elements_per_token,
            cache_per_token: (head_dim + index_head).div_ceil(ratio),
            window_elements_per_token: head_dim,
            window_tokens: window,
            layout: Some(CacheLayout::KeyValues(layout)),
            parameters,
            flops: Flops {
                per_token: 2 * parameters + 4 * heads * head_dim * (selected_count + window),
                per_attended: entry.div_ceil(ratio),
                max_attended: None,
            },
            ..Facts::EMPTY
        }
    },
    full_attention_equivalent: Some(|options| {
        let unchanged = ["heads", "head", "query-rank"].map(|option| (option, options.integer(option)));
        (KIND.name, [&unchanged[..], &[("ratio", 1), ("window", 0)]].concat())
    }),
    ..MixerKind::DEFAULT
};
