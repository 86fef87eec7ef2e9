//! Gated short convolution: a few taps over the last tokens, no other memory.
//!
//! The cheapest mixer that moves anything between tokens, and the one that LFM2 puts between its attention layers.
//!
//! # Recurrence
//! `y_t = C_t . sum_j w_j (B_{t-j} . x_{t-j})`, j = 0..taps-1, with B, C, x projections of the token; ungated, the
//! convolution alone.
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

use super::{
    CacheLayout, CarrySizes, Facts, MixerKind, Reference, StateLayout, flag, size, with_convolution, with_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "conv",
    aliases: &["convolution", "shortconv"],
    options: &[
        size("taps", "taps of the convolution", |_| 3),
        size("channels", "channels", |n| n.defaults.width()),
        flag("gated", "gate and project, or only convolve what another mixer projected", |_| true),
    ],
    facts: |n| {
        let (taps, channels, gated) = (n.size("taps"), n.size("channels"), n.flag("gated"));
        let core = with_weights(&Facts::EMPTY, if gated { 4 * n.width() * channels } else { 0 });
        let layout = StateLayout {
            channels: n.integer("channels"),
            kernel_size: n.integer("taps"),
            heads: n.integer("channels"),
            ..StateLayout::default()
        };
        Facts {
            // One tap sees only the token itself.
            carried_bits: if taps > 1 && gated { channels } else { 0 },
            layout: Some(CacheLayout::State(layout)),
            ..with_convolution(&core, channels, taps)
        }
    },
    carry: Some(CarrySizes { smallest: |bits| vec![("channels", bits)], slots: None }),
    reference: Reference::Public { library: "transformers", class: "Lfm2ShortConv" },
    engines: &["llama.cpp", "sglang", "vllm"],
    ..MixerKind::DEFAULT
};
