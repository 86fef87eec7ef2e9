//! Kimi Delta Attention: Gated DeltaNet with a decay per key channel.
//!
//! It combines the per-channel gate of GLA with the delta rule.
//!
//! # Recurrence
//! `S <- Diag(alpha_t) S`, then `S <- S + beta_t k_t (v_t - S^T k_t)^T`, `o_t = S^T q_t / sqrt(key)`; `log alpha =
//! -exp(A_log) softplus(F_2 F_1 x + dt_bias)` per key channel; then a norm per head, times the sigmoid of a gate of
//! low rank.
//!
//! # Parallel form
//! In chunks, the triangular solve with per-channel decays inside the products.
//!
//! # State
//! `value-heads * key * value` elements, and `conv - 1` inputs for each channel of q, k and v.
//!
//! # Reduces to
//! Gated DeltaNet if all channels of a head have the same decay; DeltaNet without decay; GLA without the delta rule.
//!
//! # Reference implementation
//! `KimiLinearDeltaAttention` of transformers for as many value heads as heads, with the bias that `fla`'s layer has
//! in the output gate: no difference. For more value heads, a second implementation after `fla`'s layer, where
//! decays are per value head and of rank `value`. `fla`'s bounded gate is not implemented.
//!
//! # Source
//! Kimi Linear (2510.26692).

use super::{
    CacheLayout, Facts, ForwardingSizes, HEAD_DIM, KEY_HEAD_DIM, KEY_HEADS, MixerKind, Reference, SHORT_CONVOLUTION,
    VALUE_HEAD_DIM, VALUE_HEADS, family, gated_delta, with_weights, without_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "kda",
    aliases: &["kimi-delta"],
    options: &[KEY_HEADS, VALUE_HEADS, HEAD_DIM, KEY_HEAD_DIM, VALUE_HEAD_DIM, SHORT_CONVOLUTION],
    facts: |options| {
        let (heads, key_head_dim, value_head_dim, width) =
            (options.size("value-heads"), options.size("key"), options.size("value"), options.width());
        let core =
            Facts { layout: Some(CacheLayout::State(family::gated_delta_layout(options))), ..gated_delta(options, 1) };
        // Gated DeltaNet's gate and decay are of full rank; here both have low rank, the width of a value.
        let full_rank = width * heads * (value_head_dim + 1);
        let low_rank = value_head_dim * (2 * width + heads * (key_head_dim + value_head_dim));
        without_weights(&with_weights(&core, low_rank), full_rank)
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: family::gated_delta_forwarding,
        table_rows_option: Some("key"),
    }),
    reference: Reference::Public { library: "transformers", class: "KimiLinearDeltaAttention" },
    engines: &["llama.cpp", "sglang", "vllm"],
    ..MixerKind::DEFAULT
};
