//! Gated DeltaNet: the delta rule on a state that also decays.
//!
//! The decay clears the state quickly, the delta rule updates single keys; most hybrid models of 2025 and 2026 use this mixer.
//!
//! # Recurrence
//! `S <- alpha_t S`, then `S <- S + beta_t k_t (v_t - S^T k_t)^T`, `o_t = S^T q_t / sqrt(key)`; `log alpha =
//! -exp(A_log) softplus(.. + dt_bias)` per value head; then a norm per head, times SiLU of a gate.
//!
//! # Parallel form
//! In chunks, DeltaNet's triangular solve with a decay mask.
//!
//! # State
//! `value-heads * key * value` elements, and `conv - 1` inputs for each channel of q, k and v. Several value heads may
//! share a query/key head. Values are as wide as keys by default, as in released models; the paper doubles them.
//!
//! # Reduces to
//! DeltaNet without decay; Mamba-2's recurrence without the delta rule.
//!
//! # Reference implementation
//! `OlmoHybridGatedDeltaNet` of transformers, with negative eigenvalues: no difference. It applies one convolution to the concatenated queries,
//! keys and values, which is the same.
//!
//! # Source
//! Yang et al. 2024 (2412.06464).

use super::{
    CacheLayout, Facts, ForwardingSizes, HEAD_DIM, KEY_HEAD_DIM, KEY_HEADS, MixerKind, NEGATIVE, Reference,
    SHORT_CONVOLUTION, VALUE_HEAD_DIM, VALUE_HEADS, family, gated_delta,
};

/// The default recurrent mixer of commands that need one: the most common one in hybrid models.
pub const DEFAULT_RECURRENCE: &str = KIND.name;

pub(super) static KIND: MixerKind = MixerKind {
    name: "gdn",
    aliases: &["gated-deltanet", "gated-delta"],
    options: &[KEY_HEADS, VALUE_HEADS, HEAD_DIM, KEY_HEAD_DIM, VALUE_HEAD_DIM, SHORT_CONVOLUTION, NEGATIVE],
    facts: |options| Facts {
        layout: Some(CacheLayout::State(family::gated_delta_layout(options))),
        // The decay's rate and bias per value head, and the norm's gain.
        norm_and_bias_parameters: 2 * options.size("value-heads") + options.size("value"),
        reflections: u64::from(options.flag("negative")),
        ..gated_delta(options, 1)
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: family::gated_delta_forwarding,
        table_rows_option: Some("key"),
    }),
    parity_evidence: Some("can hold the weights of `rung construct parity`, with negative=yes and no decay"),
    reference: Reference::Public { library: "transformers", class: "OlmoHybridGatedDeltaNet" },
    engines: &["llama.cpp", "sglang", "vllm"],
    ..MixerKind::DEFAULT
};
