//! Gated linear attention: a forget gate per key channel, computed from the token.
//!
//! The gate lets the text itself decide what to forget, channel by channel.
//!
//! # Recurrence
//! `S_t = Diag(alpha_t) S_{t-1} + k_t v_t^T`, `o_t = S_t^T q_t / sqrt(key)`, `alpha = sigmoid(W_2 W_1 x + b)^(1/16)`;
//! then a norm per head, times SiLU of a gate.
//!
//! # Parallel form
//! `P_ts = sum_c q_tc k_sc exp(G_tc - G_sc)` with G the running sum of log gates; computed in chunks and sub-chunks,
//! because the factored form overflows.
//!
//! # State
//! `heads * key * value` numbers; keys are half as wide as values by default.
//!
//! # Reduces to
//! Linear attention without normaliser when the gates are open; RetNet's core when all channels of a head agree.
//!
//! # Held against
//! A second implementation after `fla`'s layer: no difference known.
//!
//! # Source
//! Yang et al. 2023 (2312.06635).

use super::{CarrySizes, Facts, MixerKind, Reference, STATE_HEADS, matrix_state, size, with_weights};

pub(super) static KIND: MixerKind = MixerKind {
    name: "gla",
    aliases: &["gated-linear"],
    options: &[
        STATE_HEADS,
        size("value", "width of a value head", |n| n.defaults.head_dim),
        size("key", "width of a key head", |n| n.integer("value") / 2),
        size("rank", "rank of the gate's projection", |_| 16),
    ],
    facts: |n| {
        let (heads, key, value, rank) = (n.size("heads"), n.size("key"), n.size("value"), n.size("rank"));
        let gates = rank * (n.width() + heads * key) + n.width() * heads * value;
        let core = with_weights(&matrix_state(heads, key, value, n.width(), false), gates);
        Facts { carried_bits: heads * value, table_slots: key, ..core }
    },
    carry: Some(CarrySizes { smallest: |bits| vec![("heads", 1), ("key", 1), ("value", bits), ("rank", 1)], slots: Some("key") }),
    reference: Reference::After("the layer of fla"),
    ..MixerKind::DEFAULT
};
