//! RWKV-7: a generalised delta rule with vector gates, and token shift.
//!
//! The state is decayed per channel, erased along a normalised key with a vector learning rate, and written with another
//! key: transitions with negative eigenvalues are possible, so it can track states that a pure decay cannot.
//!
//! # Recurrence
//! `S_t = Diag(w_t) S_{t-1} - (a_t . kk_t)(kk_t^T S_{t-1}) + k_t v_t^T`, `y_t = S_t^T r_t`, then a group norm, a bonus for the
//! token itself, and a gate. The erase term sees the state before its decay.
//!
//! # Parallel form
//! In chunks: a unit lower-triangular solve turns the erasures into one correction of the values.
//!
//! # State
//! `heads * head * head` numbers, and one vector of `width` for the token shift; with `channel=yes` one more, for the shift of
//! RWKV's own channel mixing. The first layer's values, which later layers mix in, belong to the same token and cross nothing.
//!
//! # Reduces to
//! DeltaNet when w = 1 and the erase and write keys agree.
//!
//! # Held against
//! A second implementation after RWKV-LM's v7 model. Default ranks follow its formula for heads of 64: 2.5 and 1.7 times the
//! root of the width, in steps of 32. Two differences: `fla` scales ranks with the width of a head, and the gate's rank, 5
//! times the root there, is twice the decay's here. Weights start by the same ranges, but not in the order of channels.
//!
//! # Source
//! Peng et al. 2025 (2503.14456).

use super::{CHANNEL_SHIFT, Facts, Field, HEAD, MixerKind, Numbers, STATE_HEADS, matrix_state, size, with_weights};

const RANK: Field = size("rank", "rank of the gates; the output's has twice it", |n| rank(2.5, n));
const VALUE_RANK: Field =
    size("value-rank", "rank of the share of the first layer's values", |n| rank(1.7, n).min(n.get("rank")));

/// A multiple of the root of the width, in steps of 32; of two steps equally near, the even one.
fn rank(factor: f64, n: &Numbers) -> u64 {
    let steps = (factor * (n.width() as f64).sqrt() / 32.0).round_ties_even() as u64;
    32 * steps.max(1)
}

pub(super) static KIND: MixerKind = MixerKind {
    name: "rwkv7",
    aliases: &["goose"],
    fields: &[STATE_HEADS, HEAD, RANK, VALUE_RANK, CHANNEL_SHIFT],
    facts: |n| {
        let (heads, head, width) = (n.wide("heads"), n.wide("head"), n.width());
        // The decay, the learning rate, the share of the first layer's values, and the gate with twice the rank.
        let low_rank = (4 * n.wide("rank") + n.wide("value-rank")) * (width + heads * head);
        let core = with_weights(&matrix_state(heads, head, head, width, true), low_rank);
        // There is no network with RWKV's channel mixing.
        let network = n.get("channel") == 0;
        let carries = if network { heads * (head / 2) } else { 0 };
        Facts { tail: width * (1 + n.wide("channel")), carries, slots: head, network, ..core }
    },
};
