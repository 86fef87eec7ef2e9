//! DeepSeek sparse attention: an indexer picks single tokens, attention reads only those.
//!
//! The choice is made token by token over the whole past, so the cache grows and nothing is out of reach: a full layer with a
//! message of its own. Bounds on block summaries say nothing about it, since a block of one token is its own summary.
//!
//! # Recurrence
//! Index score `I_ts = sum_j w_tj relu(q_tj.k_s)` with one key per token and a few small queries; attention over the
//! `top` best tokens s <= t, of equal ones the earlier, one choice for all heads. Keys and values are those of latent
//! attention.
//!
//! # Parallel form
//! Latent attention with a mask of `top` tokens per row.
//!
//! # State
//! None of fixed size: `latent + rope` numbers per token, and the index key of `index-head`.
//!
//! # Reduces to
//! Latent attention when `top` reaches the context length.
//!
//! # Held against
//! `DeepseekV32Attention` of transformers: no difference but in ties. DeepSeek's own code also rotates index keys by a
//! Hadamard matrix, which changes no product, and keeps them in 8 bits. Scores that are equal at the border of the
//! best `top` are common, since a token that no index head likes scores exactly 0: here the earlier tokens are taken,
//! there it is left to `torch.topk`, which promises no order.
//!
//! # Source
//! DeepSeek-V3.2 (2512.02556).

use super::{
    CacheLayout, CacheReach, Facts, Flops, HEAD, KeyValueLayout, MessageSize, MixerKind, QUERY_HEADS, MixerReach, Reference,
    TokenSelection, VALUE, count, mla, size,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "dsa",
    aliases: &["deepseek-sparse", "indexer"],
    options: &[
        QUERY_HEADS,
        HEAD,
        size("latent", "width of the latent kept per token", |n| 4 * n.integer("head")),
        count("rope", "width of the shared rotary key", |n| n.integer("head") / 2),
        VALUE,
        count("query-rank", "rank of the query projection, 0 for full rank", |_| 0),
        size("top", "tokens attended to", |_| 2048),
        count("index-heads", "heads of the indexer, 0 to reuse an earlier layer's choice", |_| 64),
        count("index-head", "width of an index key, 0 to reuse an earlier layer's choice", |_| 128),
    ],
    facts: |n| {
        let (heads, head, rope, value) = (n.size("heads"), n.size("head"), n.size("rope"), n.size("value"));
        let (latent, rank, width) = (n.size("latent"), n.size("query-rank"), n.width());
        let (top, index_heads, index_head) = (n.size("top"), n.size("index-heads"), n.size("index-head"));
        let queries = if rank == 0 { width * heads * (head + rope) } else { rank * (width + heads * (head + rope)) };
        let index_input = if rank == 0 { width } else { rank };
        let index = index_input * index_heads * index_head + width * (index_head + index_heads);
        let parameters =
            queries + width * (latent + rope) + latent * heads * (head + value) + heads * value * width + index;
        let selection = TokenSelection {
            groups: 1,
            picked: top,
            block: 1,
            // Of a chosen token either every head's weight and the shared value cross, or all that is cached.
            cached: (heads + latent).min(latent + rope),
            compressed: false,
            summary: index_head,
        };
        let layout = KeyValueLayout {
            reach: CacheReach::All,
            heads: 1,
            key: n.integer("latent") + n.integer("rope"),
            value: 0,
            latent: true,
            index: n.integer("index-head"),
        };
        Facts {
            reach: MixerReach::Full(MessageSize { heads, value, selection: Some(selection) }),
            // A layer that reuses an earlier layer's choice has none.
            has_network: index_heads > 0 && index_head > 0,
            cache_per_token: latent + rope + index_head,
            layout: Some(CacheLayout::KeyValues(layout)),
            parameters,
            // The indexer scores every token; attention reads the chosen ones, counted with the token.
            flops: Flops {
                per_token: 2 * parameters + 2 * top * heads * (head + rope + value),
                per_attended: 2 * index_heads * index_head,
                max_attended: None,
            },
            ..Facts::EMPTY
        }
    },
    benchmark: |benchmark| vec![("top", benchmark.quarter()), ("index-heads", 2), ("index-head", 16)],
    unrestricted: Some(|n| {
        let kept = ["heads", "head", "latent", "rope", "value", "query-rank"];
        (mla::KIND.name, kept.map(|option| (option, n.integer(option))).to_vec())
    }),
    reference: Reference::Public { library: "transformers", class: "DeepseekV32Attention" },
    ..MixerKind::DEFAULT
};
