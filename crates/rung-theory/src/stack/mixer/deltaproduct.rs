//! DeltaProduct: several delta steps per token.
//!
//! A product of Householder-like factors can rotate and permute, so one layer tracks groups that a single factor cannot:
//! two factors with negative eigenvalues are enough for S3.
//!
//! # Recurrence
//! `S <- alpha_t S` if gated, then for j = 1..steps: `S <- S + beta_tj k_tj (v_tj - S^T k_tj)^T`; `o_t = S^T q_t /
//! sqrt(key)` after the last; beta reaches 2 unless negative eigenvalues are switched off; decay, norm and output gate
//! as in Gated DeltaNet.
//!
//! # Parallel form
//! Gated DeltaNet on a sequence `steps` times as long, with the gate on the first micro-step and every last output
//! kept.
//!
//! # State
//! As Gated DeltaNet: micro-steps do not enlarge the state; only the convolution's channels grow with them.
//!
//! # Reduces to
//! Gated DeltaNet when `steps = 1`; DeltaNet's core when, besides, there is no gate.
//!
//! # Held against
//! A second implementation after `fla`'s layer: no difference known.
//!
//! # Source
//! Siems et al. 2025 (2502.10297).

use super::{
    CarrySizes, Facts, HEAD, KEY, KEY_HEADS, MixerKind, Reference, SHORT_CONVOLUTION, VALUE, VALUE_HEADS, family, flag,
    gated_delta, size, without_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "deltaproduct",
    aliases: &["gated-deltaproduct", "gdp"],
    options: &[
        KEY_HEADS,
        VALUE_HEADS,
        HEAD,
        KEY,
        VALUE,
        SHORT_CONVOLUTION,
        size("steps", "delta steps per token", |_| 2),
        flag("gate", "decay the state once per token", |_| true),
        flag("negative", "allow negative eigenvalues", |_| true),
    ],
    facts: |n| {
        let reflections = if n.flag("negative") { n.integer("steps") } else { 0 };
        let gated = Facts { reflections, ..gated_delta(n, n.size("steps")) };
        if n.flag("gate") { gated } else { without_weights(&gated, n.width() * n.size("value-heads")) }
    },
    carry: Some(CarrySizes { smallest: family::gated_delta_carry, slots: Some("key") }),
    parity_shown_by: Some("holds `rung construct parity`, in one micro-step"),
    reference: Reference::After("the layer of fla"),
    ..MixerKind::DEFAULT
};
