//! DeltaProduct: several delta steps per token.
//!
//! A product of Householder-like factors can rotate and permute, so one layer tracks groups that a single factor cannot:
//! two factors with negative eigenvalues are enough for S3.
//!
//! # Recurrence
//! `S <- alpha_t S` if gated, then for j = 1..steps: `S <- S + beta_tj k_tj (v_tj - S^T k_tj)^T`; `o_t = S^T q_t /
//! sqrt(key)` after the last; beta goes up to 2 unless `negative=no`; decay, norm and output gate
//! as in Gated DeltaNet.
//!
//! # Parallel form
//! Gated DeltaNet on a sequence `steps` times as long, with the gate on the first micro-step and only the output of
//! each last micro-step.
//!
//! # State
//! As Gated DeltaNet: micro-steps do not enlarge the state; only the convolution's channels grow with them.
//!
//! # Reduces to
//! Gated DeltaNet if `steps = 1`; DeltaNet's recurrence if there is also no gate.
//!
//! # Reference implementation
//! A second implementation after `fla`'s layer: no difference known.
//!
//! # Source
//! Siems et al. 2025 (2502.10297).

use super::{
    Facts, ForwardingSizes, HEAD_DIM, KEY_HEAD_DIM, KEY_HEADS, MixerKind, Reference, SHORT_CONVOLUTION, VALUE_HEAD_DIM,
    VALUE_HEADS, family, flag, gated_delta, size, without_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "deltaproduct",
    aliases: &["gated-deltaproduct", "gdp"],
    options: &[
        KEY_HEADS,
        VALUE_HEADS,
        HEAD_DIM,
        KEY_HEAD_DIM,
        VALUE_HEAD_DIM,
        SHORT_CONVOLUTION,
        size("steps", "delta steps per token", |_| 2),
        flag("gate", "decay the state once per token", |_| true),
        flag("negative", "allow negative eigenvalues", |_| true),
    ],
    facts: |options| {
        let reflections = if options.flag("negative") { options.integer("steps") } else { 0 };
        let gated = Facts { reflections, ..gated_delta(options, options.size("steps")) };
        if options.flag("gate") {
            gated
        } else {
            without_weights(&gated, options.width() * options.size("value-heads"))
        }
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: family::gated_delta_forwarding,
        table_rows_option: Some("key"),
    }),
    parity_evidence: Some("can hold the weights of `rung construct parity`, in one micro-step"),
    reference: Reference::Reimplementation("the layer of fla"),
    ..MixerKind::DEFAULT
};
