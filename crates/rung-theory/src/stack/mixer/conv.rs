//! Gated short convolution: a few taps over the last tokens, no other memory.
//!
//! The cheapest mixer that moves anything between tokens, and the one that LFM2 puts between its attention layers.
//!
//! # Recurrence
//! `y_t = C_t . sum_j w_j (B_{t-j} . x_{t-j})`, j = 0..taps-1, with B, C, x projections of the token.
//!
//! # Parallel form
//! A depthwise causal convolution.
//!
//! # State
//! `taps - 1` inputs for each of `channels` channels.
//!
//! # Reduces to
//! The identity gate and one tap leave a token-wise map.
//!
//! # Held against
//! `Lfm2ShortConv` of transformers: no difference.
//!
//! # Source
//! LFM2 (2511.23404).

use super::{Facts, MixerKind, YES_NO, choice, size, with_convolution, with_weights};

pub(super) static KIND: MixerKind = MixerKind {
    name: "conv",
    aliases: &["convolution", "shortconv"],
    fields: &[
        size("taps", "taps of the convolution", |_| 3),
        size("channels", "channels", |n| n.defaults.width()),
        choice("gated", "gate and project, or only convolve what another mixer projected", YES_NO),
    ],
    facts: |n| {
        let (taps, channels) = (n.wide("taps"), n.wide("channels"));
        let projections = if n.get("gated") == 0 { 4 * n.width() * channels } else { 0 };
        let core = with_weights(&Facts::NOTHING, projections);
        // One tap sees only the token itself.
        let carries = if taps > 1 && n.get("gated") == 0 { channels } else { 0 };
        Facts { carries, ..with_convolution(&core, channels, taps) }
    },
};
