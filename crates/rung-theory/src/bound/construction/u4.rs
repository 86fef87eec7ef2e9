//! U4: floor(log2 L)+2 bidirectional full layers solve L hops.
//!
//! # Stack
//! Bidirectional full layers in the usual order; or causal ones in the query-first order (`U4-causal`).
//!
//! # How
//! In the first layer everyone reads w, and the answering token z_0. From then on every entry knows where the walk goes from it. In
//! each further layer it asks the entry that its pointer names for its pointer: what led 1, 2, 4, .. hops on leads twice as far.
//! The answering token does the same, starting from z_0.
//!
//! # Conditions
//! Two heads in the first layer. Not causal in the hard order: there the entries come before w and cannot know the way.
//!
//! # Source
//! Pointer doubling; for transformers Sanford, Hsu and Telgarsky (2402.09268). The query-first order: Chen, Peng and Wu (2412.02975).

use super::{Construction, fits_no_plan};

pub(super) static KIND: Construction = Construction { name: "U4", fits: fits_no_plan, needs_bits_only: false };
