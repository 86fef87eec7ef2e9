//! S2: a state that holds all of z_1 saves a full layer.
//!
//! # Stack
//! Two bounded-state layers, the second with a key for every entry of z_1, then L-1 full layers. With one hop there is no full
//! layer at all.
//!
//! # How
//! The first layer forwards z_0 to w, as in U2; its MLP gives each entry of z_1 a row of the next state, and w the row of z_0. In the second
//! layer the entries of z_1 write their values with their rows as orthogonal keys, and w reads its row. The full layers look up
//! the remaining tables.
//!
//! # Conditions
//! A mixer that forwards ceil(log m) bits, then one with m keys and values of as many bits: linear attention, GLA, Mamba-2,
//! DeltaNet, Gated DeltaNet. Not RetNet, whose keys rotate with their position.
//!
//! # Source
//! Ours: explicit weights for shortcut S2.

use super::{Construction, LayerRequirement, check_requirements, entry_count, look_ups_from, value_bits};

pub(super) static CONSTRUCTION: Construction = Construction {
    name: "S2",
    needs_bits_only: false,
    fits: |plan, _, tables| {
        let rows = entry_count(&tables.m)?;
        let state_layers = [
            LayerRequirement::Forward(value_bits(tables, 0)),
            LayerRequirement::Table { rows, bits: value_bits(tables, 1) },
        ];
        check_requirements(plan, tables, &state_layers.into_iter().chain(look_ups_from(tables, 2)).collect::<Vec<_>>())
    },
};
