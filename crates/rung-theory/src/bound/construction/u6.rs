//! U6: a bounded-state layer, one full layer and L thoughts solve L hops.
//!
//! # Stack
//! A bounded-state layer, then one full layer. After the prompt the model emits L tokens; the last is the answer.
//!
//! # How
//! The state hands z_0 to w, as in U2, and w looks up z_1 at once. Then as U3: one thought less.
//!
//! # Conditions
//! As U2 for the mixer, as U3 for the head.
//!
//! # Source
//! Ours.

use super::{Construction, fits_no_plan};

pub(super) static KIND: Construction = Construction { name: "U6", fits: fits_no_plan, needs_bits_only: false };
