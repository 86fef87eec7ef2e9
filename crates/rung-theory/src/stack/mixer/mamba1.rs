//! Mamba: a selective state space model with a separate decay for every channel and state index.
//!
//! The step size is computed from the token, so each token sets, per channel, how fast the state decays.
//!
//! # Recurrence
//! `h_t[c,m] = exp(dt_tc A_cm) h_{t-1}[c,m] + dt_tc B_tm x_tc`, `y_tc = sum_m C_tm h_t[c,m] + D_c x_tc`; a short
//! convolution and SiLU on x; `dt = softplus(W_dt .. + bias)` per channel, `A = -exp(A_log)`; the output times
//! SiLU(z).
//!
//! # Parallel form
//! An associative scan; there is no matrix-product form, because every pair (c, m) has a different decay.
//!
//! # State
//! `inner * state` elements, and `conv - 1` inputs for each of the `inner` channels of the convolution.
//!
//! # Reduces to
//! Mamba-2 when A is constant within a head.
//!
//! # Reference implementation
//! `MambaMixer` of transformers: no difference.
//!
//! # Source
//! Gu and Dao 2023 (2312.00752).

use super::{CacheLayout, Facts, Flops, ForwardingSizes, MixerKind, Reference, StateLayout, size, with_convolution};

pub(super) static KIND: MixerKind = MixerKind {
    name: "mamba1",
    aliases: &["mamba", "s6"],
    options: &[
        size("inner", "channels after expansion", |options| 2 * options.defaults.width()),
        size("state", "state indices per channel", |_| 16),
        size("conv", "kernel size of the convolution", |_| 4),
        size("rank", "rank of the step size's projection", |options| options.defaults.width().div_ceil(16)),
    ],
    facts: |options| {
        let (inner, state, rank, width) =
            (options.size("inner"), options.size("state"), options.size("rank"), options.width());
        let parameters = 3 * width * inner + inner * (rank + 2 * state) + rank * inner + inner * state;
        let channels = options.integer("inner");
        let layout = StateLayout {
            channels,
            kernel_size: options.integer("conv"),
            recurrent: channels * options.integer("state"),
            heads: channels,
            ..StateLayout::default()
        };
        let core = Facts {
            recurrent_state: inner * state,
            layout: Some(CacheLayout::State(layout)),
            parameters,
            // The biases of the convolution and of the step size, and D.
            norm_and_bias_parameters: 3 * inner,
            flops: Flops { per_token: 2 * parameters + 6 * inner * state, ..Flops::default() },
            // Known weights use two channels to mark the writing and the reading token, and two channels per bit.
            forwarded_bits: inner.saturating_sub(2) / 2,
            ..Facts::EMPTY
        };
        with_convolution(&core, inner, options.size("conv"))
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: |bits| vec![("inner", 2 * bits + 2), ("state", 1), ("rank", 1)],
        table_rows_option: None,
    }),
    reference: Reference::Public { library: "transformers", class: "MambaMixer" },
    engines: &["llama.cpp", "sglang", "vllm"],
    ..MixerKind::DEFAULT
};
