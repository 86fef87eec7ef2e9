//! Lower bounds for an audit: runs the search of `rung-theory` up to a maximum number of hops.

use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::stack::{MessageSizeConvention, Plan};

use crate::BoundSearchResult;

/// Hops up to which an audit searches bounds by default: takes milliseconds.
pub const DEFAULT_CERTIFIED_HOPS: usize = 2;
/// Hops up to which bounds are searched on request: takes seconds.
pub const MAX_CERTIFIED_HOPS: usize = 8;

/// Searches the smallest number of tokens at which a plan provably cannot compose `hops` functions; skipped for more than
/// `max_hops` hops. Each further hop multiplies the search time and moves the bound further beyond any practical context.
pub fn certify(plan: &Plan, hops: usize, max_hops: usize) -> BoundSearchResult {
    if hops > max_hops {
        return BoundSearchResult::Skipped;
    }
    let certificate = StackBounds::new(plan, MessageSizeConvention::default()).lower_bound(hops).into_certificate();
    certificate.map_or(BoundSearchResult::NotFound, |certificate| BoundSearchResult::Certified {
        log2_tokens: certificate.log2_tokens(),
    })
}
