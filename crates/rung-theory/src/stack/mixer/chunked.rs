//! Chunked attention: softmax within fixed chunks, nothing across their borders.
//!
//! The first token of a chunk sees only itself, the last sees the whole chunk.
//!
//! # Recurrence
//! As full attention, where query t attends to keys s in `[size * floor(t / size), t]`.
//!
//! # Parallel form
//! Block-diagonal causal softmax.
//!
//! # State
//! At most `size - 1` tokens of `kv * (key + value)` elements are passed from one token to the next; a cache holds `size`.
//!
//! # Reduces to
//! Full attention if one chunk holds the whole sequence.
//!
//! # Reference implementation
//! None: there is no network.
//!
//! # Source
//! Used by Llama 4, together with full layers without positional encoding (NoPE).

use super::{
    CacheLayout, CacheReach, Facts, Flops, Forwarding, HEAD_DIM, KEY_HEAD_DIM, KV_HEADS, KeyValueLayout, MixerKind,
    QUERY_HEADS, VALUE_HEAD_DIM, attention, full, size,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "chunked",
    aliases: &["chunk"],
    options: &[
        QUERY_HEADS,
        KV_HEADS,
        HEAD_DIM,
        KEY_HEAD_DIM,
        VALUE_HEAD_DIM,
        size("size", "tokens in a chunk", |_| 8192),
    ],
    facts: |options| {
        let layout = KeyValueLayout {
            reach: CacheReach::Chunk(options.integer("size")),
            kv_heads: options.integer("kv"),
            key_head_dim: options.integer("key"),
            value_head_dim: options.integer("value"),
            latent: false,
            index_key_dim: 0,
        };
        Facts {
            window_elements_per_token: options.size("kv") * (options.size("key") + options.size("value")),
            window_tokens: options.size("size"),
            layout: Some(CacheLayout::KeyValues(layout)),
            is_implemented: false,
            // The first token of a chunk sees only itself.
            partial_forwarding: Forwarding::SomePositions,
            flops: Flops { max_attended: Some(options.size("size") / 2), ..attention(options).flops },
            ..attention(options)
        }
    },
    benchmark: |benchmark| vec![("size", benchmark.window_tokens())],
    full_attention_equivalent: Some(|options| (full::KIND.name, super::family::full_attention_options(options))),
    ..MixerKind::DEFAULT
};
