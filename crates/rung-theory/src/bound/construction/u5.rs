//! U5: one full layer solves 2-Sum.
//!
//! # Stack
//! One full layer, one head, width O(log M). `U5` answers at the last token, `U5-all` at every token (of values that are not their
//! own negative).
//!
//! # How
//! Each token holds the bits of x and of -x mod M, and looks for a token whose x has the bits of its -x. It reads the value of the
//! best match: if the partner exists, exactly its bits; if not, a mean of other values, each of which differs in at least one bit.
//! The MLP adds up the differences: 0 means yes, 2 or more means no. The last token marks itself by its position, so that its own
//! key gets no weight.
//!
//! # Conditions
//! Inverse temperature above ln(n log M).
//!
//! # Source
//! Sanford, Hsu and Telgarsky (2306.02896), with finite temperature; no attention sink is needed.

use super::{Construction, fits_no_plan};

pub(super) static CONSTRUCTION: Construction = Construction { name: "U5", fits: fits_no_plan, needs_bits_only: false };
