//! RetNet: linear attention that forgets at a fixed rate per head.
//!
//! The decays `1 - 2^(-5-h)` give each head its own horizon; a rotation of queries and keys gives positions.
//!
//! # Recurrence
//! `S_t = gamma_h S_{t-1} + k_t v_t^T`, `o_t = S_t^T q_t`, q and k rotated, then a norm per head and a SiLU gate.
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
//! A second implementation after torchscale, whose norm per head has an epsilon of 1e-6. Torchscale also divides rows of the
//! decay mask and of the scores by their sums, which its norm undoes up to that epsilon; that is left out here.
//!
//! # Source
//! Sun et al. 2023 (2307.08621).

use super::{Facts, HEAD, KEY, MixerKind, STATE_HEADS, matrix_state, size, with_weights};

pub(super) static KIND: MixerKind = MixerKind {
    name: "retnet",
    aliases: &["retention"],
    fields: &[STATE_HEADS, HEAD, KEY, size("value", "width of a value head", |n| 2 * n.get("head"))],
    facts: |n| {
        let (heads, key, value) = (n.wide("heads"), n.wide("key"), n.wide("value"));
        let core = matrix_state(heads, key, value, n.width(), false);
        // Keys turn in pairs, and with their position, so that slots of a table would not stay apart.
        let network = key.is_multiple_of(2);
        let carries = if network { heads * value } else { 0 };
        Facts { carries, network, ..with_weights(&core, n.width() * heads * value) }
    },
};
