//! Parity by one recurrent layer, which attention of fixed depth cannot compute.
//!
//! # Stack
//! One DeltaNet layer with negative eigenvalues, one head of width 1: `rung construct parity`.
//!
//! # How
//! The state is one number. At a 1, beta is 2 and the state S becomes 2 v - S = 1 - S, with v = 1/2; at a 0, beta is 0 and the state
//! stays. So the state is 1 after an odd number of ones and 0 after an even one.
//!
//! # Conditions
//! Negative eigenvalues: with beta below 1 the state can only move towards v.
//!
//! # Source
//! Grazzi et al. (2411.12537).

use super::{Construction, fits_no_plan};

pub(super) static CONSTRUCTION: Construction =
    Construction { name: "parity-recurrence", fits: fits_no_plan, needs_bits_only: false };
