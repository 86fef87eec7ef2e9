//! RG-LRU: a gated linear recurrence on vectors, as in Griffin and RecurrentGemma.
//!
//! The smallest recurrence in use: one state element per channel, with a decay and an input that are gated.
//!
//! # Recurrence
//! `h_t = a_t . h_{t-1} + sqrt(1 - a_t^2) . i_t . x_t` with `log a_t = -8 r_t . softplus(L)`; r and i are sigmoid
//! gates of x, block-diagonal over heads; x is the token through a projection and a short convolution. The
//! factor `sqrt(1 - a_t^2)` is 1 for the first token of a sequence. The output is h times GELU of a second projection, projected
//! back.
//!
//! # Parallel form
//! An associative scan over elementwise pairs.
//!
//! # State
//! `inner` elements, and `conv - 1` inputs per channel of the convolution.
//!
//! # Reduces to
//! An exponential moving average when the gates are constant.
//!
//! # Reference implementation
//! `RecurrentGemmaRecurrentBlock` of transformers: the same outputs. It clips the derivative of the root at 1000;
//! here it is exact.
//!
//! # Source
//! De et al. 2024 (2402.19427).

use super::{CacheLayout, Facts, Flops, ForwardingSizes, MixerKind, Reference, StateLayout, size, with_convolution};

pub(super) static KIND: MixerKind = MixerKind {
    name: "rglru",
    aliases: &["rg-lru", "griffin"],
    options: &[
        size("inner", "channels of the recurrence", |options| options.defaults.width()),
        size("heads", "blocks of the gates' projections", |options| options.defaults.heads),
        size("conv", "kernel size of the convolution", |_| 4),
    ],
    facts: |options| {
        let (inner, width) = (options.size("inner"), options.width());
        let parameters = 3 * width * inner + 2 * inner * inner / options.size("heads");
        let channels = options.integer("inner");
        let layout = StateLayout {
            channels,
            kernel_size: options.integer("conv"),
            recurrent: channels,
            heads: channels,
            ..StateLayout::default()
        };
        // The weights that forward bits use one channel of each head to flag the source token.
        let is_implemented = inner.is_multiple_of(options.size("heads"));
        let forwarded_bits = if is_implemented { inner - options.size("heads") } else { 0 };
        let core = Facts {
            recurrent_state: inner,
            layout: Some(CacheLayout::State(layout)),
            parameters,
            flops: Flops { per_token: 2 * parameters + 8 * inner, ..Flops::default() },
            forwarded_bits,
            is_implemented,
            ..Facts::EMPTY
        };
        with_convolution(&core, inner, options.size("conv"))
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: |bits| vec![("inner", bits + 1), ("heads", 1)],
        table_rows_option: None,
    }),
    reference: Reference::Public { library: "transformers", class: "RecurrentGemmaRecurrentBlock" },
    ..MixerKind::DEFAULT
};
