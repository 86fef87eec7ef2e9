//! Sliding-window attention: softmax over the last few tokens only.
//!
//! A window of fixed size is a bounded state, however it is computed: what left the window is gone. Attention sinks (the
//! first few tokens kept for ever) add their tokens to the state.
//!
//! # Recurrence
//! As full attention with s in `[t - size + 1, t]`, the current token being one of the window, or s below `sinks`.
//! Tied, one vector is kept as key and value: the key is it turned by position, the value is it as it is.
//!
//! # Parallel form
//! Banded softmax, `n * size` scores.
//!
//! # State
//! `size - 1 + sinks` tokens of `kv * (key + value)` numbers (tied, `kv * key`) cross from one token to the next.
//! Programs keep `size` of them in a ring buffer, and that is what a cache is charged.
//!
//! # Reduces to
//! Full attention when `size` reaches the context length, or `sinks` does.
//!
//! # Held against
//! A second implementation from the definition, with the current token counted as part of the window. Implementations
//! that count it apart see one token more.
//!
//! # Source
//! Beltagy et al. 2020 (2004.05150); sinks: Xiao et al. 2023 (2309.17453), here with the places in the text as
//! positions.

use super::{
    CacheLayout, CacheReach, CarrySizes, Facts, Flops, HEAD, KEY, KV_HEADS, KeyValueLayout, MixerKind, QUERY_HEADS,
    Reference, VALUE, attention, count, flag, full, size, without_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "window",
    aliases: &["swa", "sliding", "local"],
    options: &[
        QUERY_HEADS,
        KV_HEADS,
        HEAD,
        KEY,
        VALUE,
        size("size", "tokens in the window, the current one included", |_| 1024),
        count("sinks", "first tokens that are always seen", |_| 0),
        flag("tied", "one vector serves as key and value", |_| false),
    ],
    facts: |n| {
        let (attention, values, tied) = (attention(n), n.size("kv") * n.size("value"), n.flag("tied"));
        // A vector that serves as key and value is kept once, and has no projection of its own.
        let (attention, values) =
            if tied { (without_weights(&attention, n.width() * values), 0) } else { (attention, values) };
        let tokens = n.integer("size") + n.integer("sinks");
        let layout = KeyValueLayout {
            reach: CacheReach::Window(tokens),
            heads: n.integer("kv"),
            key: n.integer("key"),
            value: if tied { 0 } else { n.integer("value") },
            latent: false,
            index: 0,
        };
        Facts {
            window_per_token: n.size("kv") * n.size("key") + values,
            window_tokens: tokens.into(),
            layout: Some(CacheLayout::KeyValues(layout)),
            // A window of one token carries nothing. Nor are weights known for values that are keys.
            carried_bits: if n.integer("size") > 1 { values } else { 0 },
            has_network: attention.has_network && (!tied || n.integer("key") == n.integer("value")),
            flops: Flops { max_attended: Some(tokens.into()), ..attention.flops },
            ..attention
        }
    },
    carry: Some(CarrySizes {
        smallest: |bits| vec![("heads", 1), ("kv", 1), ("key", 1), ("value", bits), ("size", 2)],
        slots: None,
    }),
    benchmark: |benchmark| vec![("size", benchmark.quarter())],
    unrestricted: Some(|n| (full::KIND.name, super::family::heads(n))),
    reference: Reference::Definition,
    ..MixerKind::DEFAULT
};
