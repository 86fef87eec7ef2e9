//! S4: a first layer that reads all of z_1 saves a full layer.
//!
//! # Stack
//! L full layers, the first with m+1 heads. With one hop that is a single layer.
//!
//! # How
//! One head of w reads z_0, and m others read the m entries of z_1, each its own. The MLP takes the value of the entry that z_0
//! names. It chooses by what was read in the same layer, so these heads are sharper than others. The other layers look up one
//! table each.
//!
//! # Conditions
//! m+1 heads in the first layer.
//!
//! # Source
//! Ours; the speculation of the shortcuts, with weights.

use super::{Construction, LayerRequirement, address, assign, look_ups_from, small, value_bits};

pub(super) static KIND: Construction = Construction {
    name: "S4",
    needs_bits_only: false,
    fits: |plan, _, tables| {
        let all = (small(&tables.m)?, address(tables, 1), value_bits(tables, 1));
        let first = LayerRequirement::Heads(vec![(1, 1, value_bits(tables, 0)), all]);
        assign(plan, tables, &[first].into_iter().chain(look_ups_from(tables, 2)).collect::<Vec<_>>())
    },
};
