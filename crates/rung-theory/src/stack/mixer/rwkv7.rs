//! RWKV-7: a generalised delta rule with vector gates, and token shift.
//!
//! The state is decayed per channel, erased along a normalised key with a vector learning rate, and written with another
//! key: transitions with negative eigenvalues are possible, so it can track states that a pure decay cannot.
//!
//! # Recurrence
//! `S_t = Diag(w_t) S - (a_t . kk_t)(kk_t^T S) + k_t v_t^T` with `S = S_{t-1}` throughout, `y_t = S_t^T r_t`. Every
//! projection reads its own mixture of the token and the one before, `x_t + (x_{t-1} - x_t) mu`. The decay is `log w =
//! -e^{-1/2} sigmoid(..)` per channel, the learning rate `a = sigmoid(..)`, both of low rank; `kk` is `k . k_k` of
//! unit length per head, and then `k <- k (1 + (a - 1) k_a)`. Heads are normed to mean 0 and deviation 1, the token
//! itself is added with weight `sum r . k . r_k`, and a gate of low rank multiplies all.
//!
//! # Parallel form
//! In chunks: a unit lower-triangular solve turns the erasures into one correction of the values.
//!
//! # State
//! `heads * head * head` numbers, and one vector of `width` for the token shift; with `channel=yes` one more, for the
//! shift of RWKV's own channel mixing. The first layer's values, which later layers mix in, belong to the same token
//! and cross nothing.
//!
//! # Reduces to
//! DeltaNet when nothing decays and `k = a . kk`.
//!
//! # Held against
//! A second implementation after RWKV-LM's v7 model. Default ranks follow its formula for heads of 64: 2.5 and 1.7
//! times the root of the width, in steps of 32. Two differences: `fla` scales ranks with the width of a head, and the
//! gate's rank, 5 times the root there, is twice the decay's here. Weights start by the same ranges, but not in the
//! order of channels.
//!
//! # Source
//! Peng et al. 2025 (2503.14456).

use super::{
    CHANNEL_SHIFT, CarrySizes, HEAD, MixerKind, MixerOption, OptionValues, Reference, STATE_HEADS, family,
    matrix_state, size, with_weights,
};

const RANK: MixerOption = size("rank", "rank of the gates; the output's has twice it", |n| rank(2.5, n));
const VALUE_RANK: MixerOption =
    size("value-rank", "rank of the share of the first layer's values", |n| rank(1.7, n).min(n.integer("rank")));

/// A multiple of the root of the width, in steps of 32; of two steps equally near, the even one.
fn rank(factor: f64, n: &OptionValues) -> u64 {
    let steps = (factor * (n.width() as f64).sqrt() / 32.0).round_ties_even() as u64;
    32 * steps.max(1)
}

pub(super) static KIND: MixerKind = MixerKind {
    name: "rwkv7",
    aliases: &["goose"],
    options: &[STATE_HEADS, HEAD, RANK, VALUE_RANK, CHANNEL_SHIFT],
    facts: |n| {
        let (heads, head, width) = (n.size("heads"), n.size("head"), n.width());
        // The decay, the learning rate, the share of the first layer's values, and the gate with twice the rank.
        let low_rank = (4 * n.size("rank") + n.size("value-rank")) * (width + heads * head);
        family::rwkv(&with_weights(&matrix_state(heads, head, head, width, true), low_rank), n)
    },
    carry: Some(CarrySizes { smallest: |bits| vec![("heads", 1), ("head", 2 * bits), ("rank", 1)], slots: Some("head") }),
    // Later layers mix the first layer's values into theirs.
    shares_between_layers: true,
    reference: Reference::After("the v7 model of RWKV-LM"),
    engines: &["llama.cpp"],
    ..MixerKind::DEFAULT
};
