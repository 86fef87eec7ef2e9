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
//! None of fixed size: `kv * (key + value)` numbers per token, for ever. With `conv = k` a causal convolution of k taps
//! stands before the projections; its k-1 inputs per channel are a bounded-state layer in front of this one.
//!
//! With `accumulator = p` a head sums from left to right and keeps `value` running means and the log of the sum of weights, p bits
//! each: `heads * (value + 1) * p` bits are all that a token learns of a prefix. Without it sums are taken in `bits` bits, in an order
//! that is left to the machine.
//!
//! # Reduces to
//! `kv = heads` is multi-head attention, `kv = 1` multi-query attention. A window as long as the text is this.
//!
//! # Held against
//! `LlamaAttention` of transformers, with rotary keys and grouped heads: no difference.
//!
//! # Source
//! Vaswani et al. 2017 (1706.03762); grouped heads: Ainslie et al. 2023 (2305.13245).

use super::{
    Facts, Field, HEAD, KEY, KV_HEADS, Message, MixerKind, QUERY_HEADS, Reach, VALUE, attention, count, with_weights,
};

/// Its own, since a cache may well have other bits than the sums over it.
const ACCUMULATOR: Field = Field {
    most: 32,
    ..count("accumulator", "bits of each accumulator, summed from left to right; 0 for as many as `bits`, in any order", |_| 0)
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "full",
    aliases: &["attention", "softmax", "mha", "gqa", "mqa"],
    fields: &[
        QUERY_HEADS,
        KV_HEADS,
        HEAD,
        KEY,
        VALUE,
        count("conv", "taps of a convolution before the projections, 0 for none", |_| 0),
        ACCUMULATOR,
    ],
    facts: |n| {
        let (heads, value) = (n.wide("heads"), n.wide("value"));
        Facts {
            reach: Reach::Full(Message { heads, value, selection: None }),
            growing: n.wide("kv") * (n.wide("key") + value),
            front: n.width() * n.wide("conv").saturating_sub(1),
            ..with_weights(&attention(n), n.width() * n.wide("conv"))
        }
    },
};
