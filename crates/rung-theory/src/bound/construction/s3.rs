//! S3: entries that look ahead save a full layer.
//!
//! # Stack
//! L full layers; or a bounded-state layer and L-1 of them. The first full layer has a head for every branch of some hop e, and
//! one for w.
//!
//! # How
//! In the first full layer each entry of z_e looks up, with one head for each possible w_e, the entry of z_(e+1) that its value would
//! lead to. It then holds a row of n_e values. When w comes to z_e it reads that whole row, and its MLP takes the value that
//! w_e names: two hops in one layer.
//!
//! # Conditions
//! n_e + 1 heads in the first full layer, for an e from 1 to L-1 (from 2 with a bounded-state layer in front), and room for
//! n_e ceil(log N_e) bits of values in the layer that looks up z_e.
//!
//! # Source
//! Ours; the prefetch of the shortcuts, with weights.

use super::{Construction, LayerRequirement, address, assign, look_up, small, value_bits};
use crate::bound::tables::TableSizes;
use crate::stack::Plan;

pub(super) static KIND: Construction = Construction {
    name: "S3",
    needs_bits_only: false,
    fits: |plan, _, tables| {
        let ways = (1..tables.hops()).flat_map(|e| [(e, false), (e, true)]).filter(|(e, carried)| *e > 1 || !carried);
        let mut lack = "two hops at least, three with a carrier".to_owned();
        for (e, carried) in ways {
            match fits(plan, tables, e, carried) {
                Ok(()) => return Ok(()),
                Err(found) => lack = found,
            }
        }
        Err(lack)
    },
};

/// Whether entries of z_e can look ahead, with or without a carrier in front.
fn fits(plan: &Plan, tables: &TableSizes, e: usize, carried: bool) -> Result<(), String> {
    let (branches, ahead) = (small(&tables.n[e - 1])?, value_bits(tables, e + 1));
    let own = if carried { (1, address(tables, 1), value_bits(tables, 1)) } else { (1, 1, value_bits(tables, 0)) };
    let mut needs = Vec::new();
    if carried {
        needs.push(LayerRequirement::Carry(value_bits(tables, 0)));
    }
    needs.push(LayerRequirement::Heads(vec![own, (branches, address(tables, e + 1), ahead)]));
    for l in 1 + usize::from(carried)..=tables.hops() {
        if l == e {
            needs.push(LayerRequirement::Heads(vec![(1, address(tables, e), branches.saturating_mul(ahead))]));
        } else if l != e + 1 {
            needs.push(look_up(tables, l));
        }
    }
    assign(plan, tables, &needs)
}
