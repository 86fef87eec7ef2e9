//! Kimi Delta Attention: Gated DeltaNet with a decay per key channel.
//!
//! The finer gate of GLA on the delta rule's state.
//!
//! # Recurrence
//! `S_t = (I - beta k k^T) Diag(alpha_t) S_{t-1} + beta k v^T`, `o_t = S_t^T q_t`; unit q and k after a short convolution and SiLU; a
//! norm per head and a sigmoid gate.
//!
//! # Parallel form
//! In chunks, the triangular solve with per-channel decays inside the products.
//!
//! # State
//! `value-heads * key * value` numbers, and `conv - 1` inputs for each channel of q, k and v.
//!
//! # Reduces to
//! Gated DeltaNet when the channels of a head decay alike; DeltaNet when nothing decays; GLA when nothing is erased.
//!
//! # Source
//! Kimi Linear (2510.26692).

use super::{HEAD, KEY, KEY_HEADS, MixerKind, SHORT_CONVOLUTION, VALUE, VALUE_HEADS, with_weights};

pub(super) static KIND: MixerKind = MixerKind {
    name: "kda",
    aliases: &["kimi-delta"],
    fields: &[KEY_HEADS, VALUE_HEADS, HEAD, KEY, VALUE, SHORT_CONVOLUTION],
    facts: |n| {
        let (heads, key) = (n.wide("heads"), n.wide("key"));
        with_weights(&super::gated_delta_facts(n, 1), key * (n.width() + heads * key))
    },
};
