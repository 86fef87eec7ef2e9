//! MoBA: each query head attends to the few blocks whose mean key it likes best.
//!
//! Every token is kept, so the cache grows as for full attention; only the reading is sparse. In the bounds it is a full
//! layer with a different message, and in the block-sparse bound the mean key is the summary that must not collide.
//!
//! # Recurrence
//! Score of a block that lies wholly in the past `q_t.mean(k in block)`, summed over the heads of a group; a query
//! reads the best `top - 1` of them, of equal ones the earlier, and its own block up to itself. With `summary=minmax`
//! the score is the most that `q_t.k` could be for keys between the block's smallest and largest number in every
//! channel.
//!
//! # Parallel form
//! Full attention with a mask per head.
//!
//! # State
//! None of fixed size: `kv * (key + value)` numbers per token; the block means are derived from them. Where an indexer
//! scores a block by its best token, `index` more numbers are kept per token, and the block's summary is all of them.
//!
//! # Reduces to
//! Full attention when `top` reaches the number of blocks; block-diagonal attention when `top = 1`.
//!
//! # Held against
//! A second implementation after the authors' naive form: no difference known with `summary=mean`. Of equally good
//! blocks the earlier is taken.
//!
//! # Source
//! Lu et al. 2025 (2502.13189); smallest and largest keys: Tang et al. 2024 (2406.10774).

use super::{
    Benchmark, CacheLayout, CacheReach, Facts, Flops, HEAD, KEY, KV_HEADS, KeyValueLayout, MessageSize, MixerKind,
    QUERY_HEADS, MixerReach, Reference, TokenSelection, VALUE, attention, choice, choices, count, full, size,
};

choices! {
    /// What is kept of a block's keys, by which it is scored.
    pub enum BlockSummary {
        /// Their mean.
        Mean = "mean",
        /// The least and the largest of each channel.
        MinMax = "minmax",
    }
}

pub(super) static KIND: MixerKind = MixerKind {
    name: "moba",
    aliases: &["block-sparse"],
    options: &[
        QUERY_HEADS,
        KV_HEADS,
        HEAD,
        KEY,
        VALUE,
        size("block", "tokens in a block", |_| 256),
        size("top", "blocks attended to, the current one included", |_| 4),
        size("groups", "groups of heads that choose together", |n| n.integer("heads")),
        count("index", "width of a separate index key, 0 to score by mean keys", |_| 0),
        choice("summary", "what is kept of a block's keys", BlockSummary::NAMES),
    ],
    facts: |n| {
        let (heads, kv, key, value) = (n.size("heads"), n.size("kv"), n.size("key"), n.size("value"));
        let (block, top, index) = (n.size("block"), n.size("top"), n.size("index"));
        let vectors = match n.choice("summary") {
            BlockSummary::Mean => 1,
            BlockSummary::MinMax => 2,
        };
        let selection = TokenSelection {
            groups: n.size("groups"),
            picked: top - 1,
            block,
            cached: key + value,
            compressed: false,
            summary: if index == 0 { vectors * kv * key } else { block * index },
        };
        let layout = KeyValueLayout {
            reach: CacheReach::All,
            heads: n.integer("kv"),
            key: n.integer("key"),
            value: n.integer("value"),
            latent: false,
            index: n.integer("index"),
        };
        Facts {
            reach: MixerReach::Full(MessageSize { heads, value, selection: Some(selection) }),
            has_network: attention(n).has_network && heads.is_multiple_of(n.size("groups")) && index == 0,
            cache_per_token: kv * (key + value) + index,
            layout: Some(CacheLayout::KeyValues(layout)),
            flops: Flops { max_attended: Some(top * block), ..attention(n).flops },
            ..attention(n)
        }
    },
    benchmark: |benchmark| match benchmark {
        Benchmark::Length(_) => vec![("block", benchmark.block()), ("top", 4)],
        Benchmark::Growth(_) => vec![("block", 64), ("top", 4)],
    },
    unrestricted: Some(|n| (full::KIND.name, super::family::heads(n))),
    reference: Reference::After("the authors' naive form"),
    ..MixerKind::DEFAULT
};
