//! RetNet: linear attention that forgets at a fixed rate per head.
//!
//! The decays `1 - 2^(-5-h)` give each head its own horizon; a rotation of queries and keys gives positions.
//!
//! # Recurrence
//! `S_t = gamma_h S_{t-1} + k_t v_t^T`, `o_t = S_t^T q_t / sqrt(key)` with `gamma_h = 1 - 2^(-5-h)`; q and k are
//! turned by position; then a norm per head without gain, times SiLU of a gate.
//!
//! # Parallel form
//! `(Q K^T . D) V` with `D_ts = gamma^(t-s)`; in chunks with the same powers between chunks.
//!
//! # State
//! `heads * key * value` numbers; values are twice as wide as keys by default.
//!
//! # Reduces to
//! Linear attention without normaliser when gamma = 1 and nothing is rotated.
//!
//! # Held against
//! A second implementation after torchscale, whose norm per head has an epsilon of 1e-6. Torchscale also divides rows
//! of the decay mask and of the scores by their sums, which its norm undoes up to that epsilon; that is left out here.
//!
//! # Source
//! Sun et al. 2023 (2307.08621).

use super::{CarrySizes, Facts, HEAD, KEY, MixerKind, Reference, STATE_HEADS, matrix_state, size, with_weights};

pub(super) static KIND: MixerKind = MixerKind {
    name: "retnet",
    aliases: &["retention"],
    options: &[STATE_HEADS, HEAD, KEY, size("value", "width of a value head", |n| 2 * n.integer("head"))],
    facts: |n| {
        let (heads, key, value) = (n.size("heads"), n.size("key"), n.size("value"));
        let core = matrix_state(heads, key, value, n.width(), false);
        // Keys turn in pairs, and with their position, so that slots of a table would not stay apart.
        let has_network = key.is_multiple_of(2);
        let carried_bits = if has_network { heads * value } else { 0 };
        Facts { carried_bits, has_network, ..with_weights(&core, n.width() * heads * value) }
    },
    carry: Some(CarrySizes { smallest: |bits| vec![("heads", 1), ("key", 2), ("value", bits)], slots: None }),
    reference: Reference::After("torchscale"),
    ..MixerKind::DEFAULT
};
