//! DeltaNet: linear attention that corrects what it stored instead of adding to it.
//!
//! Each token first asks the state what it holds for the key, then writes the difference: one step of gradient descent
//! on the recall error.
//!
//! # Recurrence
//! `S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T`, `o_t = S_t^T q_t`; short convolution and SiLU on q, k, v; unit q and k;
//! `beta = sigmoid(..)`, doubled where negative eigenvalues are allowed.
//!
//! # Parallel form
//! `tril(Q K^T) (I + stril(Diag(beta) K K^T))^-1 Diag(beta) V`; in chunks by the same triangular solve.
//!
//! # State
//! `heads * key * value` numbers, and `conv - 1` inputs for each channel of q, k and v.
//!
//! # Reduces to
//! Exact recall for orthonormal keys and beta = 1; a reflection for beta = 2.
//!
//! # Held against
//! A second implementation after `fla`'s layer: no difference known.
//!
//! # Source
//! Schlag et al. 2021 (2102.11174); Yang et al. 2024 (2406.06484).

use super::{
    Facts, HEAD, KEY, MixerKind, NO_YES, SHORT_CONVOLUTION, STATE_HEADS, VALUE, choice, matrix_state, with_convolution,
    with_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "deltanet",
    aliases: &["delta"],
    fields: &[
        STATE_HEADS,
        HEAD,
        KEY,
        VALUE,
        SHORT_CONVOLUTION,
        choice("negative", "allow negative eigenvalues", NO_YES),
    ],
    facts: |n| {
        let (heads, key, value) = (n.wide("heads"), n.wide("key"), n.wide("value"));
        let core = with_weights(&matrix_state(heads, key, value, n.width(), true), n.width() * heads);
        let core = Facts { carries: heads * (value / 2), slots: key, ..core };
        with_convolution(&core, heads * (2 * key + value), n.wide("conv"))
    },
};
