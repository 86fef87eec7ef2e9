//! Gated DeltaNet: the delta rule on a state that also decays.
//!
//! Forgetting clears the state quickly, the delta rule edits it precisely; most hybrids of 2025 and 2026 use this one.
//!
//! # Recurrence
//! `S <- alpha_t S`, then `S <- S + beta_t k_t (v_t - S^T k_t)^T`, `o_t = S^T q_t / sqrt(key)`; `log alpha =
//! -exp(A_log) softplus(.. + dt_bias)` per value head; then a norm per head, times SiLU of a gate.
//!
//! # Parallel form
//! In chunks, DeltaNet's triangular solve with a decay mask.
//!
//! # State
//! `value-heads * key * value` numbers, and `conv - 1` inputs for each channel of q, k and v. Several value heads may
//! share a query/key head. Values are as wide as keys by default, as shipped models have them; the paper doubles them.
//!
//! # Reduces to
//! DeltaNet when nothing decays; Mamba-2's core when nothing is erased.
//!
//! # Held against
//! `OlmoHybridGatedDeltaNet` of transformers, with negative eigenvalues: no difference. It convolves queries, keys and
//! values at once, with the same filters.
//!
//! # Source
//! Yang et al. 2024 (2412.06464).

use super::{
    CacheLayout, CarrySizes, Facts, HEAD, KEY, KEY_HEADS, MixerKind, NEGATIVE, Reference, SHORT_CONVOLUTION, VALUE,
    VALUE_HEADS, family, gated_delta,
};

/// The recurrent mixer that is taken where a command needs one and its user names none: the most usual one in hybrids.
pub const DEFAULT_RECURRENCE: &str = KIND.name;

pub(super) static KIND: MixerKind = MixerKind {
    name: "gdn",
    aliases: &["gated-deltanet", "gated-delta"],
    options: &[KEY_HEADS, VALUE_HEADS, HEAD, KEY, VALUE, SHORT_CONVOLUTION, NEGATIVE],
    facts: |n| Facts {
        layout: Some(CacheLayout::State(family::gated_delta_layout(n))),
        // The decay's rate and bias per value head, and the norm's gain.
        small_parameters: 2 * n.size("value-heads") + n.size("value"),
        reflections: u64::from(n.flag("negative")),
        ..gated_delta(n, 1)
    },
    carry: Some(CarrySizes { smallest: family::gated_delta_carry, slots: Some("key") }),
    parity_shown_by: Some("holds `rung construct parity`, with negative=yes and no decay"),
    reference: Reference::Public { library: "transformers", class: "OlmoHybridGatedDeltaNet" },
    engines: &["llama.cpp", "sglang", "vllm"],
    ..MixerKind::DEFAULT
};
