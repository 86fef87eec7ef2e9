//! RWKV-7: a generalised delta rule with vector gates, and token shift.
//!
//! The state is decayed per channel, erased along a normalised key with a vector learning rate, and written with another
//! key: transitions with negative eigenvalues are possible, so it can track states that a decay alone cannot.
//!
//! # Recurrence
//! `S_t = Diag(w_t) S - (a_t . kk_t)(kk_t^T S) + k_t v_t^T` with `S = S_{t-1}` throughout, `y_t = S_t^T r_t`. Every
//! projection reads its own mixture of the token and the one before, `x_t + (x_{t-1} - x_t) mu`. The decay is `log w =
//! -e^{-1/2} sigmoid(..)` per channel, the learning rate `a = sigmoid(..)`, both of low rank; `kk` is `k . k_k` of
//! unit length per head, and then `k <- k (1 + (a - 1) k_a)`. Heads are normalised to mean 0 and standard
//! deviation 1, the token's value is added with weight `sum r . k . r_k`, and the result is multiplied by a low-rank gate.
//!
//! # Parallel form
//! In chunks: a unit lower-triangular solve turns the erasures into one correction of the values.
//!
//! # State
//! `heads * head * head` elements, and one vector of `width` for the token shift; with `channel=yes` one more, for the
//! shift of RWKV's own channel mixing. The first layer's values, which later layers mix in, belong to the same token
//! and are not part of the state.
//!
//! # Reduces to
//! DeltaNet without decay if `k = a . kk`.
//!
//! # Reference implementation
//! A second implementation after RWKV-LM's v7 model. Default ranks follow its formula for heads of 64: 2.5 and 1.7
//! times the root of the width, in steps of 32. Two differences: `fla` scales ranks with the width of a head, and the
//! gate's rank, 5 times the root there, is twice the decay's here. Initial weights have the same ranges, but a different
//! order of channels.
//!
//! # Source
//! Peng et al. 2025 (2503.14456).

use super::{
    CHANNEL_SHIFT, ForwardingSizes, HEAD_DIM, MixerKind, MixerOption, OptionValues, Reference, STATE_HEADS,
    delta_rule_state, family, size, with_weights,
};

const RANK: MixerOption = size("rank", "rank of the gates; the output's has twice it", |options| rank(2.5, options));
const VALUE_RANK: MixerOption = size("value-rank", "rank of the share of the first layer's values", |options| {
    rank(1.7, options).min(options.integer("rank"))
});

/// `factor` times the root of the width, rounded to a multiple of 32 (ties to even) and at least 32.
fn rank(factor: f64, options: &OptionValues) -> u64 {
    let steps = (factor * (options.width() as f64).sqrt() / 32.0).round_ties_even() as u64;
    32 * steps.max(1)
}

pub(super) static KIND: MixerKind = MixerKind {
    name: "rwkv7",
    aliases: &["goose"],
    options: &[STATE_HEADS, HEAD_DIM, RANK, VALUE_RANK, CHANNEL_SHIFT],
    facts: |options| {
        let (heads, head, width) = (options.size("heads"), options.size("head"), options.width());
        // The decay, the learning rate, the share of the first layer's values, and the gate with twice the rank.
        let low_rank = (4 * options.size("rank") + options.size("value-rank")) * (width + heads * head);
        family::rwkv(&with_weights(&delta_rule_state(heads, head, head, width), low_rank), options)
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: |bits| vec![("heads", 1), ("head", 2 * bits), ("rank", 1)],
        table_rows_option: Some("head"),
    }),
    // Later layers mix the first layer's values into theirs.
    shares_between_layers: true,
    reference: Reference::Reimplementation("the v7 model of RWKV-LM"),
    engines: &["llama.cpp"],
    ..MixerKind::DEFAULT
};
