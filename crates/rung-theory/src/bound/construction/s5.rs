//! S5: a state that narrows i_1 down to a few candidates, and a layer that looks up all of them.
//!
//! # Stack
//! Two bounded-state layers, the second with a key for every entry of z_1, then L-1 full layers, the first of them with q+1 heads;
//! L >= 2.
//!
//! # How
//! As in S2, but the state holds only the high bits of each entry: i_1 is then one of q candidates. In the first full layer one head
//! looks up the low bits of z_1(z_0), and q others look up z_2 at (w_1, candidate). The MLP selects the candidate with those low bits.
//!
//! # Conditions
//! q is a power of two above 1 and below the values of z_1. The state needs m (ceil(log m) - log q) numbers where S2 needs
//! m ceil(log m).
//!
//! # Source
//! Ours: explicit weights for shortcut S5 (candidates). They show the two-hop bound to be tight up to rounding.

use super::{
    Construction, HeadGroup, LayerRequirement, check_requirements, entry_count, key_width, look_ups_from, value_bits,
};

pub(super) static CONSTRUCTION: Construction = Construction {
    name: "S5",
    needs_bits_only: false,
    fits: |plan, _, tables| {
        let (rows, entry_bits) = (entry_count(&tables.m)?, value_bits(tables, 1));
        if tables.hops() < 2 {
            return Err("two hops at least".to_owned());
        }
        let mut missing = "tables of more than two entries".to_owned();
        for low_bits in 1..entry_bits.min(24) {
            let high_bits = LayerRequirement::Table { rows, bits: entry_bits - low_bits };
            let low_bits_head = HeadGroup { count: 1, key_width: key_width(tables, 1), value_bits: low_bits };
            let candidates = HeadGroup::table(tables, 2, 1 << low_bits);
            let first_full = LayerRequirement::Heads(vec![low_bits_head, candidates]);
            let state_layers = [LayerRequirement::Forward(value_bits(tables, 0)), high_bits];
            let requirements: Vec<LayerRequirement> =
                state_layers.into_iter().chain([first_full]).chain(look_ups_from(tables, 3)).collect();
            match check_requirements(plan, tables, &requirements) {
                Ok(()) => return Ok(()),
                Err(reason) => missing = reason,
            }
        }
        Err(missing)
    },
};
