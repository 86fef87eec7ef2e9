//! The lower bounds that an audit asks: the search of `rung-theory`, for so many hops at most.

use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::stack::{Convention, Plan};

use crate::BoundSearch;

/// Hops for which the bounds are always searched: milliseconds.
pub const QUICK_CERTIFIED_HOPS: usize = 2;
/// Hops for which they are searched on request: seconds.
pub const MOST_CERTIFIED_HOPS: usize = 8;

/// Searches the smallest number of tokens at which a plan provably cannot compose `hops` functions; skipped for more than `most`
/// hops. Each hop more takes the search several times as long and moves the answer further beyond any context.
pub fn certify(plan: &Plan, hops: usize, most: usize) -> BoundSearch {
    if hops > most {
        return BoundSearch::Skipped;
    }
    let found = StackBounds::new(plan, Convention::default()).lower_bound(hops).into_certificate();
    found.map_or(BoundSearch::NotFound, |found| BoundSearch::From { log2_tokens: found.log2_tokens() })
}
