//! HGRN2: a gated recurrence whose key is one minus its forget gate.
//!
//! What is not forgotten is not written: one gate does both, bounded from below by a learned floor that rises with depth.
//!
//! # Recurrence
//! `f_t = lb + (1 - lb) sigmoid(W_f x_t)` per channel, `S_t = Diag(f_t) S_{t-1} + (1 - f_t) i_t^T` with `i = W_i x`,
//! `o_t = S_t^T SiLU(W_q x_t) / sqrt(expand)`; then a norm over the whole width.
//!
//! The floors of all layers are one learned table, a row for each layer: `lb` of layer l is the sum of rows 1 to l of
//! its softmax over layers. The first layer has none, and a fresh model's rise evenly.
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

use super::{CarrySizes, Facts, MixerKind, Reference, matrix_state, size};

pub(super) static KIND: MixerKind = MixerKind {
    name: "hgrn2",
    aliases: &["hgrn"],
    options: &[size("expand", "width of a head's key, and of its value", |n| n.defaults.width().min(128))],
    facts: |n| {
        let (expand, width) = (n.size("expand"), n.width());
        let carried_bits = if width.is_multiple_of(expand) { width } else { 0 };
        Facts { carried_bits, ..matrix_state(width.div_ceil(expand), expand, expand, width, false) }
    },
    carry: Some(CarrySizes { smallest: |_| vec![("expand", 1)], slots: None }),
    // The lower bounds of the forget gates of all layers are one table.
    shares_between_layers: true,
    reference: Reference::After("the layer of fla"),
    ..MixerKind::DEFAULT
};
