//! Kimi Delta Attention: Gated DeltaNet with a decay per key channel.
//!
//! The finer gate of GLA on the delta rule's state.
//!
//! # Recurrence
//! `S_t = (I - beta k k^T) Diag(alpha_t) S_{t-1} + beta k v^T`, `o_t = S_t^T q_t`; unit q and k after a short convolution and SiLU; a
//! norm per head and a sigmoid gate. Decays are per value head and key channel, through as many numbers as a value is wide.
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
//! # Held against
//! `KimiLinearDeltaAttention` of transformers for as many value heads as heads, with the bias that `fla`'s layer has in the
//! output's gate: no difference. For more value heads, a second implementation after `fla`'s layer, where decays are per
//! value head and of rank `value`. `fla`'s bounded gate is not here.
//!
//! # Source
//! Kimi Linear (2510.26692).

use super::{HEAD, KEY, KEY_HEADS, MixerKind, SHORT_CONVOLUTION, VALUE, VALUE_HEADS, with_weights, without_weights};

pub(super) static KIND: MixerKind = MixerKind {
    name: "kda",
    aliases: &["kimi-delta"],
    fields: &[KEY_HEADS, VALUE_HEADS, HEAD, KEY, VALUE, SHORT_CONVOLUTION],
    facts: |n| {
        let (heads, key, value, width) = (n.wide("value-heads"), n.wide("key"), n.wide("value"), n.width());
        let core = super::gated_delta_facts(n, 1);
        // Gated DeltaNet's gate and decay are of full rank; here both go through as many numbers as a value is wide.
        let full_rank = width * heads * (value + 1);
        let low_rank = value * (2 * width + heads * (key + value));
        without_weights(&with_weights(&core, low_rank), full_rank)
    },
};
