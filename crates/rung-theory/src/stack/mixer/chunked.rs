//! Chunked attention: softmax within fixed chunks, nothing across their borders.
//!
//! Like a window whose left edge jumps: the first token of a chunk sees only itself, the last sees the whole chunk.
//!
//! # Recurrence
//! As full attention with s in `[size * floor(t / size), t]`.
//!
//! # Parallel form
//! Block-diagonal causal softmax.
//!
//! # State
//! At most `size - 1` tokens of `kv * (key + value)` numbers cross from one token to the next; a cache holds `size`.
//!
//! # Reduces to
//! Full attention when one chunk holds the whole text.
//!
//! # Held against
//! Nothing: there is no network.
//!
//! # Source
//! Used by Llama 4 beside full layers without positions.

use super::{
    CacheLayout, CacheReach, Facts, Flops, Forwarding, HEAD, KEY, KV_HEADS, KeyValueLayout, MixerKind, QUERY_HEADS,
    VALUE, attention, full, size,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "chunked",
    aliases: &["chunk"],
    options: &[QUERY_HEADS, KV_HEADS, HEAD, KEY, VALUE, size("size", "tokens in a chunk", |_| 8192)],
    facts: |n| {
        let layout = KeyValueLayout {
            reach: CacheReach::Chunk(n.integer("size")),
            heads: n.integer("kv"),
            key: n.integer("key"),
            value: n.integer("value"),
            latent: false,
            index: 0,
        };
        Facts {
            window_per_token: n.size("kv") * (n.size("key") + n.size("value")),
            window_tokens: n.size("size"),
            layout: Some(CacheLayout::KeyValues(layout)),
            has_network: false,
            // The first token of a chunk sees only itself.
            partial_forwarding: Forwarding::SomePositions,
            flops: Flops { max_attended: Some(n.size("size") / 2), ..attention(n).flops },
            ..attention(n)
        }
    },
    benchmark: |benchmark| vec![("size", benchmark.quarter())],
    unrestricted: Some(|n| (full::KIND.name, super::family::heads(n))),
    ..MixerKind::DEFAULT
};
