//! U2: a bounded-state layer, then L full-attention layers, solve L hops.
//!
//! The recurrence hands the start value to the query, so that no full layer is spent on finding it.
//!
//! # Stack
//! A bounded-state layer anywhere before the first full layer, and L full layers.
//!
//! # How
//! Only z_0 writes to the state: all other tokens have value 0. At w, the next token, the state holds the bits of z_0. Then the
//! full layers look up one table each, as in U1.
//!
//! # Conditions
//! As U1 for the heads; and a mixer that is known to hand ceil(log m) bits on exactly: linear attention, RetNet and its kin,
//! GLA, Mamba, Mamba-2, DeltaNet, Gated DeltaNet, KDA, RWKV-7, a window or convolution of at least two tokens.
//!
//! # Source
//! Ours; the matching lower bound is Ye et al. (2602.01763).

use super::{Construction, carrier, heads_fit};

pub(super) static KIND: Construction = Construction {
    name: "U2",
    fits: |plan, capacity, tables| {
        let (found, needed) = (capacity.full, tables.hops());
        if found < needed {
            return Err(format!("{found} full layers, needs {needed}"));
        }
        carrier(plan, &capacity.blocks[0].layers, tables.value_bits(0))?;
        heads_fit(plan, tables)
    },
};
