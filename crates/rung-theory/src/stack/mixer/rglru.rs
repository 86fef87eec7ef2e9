//! RG-LRU: a gated linear recurrence on vectors, as in Griffin and RecurrentGemma.
//!
//! The smallest recurrence in use: one number per channel, forgotten at a rate that two gates set.
//!
//! # Recurrence
//! `h_t = a_t . h_{t-1} + sqrt(1 - a_t^2) . i_t . x_t` with `log a_t = -8 r_t . softplus(L)`; r and i are sigmoid
//! gates of x, each head's channels by themselves; x is the token through a projection and a short convolution. The
//! first token of a sequence enters without the root. The output is h times GELU of a second projection, projected
//! back.
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
//! `RecurrentGemmaRecurrentBlock` of transformers: the same outputs. It cuts the derivative of the root off at 1000;
//! here it is exact.
//!
//! # Source
//! De et al. 2024 (2402.19427).

use super::{CacheLayout, CarrySizes, Facts, Flops, MixerKind, Reference, StateLayout, size, with_convolution};

pub(super) static KIND: MixerKind = MixerKind {
    name: "rglru",
    aliases: &["rg-lru", "griffin"],
    options: &[
        size("inner", "channels of the recurrence", |n| n.defaults.width()),
        size("heads", "blocks of the gates' projections", |n| n.defaults.heads),
        size("conv", "taps of the convolution", |_| 4),
    ],
    facts: |n| {
        let (inner, width) = (n.size("inner"), n.width());
        let parameters = 3 * width * inner + 2 * inner * inner / n.size("heads");
        let channels = n.integer("inner");
        let layout = StateLayout {
            channels,
            kernel_size: n.integer("conv"),
            recurrent: channels,
            heads: channels,
            ..StateLayout::default()
        };
        // One channel of each head marks the token that writes.
        let has_network = inner.is_multiple_of(n.size("heads"));
        let carried_bits = if has_network { inner - n.size("heads") } else { 0 };
        let core = Facts {
            recurrent_state: inner,
            layout: Some(CacheLayout::State(layout)),
            parameters,
            flops: Flops { per_token: 2 * parameters + 8 * inner, ..Flops::default() },
            carried_bits,
            has_network,
            ..Facts::EMPTY
        };
        with_convolution(&core, inner, n.size("conv"))
    },
    carry: Some(CarrySizes { smallest: |bits| vec![("inner", bits + 1), ("heads", 1)], slots: None }),
    reference: Reference::Public { library: "transformers", class: "RecurrentGemmaRecurrentBlock" },
    ..MixerKind::DEFAULT
};
