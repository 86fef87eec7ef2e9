//! U4: floor(log2 L)+2 bidirectional full layers solve L hops.
//!
//! # Stack
//! Bidirectional full layers in the usual order; or causal ones in the query-first order (`U4-causal`).
//!
//! # How
//! In the first layer every token reads w, and the answering token also reads z_0. Then every entry knows which entry follows it. In
//! each further layer an entry reads the pointer of the entry that its own pointer names, so pointers span 1, 2, 4, .. hops.
//! The answering token does the same, starting from z_0.
//!
//! # Conditions
//! Two heads in the first layer. Not causal in the hard order: there the entries come before w and cannot know which entry follows.
//!
//! # Source
//! Pointer doubling; for transformers Sanford, Hsu and Telgarsky (2402.09268). The query-first order: Chen, Peng and Wu (2412.02975).

use super::{Construction, fits_no_plan};

pub(super) static CONSTRUCTION: Construction = Construction { name: "U4", fits: fits_no_plan, needs_bits_only: false };
