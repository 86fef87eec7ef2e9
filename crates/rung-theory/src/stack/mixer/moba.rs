//! MoBA: each query head attends to the few blocks whose mean keys score highest.
//!
//! Every token is cached, so the cache grows as for full attention; only the reading is sparse. In the bounds it is a full
//! layer with a different message size, and in the block-sparse bound the mean key is the block's summary.
//!
//! # Recurrence
//! The score of an earlier block is `q_t.mean(k in block)`, summed over the heads of a group; a query reads the `top - 1` blocks
//! with the highest scores, the earlier of equal ones, and its own block up to itself. With `summary=minmax` the score is the
//! largest possible `q_t.k` for keys between the block's minimum and maximum in every channel.
//!
//! # Parallel form
//! Full attention with a mask per head.
//!
//! # State
//! None of fixed size: `kv * (key + value)` elements per token; the block means are derived from them. If an indexer
//! scores a block by its best token, `index` more elements are cached per token, and the block's summary is all of them.
//!
//! # Reduces to
//! Full attention if `top` is at least the number of blocks; block-diagonal attention if `top = 1`.
//!
//! # Reference implementation
//! A second implementation after the authors' naive form: no difference known with `summary=mean`. Of blocks with equal
//! scores the earlier is selected.
//!
//! # Source
//! Lu et al. 2025 (2502.13189); smallest and largest keys: Tang et al. 2024 (2406.10774).

use super::{
    Benchmark, CacheLayout, CacheReach, Facts, Flops, HEAD_DIM, KEY_HEAD_DIM, KV_HEADS, KeyValueLayout, MessageSize,
    MixerKind, MixerReach, QUERY_HEADS, Reference, TokenSelection, VALUE_HEAD_DIM, attention, choice, choices, count,
    full, size,
};

choices! {
    /// The summary of a block's keys, which is used to score it.
    pub enum BlockSummary {
        /// The mean key.
        Mean = "mean",
        /// The minimum and the maximum of each channel.
        MinMax = "minmax",
    }
}

pub(super) static KIND: MixerKind = MixerKind {
    name: "moba",
    aliases: &["block-sparse"],
    options: &[
        QUERY_HEADS,
        KV_HEADS,
        HEAD_DIM,
        KEY_HEAD_DIM,
        VALUE_HEAD_DIM,
        size("block", "tokens in a block", |_| 256),
        size("top", "blocks attended to, the current one included", |_| 4),
        size("groups", "groups of heads that choose together", |options| options.integer("heads")),
        count("index", "width of a separate index key, 0 to score by mean keys", |_| 0),
        choice("summary", "what is kept of a block's keys", BlockSummary::NAMES),
    ],
    facts: |options| {
        let (heads, kv_heads, key_head_dim, value_head_dim) =
            (options.size("heads"), options.size("kv"), options.size("key"), options.size("value"));
        let (block, top, index) = (options.size("block"), options.size("top"), options.size("index"));
        let vectors = match options.choice("summary") {
            BlockSummary::Mean => 1,
            BlockSummary::MinMax => 2,
        };
        let selection = TokenSelection {
            groups: options.size("groups"),
            selected_count: top - 1,
            block,
            cached_elements_per_token: key_head_dim + value_head_dim,
            compressed: false,
            summary_elements: if index == 0 { vectors * kv_heads * key_head_dim } else { block * index },
        };
        let layout = KeyValueLayout {
            reach: CacheReach::All,
            kv_heads: options.integer("kv"),
            key_head_dim: options.integer("key"),
            value_head_dim: options.integer("value"),
            latent: false,
            index_key_dim: options.integer("index"),
        };
        Facts {
            reach: MixerReach::Full(MessageSize { heads, value_head_dim, selection: Some(selection) }),
            is_implemented: attention(options).is_implemented
                && heads.is_multiple_of(options.size("groups"))
                && index == 0,
            cache_per_token: kv_heads * (key_head_dim + value_head_dim) + index,
            layout: Some(CacheLayout::KeyValues(layout)),
            flops: Flops { max_attended: Some(top * block), ..attention(options).flops },
            ..attention(options)
        }
    },
    benchmark: |benchmark| match benchmark {
        Benchmark::Length(_) => vec![("block", benchmark.block_tokens()), ("top", 4)],
        Benchmark::Growth(_) => vec![("block", 64), ("top", 4)],
    },
    full_attention_equivalent: Some(|options| (full::KIND.name, super::family::full_attention_options(options))),
    reference: Reference::Reimplementation("the authors' naive form"),
    ..MixerKind::DEFAULT
};
