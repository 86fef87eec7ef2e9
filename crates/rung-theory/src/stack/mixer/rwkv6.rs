//! RWKV-6: a gated recurrence read before it is written, with token shift.
//!
//! Every input of the layer is a mixture of the token and its predecessor, the mixture itself depending on the token; a
//! bonus lets the current token be read without passing through the state.
//!
//! # Recurrence
//! `o_t = (S_{t-1} + Diag(u) k_t v_t^T)^T r_t`, then `S_t = Diag(w_t) S_{t-1} + k_t v_t^T`, `w = exp(-exp(..))` per channel.
//!
//! # Parallel form
//! Weight of s < t: `sum_c r_tc k_sc exp(G_{t-1,c} - G_{s,c})`; of s = t: `sum_c r_tc u_c k_tc`.
//!
//! # State
//! `heads * head * head` numbers, and one vector of `width` for the token shift; with `channel=yes` one more, for the shift of
//! RWKV's own channel mixing.
//!
//! # Reduces to
//! GLA's state of the step before, when u = 0; linear attention when u = 1 and w = 1.
//!
//! # Held against
//! A second implementation after RWKV-LM's v6 model: no difference known in the mixer. Weights start otherwise: by the same
//! ranges, but not in the order of channels.
//!
//! # Source
//! Peng et al. 2024 (2404.05892).

use super::{CHANNEL_SHIFT, Facts, HEAD, MixerKind, STATE_HEADS, matrix_state, size, with_weights};

pub(super) static KIND: MixerKind = MixerKind {
    name: "rwkv6",
    aliases: &["finch"],
    fields: &[
        STATE_HEADS,
        HEAD,
        size("mix-rank", "rank of the token shift's mixtures", |_| 32),
        size("decay-rank", "rank of the decay", |_| 64),
        CHANNEL_SHIFT,
    ],
    facts: |n| {
        let (heads, head, width) = (n.wide("heads"), n.wide("head"), n.width());
        let low_rank = 10 * width * n.wide("mix-rank") + n.wide("decay-rank") * (width + heads * head);
        let core = with_weights(&matrix_state(heads, head, head, width, false), width * heads * head + low_rank);
        // There is no network with RWKV's channel mixing.
        let network = n.get("channel") == 0;
        let carries = if network { heads * (head / 2) } else { 0 };
        Facts { tail: width * (1 + n.wide("channel")), carries, slots: head, network, ..core }
    },
};
