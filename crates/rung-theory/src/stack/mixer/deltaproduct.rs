//! DeltaProduct: several delta steps per token.
//!
//! A product of Householder-like factors can rotate and permute, so one layer tracks groups that a single factor cannot:
//! two factors with negative eigenvalues are enough for S3.
//!
//! # Recurrence
//! `S <- alpha_t S` (if gated), then for j = 1..steps: `S <- S + beta_tj k_tj (v_tj - S^T k_tj)^T`; read after the last.
//!
//! # Parallel form
//! Gated DeltaNet on a text `steps` times as long, with the gate on the first micro-step and every last output kept.
//!
//! # State
//! As Gated DeltaNet: micro-steps do not enlarge the state; only the convolution's channels grow with them.
//!
//! # Reduces to
//! Gated DeltaNet (or DeltaNet, ungated) when `steps = 1`.
//!
//! # Held against
//! A second implementation after `fla`'s layer: no difference known.
//!
//! # Source
//! Siems et al. 2025 (2502.10297).

use super::{
    HEAD, KEY, KEY_HEADS, MixerKind, SHORT_CONVOLUTION, VALUE, VALUE_HEADS, YES_NO, choice, gated_delta_facts, size,
    without_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "deltaproduct",
    aliases: &["gated-deltaproduct", "gdp"],
    fields: &[
        KEY_HEADS,
        VALUE_HEADS,
        HEAD,
        KEY,
        VALUE,
        SHORT_CONVOLUTION,
        size("steps", "delta steps per token", |_| 2),
        choice("gate", "decay the state once per token", YES_NO),
        choice("negative", "allow negative eigenvalues", YES_NO),
    ],
    facts: |n| {
        let gated = gated_delta_facts(n, n.wide("steps"));
        // Of the words of this option, "yes" is the first.
        if n.get("gate") == 0 { gated } else { without_weights(&gated, n.width() * n.wide("value-heads")) }
    },
};
