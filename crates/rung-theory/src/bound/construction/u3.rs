//! U3: one full layer solves L hops with a chain of thought: it emits L thoughts, then the answer.
//!
//! # Stack
//! One full layer. After the prompt the model emits L+1 tokens, each fed back through the same layer; the last is the answer.
//!
//! # How
//! Emitted token s says that s hops lead to i_s. It holds the address (w_s, i_s) to look up next, and a copy of w. One head
//! serves every step: it compares addresses, and the kind of the querying token with the table. The MLP selects the component of w
//! that the next token needs, and the unembedding scores every field of the next token.
//!
//! # Conditions
//! The head must be wide enough for the longest address and a flag for each table.
//!
//! # Source
//! Ours; that chain of thought helps in this way is shown by Chen, Peng and Wu (2412.02975).

use super::{Construction, fits_no_plan};

pub(super) static CONSTRUCTION: Construction = Construction { name: "U3", fits: fits_no_plan, needs_bits_only: false };
