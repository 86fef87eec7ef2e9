//! U1: L+1 full-attention layers solve L hops.
//!
//! The query token first reads the start value, then looks up one table per layer.
//!
//! # Stack
//! L+1 full-attention layers, one head each, of width O(log n); MLPs and residual connections as usual. Additional layers are allowed.
//!
//! # How
//! Bits are ±1 vectors, so the dot product of a query and a key is b exactly if all b bits agree, and each mismatch lowers it by 2. At inverse temperature beta an error of at most 2(n-1) exp(-2 beta) remains, which the MLP removes by rounding
//! every bit back to ±1. Layer 0: w attends to z_0 and stores it. Layer l >= 1: w looks up the entry of z_l at (w_{l-1},
//! i_{l-1}) and stores its value i_l. A flag in the key excludes all other tokens.
//!
//! # Conditions
//! A layer's keys must hold the address it looks up, ceil(log n_e) + ceil(log N_{e-1}) bits and one flag, and its values the bits
//! of i_l; a value has at least one bit.
//!
//! # Source
//! Chen, Peng and Wu (2412.02975), with finite temperature and rounding made explicit.

use super::{Construction, HeadGroup, LayerRequirement, check_requirements, look_ups_from};

pub(super) static CONSTRUCTION: Construction = Construction {
    name: "U1",
    needs_bits_only: true,
    fits: |plan, _, tables| {
        let first = LayerRequirement::Heads(vec![HeadGroup::start(tables)]);
        check_requirements(plan, tables, &[first].into_iter().chain(look_ups_from(tables, 1)).collect::<Vec<_>>())
    },
};
