//! What a stack provably can and cannot do.
//!
//! Only [`checker`] has to be trusted: it uses exact integers and no other module. The others propose proofs for it to check:
//!
//! ```text
//! stack -> capacity -> input -> search (relax, round, polish) -> checker -> certificate
//!                  \-> constructions -> solved      \-> shortcuts -> not excludable
//! ```
//!
//! [`stack_bounds::StackBounds`] is the entry point: the smallest instance that is out of reach, the verdict on one instance,
//! whether a certificate covers a stack. [`sparse`] is the separate bound for block-sparse layers, and [`papers`] has the closed
//! forms from the literature.

pub mod certificate;
pub mod checker;
pub mod construction;
mod conventions;
mod convex;
pub mod explanation;
mod float_check;
pub mod hop_map;
pub mod input;
pub mod papers;
pub mod reach;
mod relaxation;
pub mod search;
pub mod shortcut;
pub mod sparse;
pub mod stack_bounds;
mod strict;
pub mod tables;
pub mod verdict;

use crate::page::{ExplainPage, Subject};

/// The pages of all bounds and constructions.
pub fn pages() -> Vec<ExplainPage> {
    let bound = |name, source| ExplainPage { name, subject: Subject::Bound, source };
    let mut pages = vec![
        bound("capacity", include_str!("../stack/capacity.rs")),
        bound("composition", include_str!("checker/mod.rs")),
        bound("shortcuts", include_str!("shortcut.rs")),
        bound("block-sparse", include_str!("sparse.rs")),
        bound("papers", include_str!("papers.rs")),
        bound("reach", include_str!("reach.rs")),
    ];
    pages.extend(construction::pages());
    pages
}
