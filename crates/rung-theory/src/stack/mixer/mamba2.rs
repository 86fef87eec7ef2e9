//! Mamba-2: a state space model with one decay per head, so that chunks are matrix products.
//!
//! A simplification of Mamba that is as fast as linear attention: scalar decay per head, wide states, keys and queries
//! (B and C) shared by groups of heads.
//!
//! # Recurrence
//! `S_t = exp(dt_t a_h) S_{t-1} + B_t (dt_t x_t)^T`, `y_t = S_t^T C_t + D_h x_t`, `dt = softplus(.. + bias)`, `a =
//! -exp(A_log)`; a short convolution and SiLU on (x, B, C); the gate SiLU(z), then a norm over the channels of each
//! group of heads.
//!
//! # Parallel form
//! `Y = (C B^T . L)(dt . X)` with `L_ts = exp(sum of dt a over s+1..t)`; chunks as in RetNet.
//!
//! # State
//! `heads * head * state` elements, and `conv - 1` inputs for each of `heads * head + 2 * groups * state` channels.
//!
//! # Reduces to
//! Linear attention with scalar decay, `q = C, k = B, v = dt x`.
//!
//! # Reference implementation
//! `BambaMixer` of transformers with two groups, whose gated norm is per group as in mamba_ssm: no difference.
//! `Mamba2Mixer` of transformers normalises all channels together, which is the same for one group only.
//!
//! # Source
//! Dao and Gu 2024 (2405.21060).

use super::{CacheLayout, Facts, ForwardingSizes, MixerKind, Reference, StateLayout, family, mamba2_facts, size};

pub(super) static KIND: MixerKind = MixerKind {
    name: "mamba2",
    aliases: &["ssd"],
    options: &[
        size("head", "width of a head", |options| (2 * options.defaults.width()).min(64)),
        size("heads", "heads", |options| 2 * options.defaults.width() / options.integer("head")),
        size("state", "state indices per channel", |_| 128),
        size("groups", "groups of heads that share B and C", |_| 1),
        size("conv", "kernel size of the convolution", |_| 4),
    ],
    facts: |options| {
        let (heads, groups, state) = (options.integer("heads"), options.integer("groups"), options.integer("state"));
        let inner = heads * options.integer("head");
        let layout = StateLayout {
            channels: inner,
            groups,
            group_channels: 2 * state,
            kernel_size: options.integer("conv"),
            recurrent: inner.saturating_mul(state),
            heads,
            shift: 0,
        };
        Facts {
            layout: Some(CacheLayout::State(layout)),
            // A, D and the bias of the step size per head; the norm's gain; the convolution's bias.
            norm_and_bias_parameters: u128::from(3 * heads + 2 * inner)
                + 2 * options.size("groups") * options.size("state"),
            ..mamba2_facts(options)
        }
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: family::mamba2_forwarding,
        table_rows_option: Some("state"),
    }),
    reference: Reference::Public { library: "transformers", class: "BambaMixer" },
    engines: &["llama.cpp", "sglang", "vllm"],
    ..MixerKind::DEFAULT
};
