//! U6: a bounded-state layer and one full layer solve L hops with a chain of thought: they emit L-1 thoughts, then the answer.
//!
//! # Stack
//! A bounded-state layer, then one full layer. After the prompt the model emits L tokens; the last is the answer.
//!
//! # How
//! The state forwards z_0 to w, as in U2, and w looks up z_1 in the same pass. Then as U3, with one token less.
//!
//! # Conditions
//! As U2 for the mixer, as U3 for the head.
//!
//! # Source
//! Ours.

use super::{Construction, fits_no_plan};

pub(super) static CONSTRUCTION: Construction = Construction { name: "U6", fits: fits_no_plan, needs_bits_only: false };
