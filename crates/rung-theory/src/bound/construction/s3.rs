//! S3: entries that prefetch the next entry save a full layer.
//!
//! # Stack
//! L full layers; or a bounded-state layer and L-1 of them. The first full layer has a head for every value of some w_e, and
//! one for the query.
//!
//! # How
//! In the first full layer each entry of z_e looks up, with one head for each possible w_e, the entry of z_(e+1) that its value
//! leads to. It then holds a row of n_e values. When w looks up z_e it reads the row, and its MLP selects the value for its w_e:
//! two hops in one layer.
//!
//! # Conditions
//! n_e + 1 heads in the first full layer, for an e from 1 to L-1 (from 2 with a bounded-state layer in front), and room for
//! n_e ceil(log N_e) bits of values in the layer that looks up z_e.
//!
//! # Source
//! Ours: explicit weights for shortcut S3 (prefetch).

use super::{
    Construction, HeadGroup, LayerRequirement, check_requirements, entry_count, key_width, look_up, value_bits,
};
use crate::bound::tables::TableSizes;
use crate::stack::Plan;

pub(super) static CONSTRUCTION: Construction = Construction {
    name: "S3",
    needs_bits_only: false,
    fits: |plan, _, tables| {
        let variants =
            (1..tables.hops()).flat_map(|e| [(e, false), (e, true)]).filter(|(e, forwarded)| *e > 1 || !forwarded);
        let mut missing = "two hops at least, three if a bounded-state layer forwards z_0".to_owned();
        for (e, forwarded) in variants {
            match fits(plan, tables, e, forwarded) {
                Ok(()) => return Ok(()),
                Err(reason) => missing = reason,
            }
        }
        Err(missing)
    },
};

/// Whether entries of z_e can prefetch the next entry. If `forwarded`, a bounded-state layer in front forwards z_0 to w.
fn fits(plan: &Plan, tables: &TableSizes, e: usize, forwarded: bool) -> Result<(), String> {
    let query_value_count = entry_count(&tables.n[e - 1])?;
    let query_head = if forwarded { HeadGroup::table(tables, 1, 1) } else { HeadGroup::start(tables) };
    let mut requirements = Vec::new();
    if forwarded {
        requirements.push(LayerRequirement::Forward(value_bits(tables, 0)));
    }
    requirements.push(LayerRequirement::Heads(vec![query_head, HeadGroup::table(tables, e + 1, query_value_count)]));
    for l in 1 + usize::from(forwarded)..=tables.hops() {
        if l == e {
            let row_bits = query_value_count.saturating_mul(value_bits(tables, e + 1));
            let row = HeadGroup { count: 1, key_width: key_width(tables, e), value_bits: row_bits };
            requirements.push(LayerRequirement::Heads(vec![row]));
        } else if l != e + 1 {
            requirements.push(look_up(tables, l));
        }
    }
    check_requirements(plan, tables, &requirements)
}
