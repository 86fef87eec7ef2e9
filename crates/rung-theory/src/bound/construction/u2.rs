//! U2: a bounded-state layer, then L full-attention layers, solve L hops.
//!
//! The recurrence hands the start value to the query, so that no full layer is spent on finding it.
//!
//! # Stack
//! A bounded-state layer anywhere before the first full layer, and L full layers.
//!
//! # How
//! Only z_0 writes to the state: all other tokens have value 0. At w, the next token, the state holds the bits of z_0. Then the
//! full layers look up one table each, as in U1.
//!
//! # Conditions
//! As U1 for the heads; and a mixer whose weights for handing ceil(log m) bits on are known: linear attention with any feature
//! map, RetNet, GLA, Mamba-2, DeltaNet, Gated DeltaNet, a window or gated convolution of at least two tokens.
//!
//! # Source
//! Ours; the matching lower bound is Ye et al. (2602.01763).

use super::{Construction, LayerRequirement, assign, look_ups_from, value_bits};

pub(super) static KIND: Construction = Construction {
    name: "U2",
    needs_bits_only: true,
    fits: |plan, _, tables| {
        let carry = LayerRequirement::Carry(value_bits(tables, 0));
        assign(plan, tables, &[carry].into_iter().chain(look_ups_from(tables, 1)).collect::<Vec<_>>())
    },
};
