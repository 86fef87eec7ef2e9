//! Full causal softmax attention, with any number of key/value heads.
//!
//! Every token scores every earlier token and takes the softmax-weighted mean of their values. It is the only
//! classical mixer whose memory grows with the text, and the only one the hierarchy counts as a rung.
//!
//! # Recurrence
//! Scores `a_ts = q_t.k_s / sqrt(d)` for s <= t, `o_t = sum_s softmax(a_t)_s v_s`. For a fixed query it streams: keep
//! the maximum, the sum of weights and the weighted sum of values, rescaling when the maximum moves.
//!
//! # Parallel form
//! `O = softmax(mask(Q K^T / sqrt(d))) V`, quadratic in the number of tokens. Query head h reads key/value head
//! `floor(h * kv / heads)`.
//!
//! # State
//! None of fixed size: `kv * (key + value)` numbers per token, for ever. With `conv = k` a causal convolution of k
//! taps stands before the projections; its k-1 inputs per channel are a bounded-state layer in front of this one.
//!
//! With `accumulator = p` a head sums from left to right and keeps `value` running means and the log of the sum of weights, p bits
//! each: `heads * (value + 1) * p` bits are all that a token learns of a prefix. Without it sums are taken in `bits` bits, in an order
//! that is left to the machine.
//!
//! # Reduces to
//! `kv = heads` is multi-head attention, `kv = 1` multi-query attention. A window as long as the context is this.
//!
//! # Held against
//! `LlamaAttention` of transformers, with rotary keys and grouped heads: no difference.
//!
//! # Source
//! Vaswani et al. 2017 (1706.03762); grouped heads: Ainslie et al. 2023 (2305.13245).

use super::{
    CacheLayout, CacheReach, Facts, HEAD, KEY, KV_HEADS, KeyValueLayout, MessageSize, MixerKind, MixerOption, OptionKind,
    QUERY_HEADS, MixerReach, Reference, VALUE, attention, count, with_weights,
};

/// Its own, since a cache may well have other bits than the sums over it.
const ACCUMULATOR: MixerOption = MixerOption {
    name: "accumulator",
    help: "bits of each accumulator, summed from left to right; 0 for as many as `bits`, in any order",
    kind: OptionKind::Integer { least: 0, most: 32, default: |_| 0 },
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "full",
    aliases: &["attention", "softmax", "mha", "gqa", "mqa"],
    options: &[
        QUERY_HEADS,
        KV_HEADS,
        HEAD,
        KEY,
        VALUE,
        count("conv", "taps of a convolution before the projections, 0 for none", |_| 0),
        ACCUMULATOR,
    ],
    facts: |n| {
        let (heads, value) = (n.size("heads"), n.size("value"));
        let (kv, key) = (n.integer("kv"), n.integer("key"));
        let reach = CacheReach::All;
        let value_head = n.integer("value");
        let layout = KeyValueLayout { reach, heads: kv, key, value: value_head, latent: false, index: 0 };
        Facts {
            reach: MixerReach::Full(MessageSize { heads, value, selection: None }),
            // No weights are known for sums in accumulators of a given number of bits.
            looks_up: n.integer("accumulator") == 0,
            accumulator_bits: Some(n.integer("accumulator")).filter(|bits| *bits > 0),
            cache_per_token: n.size("kv") * (n.size("key") + value),
            input_conv_state: n.width() * n.size("conv").saturating_sub(1),
            layout: Some(CacheLayout::KeyValues(layout)),
            ..with_weights(&attention(n), n.width() * n.size("conv"))
        }
    },
    reference: Reference::Public { library: "transformers", class: "LlamaAttention" },
    ..MixerKind::DEFAULT
};
