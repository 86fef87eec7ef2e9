//! Sliding-window attention: softmax over the last few tokens only.
//!
//! A window of fixed size is a bounded state: tokens outside of the window cannot be read again. Attention sinks (the first few
//! tokens, which are always kept) add to the state.
//!
//! # Recurrence
//! As full attention, where query t attends to keys s in `[t - size + 1, t]`, the current token included, and to s below `sinks`.
//! With `tied=yes` one vector serves as key and value: the key is the vector rotated by position, the value the vector itself.
//!
//! # Parallel form
//! Banded softmax, `n * size` scores.
//!
//! # State
//! `size - 1 + sinks` tokens of `kv * (key + value)` elements (tied, `kv * key`) are passed from one token to the next.
//! Programs keep `size` of them in a ring buffer, so a cache counts `size`.
//!
//! # Reduces to
//! Full attention if `size` or `sinks` is at least the context length.
//!
//! # Reference implementation
//! A second implementation from the definition, with the current token counted as part of the window. Implementations
//! that do not count it see one token more.
//!
//! # Source
//! Beltagy et al. 2020 (2004.05150); sinks: Xiao et al. 2023 (2309.17453), here with the original token
//! positions.

use super::{
    CacheLayout, CacheReach, Facts, Flops, ForwardingSizes, HEAD_DIM, KEY_HEAD_DIM, KV_HEADS, KeyValueLayout,
    MixerKind, QUERY_HEADS, Reference, VALUE_HEAD_DIM, attention, count, flag, full, size, without_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "window",
    aliases: &["swa", "sliding", "local"],
    options: &[
        QUERY_HEADS,
        KV_HEADS,
        HEAD_DIM,
        KEY_HEAD_DIM,
        VALUE_HEAD_DIM,
        size("size", "tokens in the window, the current one included", |_| 1024),
        count("sinks", "first tokens that are always seen", |_| 0),
        flag("tied", "one vector serves as key and value", |_| false),
    ],
    facts: |options| {
        let (attention, values, tied) =
            (attention(options), options.size("kv") * options.size("value"), options.flag("tied"));
        // A vector that serves as key and value is cached once, and there is no value projection.
        let (attention, values) =
            if tied { (without_weights(&attention, options.width() * values), 0) } else { (attention, values) };
        let tokens = options.integer("size") + options.integer("sinks");
        let layout = KeyValueLayout {
            reach: CacheReach::Window(tokens),
            kv_heads: options.integer("kv"),
            key_head_dim: options.integer("key"),
            value_head_dim: if tied { 0 } else { options.integer("value") },
            latent: false,
            index_key_dim: 0,
        };
        Facts {
            window_elements_per_token: options.size("kv") * options.size("key") + values,
            window_tokens: tokens.into(),
            layout: Some(CacheLayout::KeyValues(layout)),
            // A window of one token forwards nothing, and no weights are known for tied keys and values.
            forwarded_bits: if options.integer("size") > 1 { values } else { 0 },
            is_implemented: attention.is_implemented && (!tied || options.integer("key") == options.integer("value")),
            flops: Flops { max_attended: Some(tokens.into()), ..attention.flops },
            ..attention
        }
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: |bits| vec![("heads", 1), ("kv", 1), ("key", 1), ("value", bits), ("size", 2)],
        table_rows_option: None,
    }),
    benchmark: |benchmark| vec![("size", benchmark.window_tokens())],
    full_attention_equivalent: Some(|options| (full::KIND.name, super::family::full_attention_options(options))),
    reference: Reference::Definition,
    ..MixerKind::DEFAULT
};
