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

use super::{MixerKind, count, size, with_weights};

pub(super) static KIND: MixerKind = MixerKind {
    name: "kda",
    aliases: &["kimi-delta"],
    fields: &[
        size("heads", "query and key heads", |n| n.defaults.heads),
        size("value-heads", "value heads, each with its own state", |n| n.get("heads")),
        size("head", "width of a head", |n| n.defaults.head_dim),
        size("key", "width of a key head", |n| n.get("head")),
        size("value", "width of a value head", |n| n.get("head")),
        count("conv", "taps of the short convolution, 0 for none", |_| 4),
    ],
    facts: |n| {
        let (heads, key) = (n.wide("heads"), n.wide("key"));
        with_weights(&super::gated_delta_facts(n, 1), key * (n.width() + heads * key))
    },
};
