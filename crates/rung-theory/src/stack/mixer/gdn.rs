//! Gated DeltaNet: the delta rule on a state that also decays.
//!
//! Forgetting clears the state quickly, the delta rule edits it precisely; most hybrids of 2025 and 2026 use this one.
//!
//! # Recurrence
//! `S <- alpha_t S`, then `S <- S + beta_t k_t (v_t - S^T k_t)^T`, `o_t = S^T q_t`; `log alpha = -exp(A) softplus(..)` per head; a norm
//! per head and a SiLU gate.
//!
//! # Parallel form
//! In chunks, DeltaNet's triangular solve with a decay mask.
//!
//! # State
//! `value-heads * key * value` numbers, and `conv - 1` inputs for each channel of q, k and v. Several value heads may share a
//! query/key head. Values are as wide as keys by default, as shipped models have them; the paper doubles them.
//!
//! # Reduces to
//! DeltaNet when nothing decays; Mamba-2's core when nothing is erased.
//!
//! # Held against
//! `OlmoHybridGatedDeltaNet` of transformers, with negative eigenvalues: no difference. It convolves queries, keys and values
//! at once, with the same filters.
//!
//! # Source
//! Yang et al. 2024 (2412.06464).

use super::{HEAD, KEY, KEY_HEADS, MixerKind, NO_YES, SHORT_CONVOLUTION, VALUE, VALUE_HEADS, choice};

pub(super) static KIND: MixerKind = MixerKind {
    name: "gdn",
    aliases: &["gated-deltanet", "gated-delta"],
    fields: &[
        KEY_HEADS,
        VALUE_HEADS,
        HEAD,
        KEY,
        VALUE,
        SHORT_CONVOLUTION,
        choice("negative", "allow negative eigenvalues", NO_YES),
    ],
    facts: |n| super::gated_delta_facts(n, 1),
};
