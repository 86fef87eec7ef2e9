//! U2: a bounded-state layer, then L full-attention layers, solve L hops.
//!
//! The recurrence forwards the start value to the query, so that no full layer is needed to look it up.
//!
//! # Stack
//! A bounded-state layer anywhere before the first full layer, and L full layers.
//!
//! # How
//! Only z_0 writes to the state: all other tokens have value 0. At w, the next token, the state holds the bits of z_0. Then the
//! full layers look up one table each, as in U1.
//!
//! # Conditions
//! As U1 for the heads; and a mixer with known weights that forward ceil(log m) bits: linear attention with any feature
//! map, RetNet, GLA, Mamba-2, DeltaNet, Gated DeltaNet, a window or gated convolution of at least two tokens.
//!
//! # Source
//! Ours; the matching lower bound is Ye et al. (2602.01763).

use super::{Construction, LayerRequirement, check_requirements, look_ups_from, value_bits};

pub(super) static CONSTRUCTION: Construction = Construction {
    name: "U2",
    needs_bits_only: true,
    fits: |plan, _, tables| {
        let forward_start = LayerRequirement::Forward(value_bits(tables, 0));
        check_requirements(
            plan,
            tables,
            &[forward_start].into_iter().chain(look_ups_from(tables, 1)).collect::<Vec<_>>(),
        )
    },
};
