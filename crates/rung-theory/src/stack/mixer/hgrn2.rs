//! HGRN2: a gated recurrence whose key is one minus its forget gate.
//!
//! One gate controls both forgetting and writing. It is bounded from below by a learned lower bound that increases with depth.
//!
//! # Recurrence
//! `f_t = lb + (1 - lb) sigmoid(W_f x_t)` per channel, `S_t = Diag(f_t) S_{t-1} + (1 - f_t) i_t^T` with `i = W_i x`,
//! `o_t = S_t^T SiLU(W_q x_t) / sqrt(expand)`; then a norm over the whole width.
//!
//! The lower bounds of all layers come from one learned table with a row for each layer: `lb` of layer l is the sum of rows 1 to l
//! of its softmax over layers (rows and layers from 0). It is 0 in the first layer, and at initialisation it increases evenly.
//!
//! # Parallel form
//! As GLA, with keys `1 - f`.
//!
//! # State
//! `width * expand` elements: `width / expand` heads of `expand` by `expand`.
//!
//! # Reduces to
//! GLA with `k = 1 - alpha`; the elementwise HGRN when `expand = 1`.
//!
//! # Reference implementation
//! A second implementation after `fla`'s layer: no difference known.
//!
//! # Source
//! Qin et al. 2024 (2404.07904).

use super::{Facts, ForwardingSizes, MixerKind, Reference, matrix_state, size};

pub(super) static KIND: MixerKind = MixerKind {
    name: "hgrn2",
    aliases: &["hgrn"],
    options: &[size("expand", "width of a head's key, and of its value", |options| options.defaults.width().min(128))],
    facts: |options| {
        let (expand, width) = (options.size("expand"), options.width());
        let forwarded_bits = if width.is_multiple_of(expand) { width } else { 0 };
        Facts { forwarded_bits, ..matrix_state(width.div_ceil(expand), expand, expand, width) }
    },
    forwarding_sizes: Some(ForwardingSizes { options_for_bits: |_| vec![("expand", 1)], table_rows_option: None }),
    // The lower bounds of the forget gates of all layers are one table.
    shares_between_layers: true,
    reference: Reference::Reimplementation("the layer of fla"),
    ..MixerKind::DEFAULT
};
