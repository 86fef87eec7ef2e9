//! S4: a first layer that reads all of z_1 saves a full layer.
//!
//! # Stack
//! L full layers, the first with m+1 heads. With one hop that is a single layer.
//!
//! # How
//! One head of w reads z_0, and m others read the m entries of z_1, one each. The MLP selects the value of the entry that z_0
//! names. It selects by a value read in the same layer, so these heads use a larger inverse temperature than others. The other layers look up one
//! table each.
//!
//! # Conditions
//! m+1 heads in the first layer.
//!
//! # Source
//! Ours: explicit weights for shortcut S4 (speculation).

use super::{Construction, HeadGroup, LayerRequirement, check_requirements, entry_count, look_ups_from};

pub(super) static CONSTRUCTION: Construction = Construction {
    name: "S4",
    needs_bits_only: false,
    fits: |plan, _, tables| {
        let all_entries = HeadGroup::table(tables, 1, entry_count(&tables.m)?);
        let first = LayerRequirement::Heads(vec![HeadGroup::start(tables), all_entries]);
        check_requirements(plan, tables, &[first].into_iter().chain(look_ups_from(tables, 2)).collect::<Vec<_>>())
    },
};
