//! DeltaNet: linear attention that corrects what it stored instead of adding to it.
//!
//! Each token first asks the state what it holds for the key, then writes the difference: one step of gradient descent
//! on the recall error.
//!
//! # Recurrence
//! `S_t = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T`, `o_t = S_t^T q_t / sqrt(key)`; short convolution and SiLU on
//! q, k, v; unit q and k; `beta = sigmoid(..)`, doubled where negative eigenvalues are allowed; then a norm per head.
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
    CarrySizes, Facts, HEAD, KEY, MixerKind, NEGATIVE, Reference, SHORT_CONVOLUTION, STATE_HEADS, VALUE, matrix_state,
    with_convolution, with_weights,
};

pub(super) static KIND: MixerKind = MixerKind {
    name: "deltanet",
    aliases: &["delta"],
    options: &[STATE_HEADS, HEAD, KEY, VALUE, SHORT_CONVOLUTION, NEGATIVE],
    facts: |n| {
        let (heads, key, value) = (n.size("heads"), n.size("key"), n.size("value"));
        let core = with_weights(&matrix_state(heads, key, value, n.width(), true), n.width() * heads);
        let reflections = u64::from(n.flag("negative"));
        let core = Facts { carried_bits: heads * (value / 2), table_slots: key, reflections, ..core };
        with_convolution(&core, heads * (2 * key + value), n.size("conv"))
    },
    carry: Some(CarrySizes { smallest: |bits| vec![("heads", 1), ("key", 1), ("value", 2 * bits)], slots: Some("key") }),
    parity_shown_by: Some("`rung construct parity`, with negative=yes"),
    reference: Reference::After("the layer of fla"),
    ..MixerKind::DEFAULT
};
