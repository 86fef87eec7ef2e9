//! Lightning attention: linear attention with a fixed decay per head, as large models ship it.
//!
//! RetNet's recurrence without the rotation, with square heads and an activation on q, k and v; the form MiniMax and the
//! Ling/Ring models use between full layers.
//!
//! # Recurrence
//! `S_t = gamma_h S_{t-1} + k_t v_t^T`, `o_t = S_t^T q_t`, then a norm and a sigmoid gate.
//!
//! # Parallel form
//! As RetNet: a decay mask inside a chunk, the state between chunks.
//!
//! # State
//! `heads * head * head` numbers.
//!
//! # Reduces to
//! RetNet with `value = key` and no rotation.
//!
//! # Source
//! Qin et al. 2024 (2401.04658); MiniMax-01 (2501.08313).

use super::{Facts, HEAD, MixerKind, STATE_HEADS, matrix_state, with_weights};

pub(super) static KIND: MixerKind = MixerKind {
    name: "lightning",
    aliases: &["lightning-attention"],
    fields: &[STATE_HEADS, HEAD],
    facts: |n| {
        let (heads, head) = (n.wide("heads"), n.wide("head"));
        let core = with_weights(&matrix_state(heads, head, head, n.width(), false), n.width() * heads * head);
        Facts { network: false, ..core }
    },
};
