//! RetNet: linear attention that forgets at a fixed rate per head.
//!
//! The decays `1 - 2^(-5-h)` give each head a different time scale; queries and keys are rotated by position.
//!
//! # Recurrence
//! `S_t = gamma_h S_{t-1} + k_t v_t^T`, `o_t = S_t^T q_t / sqrt(key)` with `gamma_h = 1 - 2^(-5-h)`; q and k are
//! rotated by position; then a norm per head without gain, times SiLU of a gate.
//!
//! # Parallel form
//! `(Q K^T . D) V` with `D_ts = gamma^(t-s)`; in chunks with the same powers between chunks.
//!
//! # State
//! `heads * key * value` elements; values are twice as wide as keys by default.
//!
//! # Reduces to
//! Linear attention without normaliser when gamma = 1 and nothing is rotated.
//!
//! # Reference implementation
//! A second implementation after torchscale, whose norm per head has an epsilon of 1e-6. Torchscale also divides rows
//! of the decay mask and of the scores by their sums, which its norm cancels up to that epsilon; here these divisions are omitted.
//!
//! # Source
//! Sun et al. 2023 (2307.08621).

use super::{
    Facts, ForwardingSizes, HEAD_DIM, KEY_HEAD_DIM, MixerKind, Reference, STATE_HEADS, matrix_state, size, with_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "retnet",
    aliases: &["retention"],
    options: &[
        STATE_HEADS,
        HEAD_DIM,
        KEY_HEAD_DIM,
        size("value", "width of a value head", |options| 2 * options.integer("head")),
    ],
    facts: |options| {
        let (heads, key_head_dim, value_head_dim) = (options.size("heads"), options.size("key"), options.size("value"));
        let core = matrix_state(heads, key_head_dim, value_head_dim, options.width());
        // Rotation acts on pairs of channels: an odd key width has no network.
        let is_implemented = key_head_dim.is_multiple_of(2);
        let forwarded_bits = if is_implemented { heads * value_head_dim } else { 0 };
        // `table_rows` stays 0: keys are rotated by position, so known weights cannot keep table slots orthogonal.
        Facts { forwarded_bits, is_implemented, ..with_weights(&core, options.width() * heads * value_head_dim) }
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: |bits| vec![("heads", 1), ("key", 2), ("value", bits)],
        table_rows_option: None,
    }),
    reference: Reference::Reimplementation("torchscale"),
    ..MixerKind::DEFAULT
};
