//! Full causal softmax attention, with any number of key/value heads.
//!
//! Every token scores every earlier token and takes the softmax-weighted mean of their values. Its memory grows with the
//! sequence, so it counts as a full layer in the bounds.
//!
//! # Recurrence
//! Scores `a_ts = q_t.k_s / sqrt(d)` for s <= t, `o_t = sum_s softmax(a_t)_s v_s`. For a fixed query it can be
//! computed online: keep the maximum, the sum of weights and the weighted sum of values, and rescale them when the maximum changes.
//!
//! # Parallel form
//! `O = softmax(mask(Q K^T / sqrt(d))) V`, quadratic in the number of tokens. Query head h reads key/value head
//! `floor(h * kv / heads)`.
//!
//! # State
//! None of fixed size: `kv * (key + value)` elements per token. With `conv = k` a causal convolution of k
//! taps comes before the projections; its k-1 inputs per channel count as a bounded-state layer before this one.
//!
//! With `accumulator = p` a head sums from left to right and keeps `value` running means and the log of the sum of weights, p bits
//! each: a token receives `heads * (value + 1) * p` bits about a prefix. Without it sums have `bits` bits and an unspecified
//! order.
//!
//! # Reduces to
//! `kv = heads` is multi-head attention, `kv = 1` multi-query attention. A window as long as the context is equal to it.
//!
//! # Reference implementation
//! `LlamaAttention` of transformers, with rotary keys and grouped heads: no difference.
//!
//! # Source
//! Vaswani et al. 2017 (1706.03762); grouped heads: Ainslie et al. 2023 (2305.13245).

use super::{
    CacheLayout, CacheReach, Facts, HEAD_DIM, KEY_HEAD_DIM, KV_HEADS, KeyValueLayout, MessageSize, MixerKind,
    MixerOption, MixerReach, OptionKind, QUERY_HEADS, Reference, VALUE_HEAD_DIM, attention, count, with_weights,
};

/// A separate option, since a cache may have a different precision than the sums over it.
const ACCUMULATOR: MixerOption = MixerOption {
    name: "accumulator",
    help: "bits of each accumulator, summed from left to right; 0 for as many as `bits`, in any order",
    kind: OptionKind::Integer { min: 0, max: 32, default: |_| 0 },
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "full",
    aliases: &["attention", "softmax", "mha", "gqa", "mqa"],
    options: &[
        QUERY_HEADS,
        KV_HEADS,
        HEAD_DIM,
        KEY_HEAD_DIM,
        VALUE_HEAD_DIM,
        count("conv", "kernel size of a convolution before the projections, 0 for none", |_| 0),
        ACCUMULATOR,
    ],
    facts: |options| {
        let (heads, value_head_dim) = (options.size("heads"), options.size("value"));
        let layout = KeyValueLayout {
            reach: CacheReach::All,
            kv_heads: options.integer("kv"),
            key_head_dim: options.integer("key"),
            value_head_dim: options.integer("value"),
            latent: false,
            index_key_dim: 0,
        };
        Facts {
            reach: MixerReach::Full(MessageSize { heads, value_head_dim, selection: None }),
            // No weights are known for accumulators of limited precision.
            looks_up: options.integer("accumulator") == 0,
            accumulator_bits: Some(options.integer("accumulator")).filter(|bits| *bits > 0),
            cache_per_token: options.size("kv") * (options.size("key") + value_head_dim),
            input_conv_state: options.width() * options.size("conv").saturating_sub(1),
            layout: Some(CacheLayout::KeyValues(layout)),
            ..with_weights(&attention(options), options.width() * options.size("conv"))
        }
    },
    reference: Reference::Public { library: "transformers", class: "LlamaAttention" },
    reads_every_token: true,
    ..MixerKind::DEFAULT
};
