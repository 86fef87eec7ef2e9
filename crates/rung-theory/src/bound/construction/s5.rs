//! S5: a state that narrows z_1 down, and a layer that tries what is left.
//!
//! # Stack
//! Two bounded-state layers, the second with a key for every entry of z_1, then L-1 full layers, the first of them with q+1 heads;
//! L >= 2.
//!
//! # How
//! As in S2, but the state holds only the high bits of each entry: i_1 is then one of q candidates. In the first full layer one head
//! looks up the low bits of z_1(z_0), and q others look up z_2 at (w_1, candidate). The MLP takes the candidate that was right.
//!
//! # Conditions
//! q is a power of two above 1 and below the values of z_1. The state needs m (ceil(log m) - log q) numbers where S2 needs
//! m ceil(log m).
//!
//! # Source
//! Ours; the candidates of the shortcuts, with weights. They show the two-hop bound to be tight up to rounding.

use super::{Construction, LayerRequirement, address, assign, look_ups_from, small, value_bits};

pub(super) static KIND: Construction = Construction {
    name: "S5",
    needs_bits_only: false,
    fits: |plan, _, tables| {
        let (slots, size) = (small(&tables.m)?, value_bits(tables, 1));
        if tables.hops() < 2 {
            return Err("two hops at least".to_owned());
        }
        let mut lack = "tables of more than two entries".to_owned();
        for low in 1..size.min(24) {
            let front = [LayerRequirement::Carry(value_bits(tables, 0)), LayerRequirement::Table(slots, size - low)];
            let tried = (1 << low, address(tables, 2), value_bits(tables, 2));
            let first = LayerRequirement::Heads(vec![(1, address(tables, 1), low), tried]);
            let needs: Vec<LayerRequirement> = front.into_iter().chain([first]).chain(look_ups_from(tables, 3)).collect();
            match assign(plan, tables, &needs) {
                Ok(()) => return Ok(()),
                Err(found) => lack = found,
            }
        }
        Err(lack)
    },
};
