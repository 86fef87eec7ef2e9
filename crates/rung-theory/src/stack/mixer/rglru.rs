//! RG-LRU: a gated linear recurrence on vectors, as in Griffin and RecurrentGemma.
//!
//! The smallest recurrence in use: one number per channel, forgotten at a rate that two gates set.
//!
//! # Recurrence
//! `a_t = a^(8 r_t)`, `h_t = a_t . h_{t-1} + sqrt(1 - a_t^2) . (i_t . x_t)`, x the token through a projection and a short convolution, r
//! and i sigmoid gates of x, each head's channels by themselves. The first token of a text enters without the root.
//!
//! # Parallel form
//! An associative scan over elementwise pairs.
//!
//! # State
//! `inner` numbers, and `conv - 1` inputs per channel of the convolution.
//!
//! # Reduces to
//! An exponential moving average when the gates are constant.
//!
//! # Held against
//! `RecurrentGemmaRecurrentBlock` of transformers: the same outputs. It cuts the derivative of the root off at 1000; here it
//! is exact.
//!
//! # Source
//! De et al. 2024 (2402.19427).

use super::{Facts, MixerKind, Work, size, with_convolution};

pub(super) static KIND: MixerKind = MixerKind {
    name: "rglru",
    aliases: &["rg-lru", "griffin"],
    fields: &[
        size("inner", "channels of the recurrence", |n| n.defaults.width()),
        size("heads", "blocks of the gates' projections", |n| n.defaults.heads),
        size("conv", "taps of the convolution", |_| 4),
    ],
    facts: |n| {
        let (inner, width) = (n.wide("inner"), n.width());
        let parameters = 3 * width * inner + 2 * inner * inner / n.wide("heads");
        let work = Work { token: 2 * parameters + 8 * inner, ..Work::default() };
        // One channel of each head marks the token that gives.
        let network = inner.is_multiple_of(n.wide("heads"));
        let carries = if network { inner - n.wide("heads") } else { 0 };
        let core = Facts { state: inner, parameters, work, carries, network, ..Facts::NOTHING };
        with_convolution(&core, inner, n.wide("conv"))
    },
};
