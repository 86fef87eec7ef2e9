//! U2': a full layer, a bounded-state layer, then L-1 full layers, solve L hops.
//!
//! The start value looks up the first table itself, and the recurrence forwards the result to the query.
//!
//! # Stack
//! A bounded-state layer between the first and the second full layer, and L full layers in total.
//!
//! # How
//! In the first full layer the token z_0 looks up the entry of z_1 at z_0. The state forwards i_1 to w, as in U2. The remaining
//! L-1 full layers look up one table each.
//!
//! # Conditions
//! As U2, with the ceil(log m) bits of i_1 as the forwarded value.
//!
//! # Source
//! Ours: it shows why the bound for F = L full layers needs both blocks 0 and 1 to be empty.

use super::{Construction, LayerRequirement, check_requirements, look_up, look_ups_from, value_bits};

pub(super) static CONSTRUCTION: Construction = Construction {
    name: "U2'",
    needs_bits_only: true,
    fits: |plan, _, tables| {
        let first_layers = [look_up(tables, 1), LayerRequirement::Forward(value_bits(tables, 1))];
        check_requirements(plan, tables, &first_layers.into_iter().chain(look_ups_from(tables, 2)).collect::<Vec<_>>())
    },
};
