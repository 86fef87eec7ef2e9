//! U5: one full layer solves 2-Sum.
//!
//! # Stack
//! One full layer, one head, width O(log M). `U5` answers at the last token, `U5-all` at every token (of values that are not their
//! own negative).
//!
//! # How
//! Each token holds the bits of x and of -x mod M, and looks for a token whose x has the bits of its -x. It reads the value of the
//! nearest: if the partner is there, exactly its bits; if not, a mean of others, each of which differs in at least one bit. The MLP
//! adds up the differences: nothing means yes, 2 or more means no. The last token marks itself by its place, so that its own
//! key counts for nothing.
//!
//! # Conditions
//! Inverse temperature above ln(n log M).
//!
//! # Source
//! Sanford, Hsu and Telgarsky (2306.02896), with finite temperature; no token is needed as a sink.

use super::{Construction, fits_no_plan};

pub(super) static KIND: Construction = Construction { name: "U5", fits: fits_no_plan, needs_bits_only: false };
