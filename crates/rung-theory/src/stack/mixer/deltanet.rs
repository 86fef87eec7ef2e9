//! DeltaNet: linear attention with the delta rule, which corrects the stored value instead of adding to it.
//!
//! Each token first reads the value that the state holds for its key, then writes the difference: one step of gradient descent
//! on the recall error.
//!
//! # Recurrence
//! `S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T`, `o_t = S_t^T q_t / sqrt(key)`; short convolution and SiLU on
//! q, k, v; unit q and k; `beta = sigmoid(..)`, doubled if negative eigenvalues are allowed; then a norm per head.
//!
//! # Parallel form
//! `tril(Q K^T) (I + stril(Diag(beta) K K^T))^-1 Diag(beta) V`; in chunks by the same triangular solve.
//!
//! # State
//! `heads * key * value` elements, and `conv - 1` inputs for each channel of q, k and v.
//!
//! # Reduces to
//! Exact recall for orthonormal keys and beta = 1; a reflection for beta = 2.
//!
//! # Reference implementation
//! A second implementation after `fla`'s layer: no difference known.
//!
//! # Source
//! Schlag et al. 2021 (2102.11174); Yang et al. 2024 (2406.06484).

use super::{
    Facts, ForwardingSizes, HEAD_DIM, KEY_HEAD_DIM, MixerKind, NEGATIVE, Reference, SHORT_CONVOLUTION, STATE_HEADS,
    VALUE_HEAD_DIM, delta_rule_state, with_convolution, with_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "deltanet",
    aliases: &["delta"],
    options: &[STATE_HEADS, HEAD_DIM, KEY_HEAD_DIM, VALUE_HEAD_DIM, SHORT_CONVOLUTION, NEGATIVE],
    facts: |options| {
        let (heads, key_head_dim, value_head_dim) = (options.size("heads"), options.size("key"), options.size("value"));
        let core = with_weights(
            &delta_rule_state(heads, key_head_dim, value_head_dim, options.width()),
            options.width() * heads,
        );
        let reflections = u64::from(options.flag("negative"));
        let core =
            Facts { forwarded_bits: heads * (value_head_dim / 2), table_rows: key_head_dim, reflections, ..core };
        with_convolution(&core, heads * (2 * key_head_dim + value_head_dim), options.size("conv"))
    },
    forwarding_sizes: Some(ForwardingSizes {
        options_for_bits: |bits| vec![("heads", 1), ("key", 1), ("value", 2 * bits)],
        table_rows_option: Some("key"),
    }),
    parity_evidence: Some("`rung construct parity`, with negative=yes"),
    reference: Reference::Reimplementation("the layer of fla"),
    ..MixerKind::DEFAULT
};
