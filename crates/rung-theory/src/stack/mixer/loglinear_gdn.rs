//! Log-linear Gated DeltaNet: a gated delta state for every power-of-two span of the past.
//!
//! The same Fenwick tree of states as log-linear Mamba-2, with Gated DeltaNet's transition on every level.
//!
//! # Recurrence
//! As log-linear Mamba-2, with `alpha_t (I - beta_t k_t k_t^T)` applied to all levels and `beta_t k_t v_t^T` written
//! to level 0; everything else as Gated DeltaNet, except that a read is not divided by the root of the key width.
//!
//! # Parallel form
//! `([tril(Q K^T) (I + stril(Diag(beta) K K^T))^-1] . L . Lambda) Diag(beta) V`.
//!
//! # State
//! Gated DeltaNet's state for each level in use, at most `levels`, and its convolution.
//!
//! # Reduces to
//! Gated DeltaNet when every lambda is the root of 1 / key: reads are not divided by the root of the key width here.
//!
//! # Reference implementation
//! A second implementation after the authors' code, where the weights of the levels are scaled so that the root of the
//! key width in the read cancels: no difference known. The authors' 15 levels, for 16,384 tokens, are the default.
//!
//! # Source
//! Guo et al. 2025 (2506.04761).

use super::{
    Facts, ForwardingSizes, HEAD_DIM, KEY_HEAD_DIM, KEY_HEADS, MixerKind, NEGATIVE, Reference, SHORT_CONVOLUTION,
    VALUE_HEAD_DIM, VALUE_HEADS, family, gated_delta, log_linear, size,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "loglinear-gdn",
    aliases: &["log-linear-gdn"],
    options: &[
        KEY_HEADS,
        VALUE_HEADS,
        HEAD_DIM,
        KEY_HEAD_DIM,
        VALUE_HEAD_DIM,
        SHORT_CONVOLUTION,
        NEGATIVE,
        size("levels", "levels of the hierarchy: prompts of up to 2^(levels-1) tokens", |_| 15),
    ],
    facts: |options| {
        let core = Facts { reflections: u64::from(options.flag("negative")), ..gated_delta(options, 1) };
        log_linear(&core, "value-heads", options)
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: family::gated_delta_forwarding,
        table_rows_option: Some("key"),
    }),
    reference: Reference::Reimplementation("the authors' code"),
    ..MixerKind::DEFAULT
};
