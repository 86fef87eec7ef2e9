//! S2: a state that holds all of z_1 saves a full layer.
//!
//! # Stack
//! Two bounded-state layers, the second with a key for every entry of z_1, then L-1 full layers. With one hop there is no full
//! layer at all.
//!
//! # How
//! The first layer hands z_0 to w, as in U2; its MLP gives each entry of z_1 a slot of its own, and w the slot of z_0. In the second
//! the entries of z_1 write their values under their slots, which are orthogonal, and w reads its slot. The full layers look up
//! the rest.
//!
//! # Conditions
//! A mixer that hands on ceil(log m) bits, then one with m keys and room for as many bits: linear attention, GLA, Mamba-2,
//! DeltaNet, Gated DeltaNet. Not RetNet, whose keys turn with their position.
//!
//! # Source
//! Ours; the table in the state of the shortcuts, with weights.

use super::{Construction, LayerRequirement, assign, look_ups_from, small, value_bits};

pub(super) static KIND: Construction = Construction {
    name: "S2",
    needs_bits_only: false,
    fits: |plan, _, tables| {
        let front = [LayerRequirement::Carry(value_bits(tables, 0)), LayerRequirement::Table(small(&tables.m)?, value_bits(tables, 1))];
        assign(plan, tables, &front.into_iter().chain(look_ups_from(tables, 2)).collect::<Vec<_>>())
    },
};
