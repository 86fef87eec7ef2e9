//! DeepSeek sparse attention: an indexer selects single tokens, and attention reads only those.
//!
//! The selection is over all earlier tokens, so the cache grows and every token can be read: a full layer with a different
//! message size. The block-sparse bound does not apply, since a block of one token is its own summary.
//!
//! # Recurrence
//! Index score `I_ts = sum_j w_tj relu(q_tj.k_s)` with one key per token and a few small queries; attention over the
//! `top` best tokens s <= t, the earlier of equal ones, one selection for all heads. Keys and values are those of latent
//! attention.
//!
//! # Parallel form
//! Latent attention with a mask of `top` tokens per row.
//!
//! # State
//! None of fixed size: `latent + rope` elements per token, and the index key of `index-head`.
//!
//! # Reduces to
//! Latent attention if `top` is at least the context length.
//!
//! # Reference implementation
//! `DeepseekV32Attention` of transformers: no difference except in ties. DeepSeek's own code also rotates index keys by a
//! Hadamard matrix, which changes no product, and keeps them in 8 bits. Scores that are equal at the border of the
//! best `top` are common, since a token that every index head scores below zero gets exactly 0: here the earlier
//! tokens are selected, there it depends on `torch.topk`, whose order of ties is not specified.
//!
//! # Source
//! DeepSeek-V3.2 (2512.02556).

use super::{
    CacheLayout, CacheReach, Facts, Flops, HEAD_DIM, KeyValueLayout, MessageSize, MixerKind, MixerReach, QUERY_HEADS,
    Reference, TokenSelection, VALUE_HEAD_DIM, count, mla, size,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "dsa",
    aliases: &["deepseek-sparse", "indexer"],
    options: &[
        QUERY_HEADS,
        HEAD_DIM,
        size("latent", "width of the latent kept per token", |options| 4 * options.integer("head")),
        count("rope", "width of the shared rotary key", |options| options.integer("head") / 2),
        VALUE_HEAD_DIM,
        count("query-rank", "rank of the query projection, 0 for full rank", |_| 0),
        size("top", "tokens attended to", |_| 2048),
        count("index-heads", "heads of the indexer, 0 to reuse an earlier layer's choice", |_| 64),
        count("index-head", "width of an index key, 0 to reuse an earlier layer's choice", |_| 128),
    ],
    facts: |options| {
        let (heads, head_dim, rope, value_head_dim) =
            (options.size("heads"), options.size("head"), options.size("rope"), options.size("value"));
        let (latent, rank, width) = (options.size("latent"), options.size("query-rank"), options.width());
        let (top, index_heads, index_head) =
            (options.size("top"), options.size("index-heads"), options.size("index-head"));
        let queries =
            if rank == 0 { width * heads * (head_dim + rope) } else { rank * (width + heads * (head_dim + rope)) };
        let index_input = if rank == 0 { width } else { rank };
        let index = index_input * index_heads * index_head + width * (index_head + index_heads);
        let parameters = queries
            + width * (latent + rope)
            + latent * heads * (head_dim + value_head_dim)
            + heads * value_head_dim * width
            + index;
        let selection = TokenSelection {
            groups: 1,
            selected_count: top,
            block: 1,
            // A selected token contributes either every head's weight and the shared value, or all of its cache.
            cached_elements_per_token: (heads + latent).min(latent + rope),
            compressed: false,
            summary_elements: index_head,
        };
        let layout = KeyValueLayout {
            reach: CacheReach::All,
            kv_heads: 1,
            key_head_dim: options.integer("latent") + options.integer("rope"),
            value_head_dim: 0,
            latent: true,
            index_key_dim: options.integer("index-head"),
        };
        Facts {
            reach: MixerReach::Full(MessageSize { heads, value_head_dim, selection: Some(selection) }),
            // There is no network for a layer that reuses an earlier layer's selection.
            is_implemented: index_heads > 0 && index_head > 0,
            cache_per_token: latent + rope + index_head,
            layout: Some(CacheLayout::KeyValues(layout)),
            parameters,
            // The indexer scores every token; attention reads the selected ones, which count as cost per token.
            flops: Flops {
                per_token: 2 * parameters + 2 * top * heads * (head_dim + rope + value_head_dim),
                per_attended: 2 * index_heads * index_head,
                max_attended: None,
            },
            ..Facts::EMPTY
        }
    },
    benchmark: |benchmark| vec![("top", benchmark.window_tokens()), ("index-heads", 2), ("index-head", 16)],
    full_attention_equivalent: Some(|options| {
        let unchanged = ["heads", "head", "latent", "rope", "value", "query-rank"];
        (mla::KIND.name, unchanged.map(|option| (option, options.integer(option))).to_vec())
    }),
    reference: Reference::Public { library: "transformers", class: "DeepseekV32Attention" },
    ..MixerKind::DEFAULT
};
