//! Parity-conditioned retrieval by a hybrid: one recurrent layer and one full layer.
//!
//! # Stack
//! DeltaNet with negative eigenvalues, then full attention: `rung construct parity-retrieval`.
//!
//! # How
//! The recurrence tracks the parity of the ones, and its state does not change over the table. The full layer looks up the key and
//! reads both of its values; the MLP selects one by the parity.
//!
//! # Conditions
//! Both layers are needed: the table is too large for a state, and one layer of attention cannot compute the parity of long inputs.
//!
//! # Source
//! The weights are ours.

use super::{Construction, fits_no_plan};

pub(super) static CONSTRUCTION: Construction =
    Construction { name: "parity-hybrid", fits: fits_no_plan, needs_bits_only: false };
