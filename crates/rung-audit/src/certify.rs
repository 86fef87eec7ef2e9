//! The lower bounds that an audit asks: the search of `rung-theory`, for so many hops at most.

use rung_theory::bound::question::Question;
use rung_theory::bound::search;
use rung_theory::stack::Plan;

/// Hops for which the bounds are always searched: milliseconds.
pub const QUICK_CERTIFIED_HOPS: usize = 2;
/// Hops for which they are searched on request: seconds.
pub const MOST_CERTIFIED_HOPS: usize = 8;

/// Base-2 logarithm of the smallest number of tokens at which a plan provably cannot compose `hops` functions; nothing for
/// more than `most` hops. Each hop more takes the search several times as long and moves the answer further beyond any context.
pub fn certify(plan: &Plan, hops: usize, most: usize) -> Option<f64> {
    let question = Question::of(&plan.capacity(), hops, [1, 1, 1]).filter(|_| hops <= most)?;
    search::smallest(&question).map(|certified| certified.log2_tokens())
}
