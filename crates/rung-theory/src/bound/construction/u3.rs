//! U3: one full layer and L+1 thoughts solve L hops.
//!
//! # Stack
//! One full layer. After the prompt the model emits L+1 tokens, each fed back through the same layer; the last is the answer.
//!
//! # How
//! Thought s says that s hops led to i_s. Its token holds the address (w_s, i_s) to look up next and copies the parts of w. One head
//! serves every step: it compares addresses, and the kind of the asking token with the table. The MLP chooses which part of w
//! the next thought will need, and the unembedding scores every field of the next token.
//!
//! # Conditions
//! Room in the head for the longest address and a flag for each table.
//!
//! # Source
//! Ours; that thoughts help in this way is Chen, Peng and Wu (2412.02975).

use super::{Construction, fits_no_plan};

pub(super) static KIND: Construction = Construction { name: "U3", fits: fits_no_plan, needs_bits_only: false };
