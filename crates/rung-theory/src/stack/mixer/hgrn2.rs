//! HGRN2: a gated recurrence whose key is one minus its forget gate.
//!
//! What is not forgotten is not written: one gate does both, bounded from below by a learned floor that rises with depth.
//!
//! # Recurrence
//! `f_t = lb + (1-lb) sigmoid(W_f x_t)`, `S_t = Diag(f_t) S_{t-1} + (1-f_t) i_t^T`, `o_t = S_t^T SiLU(W_q x_t)`.
//!
//! # Parallel form
//! As GLA, with keys `1 - f`.
//!
//! # State
//! `width * expand` numbers: `width / expand` heads of `expand` by `expand`.
//!
//! # Reduces to
//! GLA with `k = 1 - alpha`; the elementwise HGRN when `expand = 1`.
//!
//! # Held against
//! A second implementation after `fla`'s layer: no difference known.
//!
//! # Source
//! Qin et al. 2024 (2404.07904).

use super::{Facts, MixerKind, matrix_state, size};

pub(super) static KIND: MixerKind = MixerKind {
    name: "hgrn2",
    aliases: &["hgrn"],
    fields: &[size("expand", "width of a head's key, and of its value", |n| n.defaults.width().min(128))],
    facts: |n| {
        let (expand, width) = (n.wide("expand"), n.width());
        let carries = if width.is_multiple_of(expand) { width } else { 0 };
        Facts { carries, ..matrix_state(width.div_ceil(expand), expand, expand, width, false) }
    },
};
