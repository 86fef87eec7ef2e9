//! The lower bounds that an audit asks: the search of `rung-theory`, for so many hops at most.

use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::stack::{Convention, Plan};

/// Hops for which the bounds are always searched: milliseconds.
pub const QUICK_CERTIFIED_HOPS: usize = 2;
/// Hops for which they are searched on request: seconds.
pub const MOST_CERTIFIED_HOPS: usize = 8;

/// Base-2 logarithm of the smallest number of tokens at which a plan provably cannot compose `hops` functions; nothing for
/// more than `most` hops. Each hop more takes the search several times as long and moves the answer further beyond any context.
pub fn certify(plan: &Plan, hops: usize, most: usize) -> Option<f64> {
    if hops > most {
        return None;
    }
    let found = StackBounds::new(plan, Convention::default()).lower_bound(hops).into_certificate();
    found.map(|certified| certified.log2_tokens())
}
