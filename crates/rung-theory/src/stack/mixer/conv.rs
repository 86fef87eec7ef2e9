//! Gated short convolution: a few taps over the last tokens, no other memory.
//!
//! The cheapest mixer that passes information between tokens; LFM2 uses it between its attention layers.
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
//! A token-wise map with one tap and gates of 1.
//!
//! # Reference implementation
//! `Lfm2ShortConv` of transformers: no difference.
//!
//! # Source
//! LFM2 (2511.23404).

use super::{
    CacheLayout, Facts, ForwardingSizes, MixerKind, Reference, StateLayout, flag, size, with_convolution, with_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "conv",
    aliases: &["convolution", "shortconv"],
    options: &[
        size("taps", "kernel size of the convolution", |_| 3),
        size("channels", "channels", |options| options.defaults.width()),
        flag("gated", "gate and project, or only convolve what another mixer projected", |_| true),
    ],
    facts: |options| {
        let (kernel_size, channels, gated) = (options.size("taps"), options.size("channels"), options.flag("gated"));
        let core = with_weights(&Facts::EMPTY, if gated { 4 * options.width() * channels } else { 0 });
        let layout = StateLayout {
            channels: options.integer("channels"),
            kernel_size: options.integer("taps"),
            heads: options.integer("channels"),
            ..StateLayout::default()
        };
        Facts {
            // One tap sees only the token itself.
            forwarded_bits: if kernel_size > 1 && gated { channels } else { 0 },
            layout: Some(CacheLayout::State(layout)),
            ..with_convolution(&core, channels, kernel_size)
        }
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: |bits| vec![("channels", bits)],
        table_rows_option: None,
    }),
    reference: Reference::Public { library: "transformers", class: "Lfm2ShortConv" },
    engines: &["llama.cpp", "sglang", "vllm"],
    is_convolution: true,
    ..MixerKind::DEFAULT
};
