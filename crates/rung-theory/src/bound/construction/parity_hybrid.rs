//! Parity-conditioned retrieval by a hybrid: one recurrent layer and one full layer.
//!
//! # Stack
//! DeltaNet with negative eigenvalues, then full attention: `rung construct parity-retrieval`.
//!
//! # How
//! The recurrence counts the ones, and its state stays as it is through the table. The full layer looks up the key and reads both of
//! its values; the MLP takes the one that the parity chooses.
//!
//! # Conditions
//! Both layers are needed: the table is too large for a state, and the parity too long for one layer of attention.
//!
//! # Source
//! The weights are ours.

use super::{Construction, fits_no_plan};

pub(super) static KIND: Construction = Construction { name: "parity-hybrid", fits: fits_no_plan, needs_bits_only: false };
