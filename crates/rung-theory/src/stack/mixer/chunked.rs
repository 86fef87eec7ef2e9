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
//! # Source
//! Used by Llama 4 beside full layers without positions.

use super::{Facts, MixerKind, Work, attention, size};

pub(super) static KIND: MixerKind = MixerKind {
    name: "chunked",
    aliases: &["chunk"],
    fields: &[
        size("heads", "query heads", |n| n.defaults.heads),
        size("kv", "key/value heads", |n| n.defaults.kv_heads()),
        size("head", "width of a head", |n| n.defaults.head_dim),
        size("key", "width of a key head", |n| n.get("head")),
        size("value", "width of a value head", |n| n.get("head")),
        size("size", "tokens in a chunk", |_| 8192),
    ],
    facts: |n| {
        Facts {
            window: n.wide("kv") * (n.wide("key") + n.wide("value")),
            window_tokens: n.wide("size"),
            // A window of one token hands nothing on.
            carries: if n.get("size") > 1 { n.wide("kv") * n.wide("value") } else { 0 },
            work: Work { limit: Some(n.wide("size") / 2), ..attention(n).work },
            ..attention(n)
        }
    },
};
