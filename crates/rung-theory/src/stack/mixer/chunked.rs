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

use super::{Arrival, Facts, HEAD, KEY, KV_HEADS, MixerKind, QUERY_HEADS, VALUE, Work, attention, size};

pub(super) static KIND: MixerKind = MixerKind {
    name: "chunked",
    aliases: &["chunk"],
    fields: &[QUERY_HEADS, KV_HEADS, HEAD, KEY, VALUE, size("size", "tokens in a chunk", |_| 8192)],
    facts: |n| {
        Facts {
            window: n.wide("kv") * (n.wide("key") + n.wide("value")),
            window_tokens: n.wide("size"),
            // The first token of a chunk sees only itself.
            network: false,
            arrival: Arrival::SomePositions,
            work: Work { limit: Some(n.wide("size") / 2), ..attention(n).work },
            ..attention(n)
        }
    },
};
