//! U2': a full layer, a bounded-state layer, then L-1 full layers, solve L hops.
//!
//! The start value looks up the first table itself, and the recurrence hands the result to the query.
//!
//! # Stack
//! A bounded-state layer between the first and the second full layer, and L full layers in all.
//!
//! # How
//! In the first full layer the token z_0 asks for the entry of z_1 at z_0. The state carries i_1 to w, as in U2. The remaining
//! L-1 full layers look up one table each.
//!
//! # Conditions
//! As U2, with ceil(log m) bits of i_1 to hand on.
//!
//! # Source
//! Ours: it shows why the bound for F = L full layers needs both blocks 0 and 1 to be empty.

use super::{Construction, LayerRequirement, assign, look_ups_from, look_up, value_bits};

pub(super) static KIND: Construction = Construction {
    name: "U2'",
    needs_bits_only: true,
    fits: |plan, _, tables| {
        let front = [look_up(tables, 1), LayerRequirement::Carry(value_bits(tables, 1))];
        assign(plan, tables, &front.into_iter().chain(look_ups_from(tables, 2)).collect::<Vec<_>>())
    },
};
