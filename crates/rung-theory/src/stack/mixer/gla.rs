//! Gated linear attention: a forget gate per key channel, computed from the token.
//!
//! The gate is input-dependent, so each token decides, channel by channel, what the state forgets.
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
//! `heads * key * value` elements; keys are half as wide as values by default.
//!
//! # Reduces to
//! Linear attention without normaliser if all gates are 1; RetNet's recurrence if all channels of a head have the same constant gate.
//!
//! # Reference implementation
//! A second implementation after `fla`'s layer: no difference known.
//!
//! # Source
//! Yang et al. 2023 (2312.06635).

use super::{Facts, ForwardingSizes, MixerKind, Reference, STATE_HEADS, matrix_state, size, with_weights};

pub(super) static KIND: MixerKind = MixerKind {
    name: "gla",
    aliases: &["gated-linear"],
    options: &[
        STATE_HEADS,
        size("value", "width of a value head", |options| options.defaults.head_dim),
        size("key", "width of a key head", |options| options.integer("value") / 2),
        size("rank", "rank of the gate's projection", |_| 16),
    ],
    facts: |options| {
        let (heads, key_head_dim, value_head_dim, rank) =
            (options.size("heads"), options.size("key"), options.size("value"), options.size("rank"));
        let gates = rank * (options.width() + heads * key_head_dim) + options.width() * heads * value_head_dim;
        let core = with_weights(&matrix_state(heads, key_head_dim, value_head_dim, options.width()), gates);
        Facts { forwarded_bits: heads * value_head_dim, table_rows: key_head_dim, ..core }
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: |bits| vec![("heads", 1), ("key", 1), ("value", bits), ("rank", 1)],
        table_rows_option: Some("key"),
    }),
    reference: Reference::Reimplementation("the layer of fla"),
    ..MixerKind::DEFAULT
};
