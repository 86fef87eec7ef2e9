//! The hop map of a stack: which prompt lengths are solved, impossible or unknown, for every number of hops.
//!
//! *Solved for all tables up to T tokens*: a construction fits the stack for tables of every shape. *Impossible for some
//! tables from T tokens on*: a certificate was found. Lengths between the two are unknown. Some shapes of tables
//! are easier than others, and a stack may solve them at larger lengths: *solved for some tables up to T tokens* is shown separately and
//! does not contradict an impossibility, which is about other tables of the same length.

use num_bigint::BigUint;

use super::construction;
use super::input::log2;
use super::search::CheckedCertificate;
use super::stack_bounds::StackBounds;
use super::tables::TableSizes;
use crate::stack::{Capacity, Plan};

/// One row of the map: what is known about one number of hops.
#[derive(Debug)]
pub struct HopMapRow {
    /// Number of hops.
    pub hops: usize,
    /// The longest prompts for which all tables are solved.
    pub longest_with_all_tables_solved: Option<SolvedLength>,
    /// The longest prompts for which some tables are solved, if they are more than 16 times longer.
    pub longest_with_some_tables_solved: Option<SolvedLength>,
    /// The smallest certificate found: some tables of its size are impossible.
    pub impossibility_certificate: Option<CheckedCertificate>,
}

/// The longest prompts that a construction solves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SolvedLength {
    /// Base-two logarithm of the prompt's tokens.
    pub log2_tokens: f64,
    /// The name of the construction that solves this length.
    pub construction: &'static str,
}

/// Prompts for which only some tables are solved are shown from this gap on: 2^4 times the length for which all tables are.
const MIN_LOG2_GAP: f64 = 4.0;

/// The row of the map for one number of hops.
pub fn hop_map_row(bounds: &StackBounds<'_>, hops: usize) -> HopMapRow {
    let (plan, capacity) = (bounds.plan(), bounds.capacity());
    let longest_with_all = find_longest_with_all_tables_solved(plan, capacity, hops);
    let is_much_longer =
        |some: &SolvedLength| longest_with_all.is_none_or(|all| some.log2_tokens > all.log2_tokens + MIN_LOG2_GAP);
    HopMapRow {
        hops,
        longest_with_all_tables_solved: longest_with_all,
        longest_with_some_tables_solved: find_longest_with_some_tables_solved(plan, capacity, hops)
            .filter(is_much_longer),
        impossibility_certificate: bounds.lower_bound(hops).into_certificate(),
    }
}

/// The largest k for which `find` succeeds, by bisection; none if k = 1 fails.
fn largest_success<T>(find: impl Fn(u64) -> Option<T>) -> Option<(u64, T)> {
    let mut best = (1, find(1)?);
    let mut failing = 1 << 20;
    while failing - best.0 > 1 {
        let midpoint = u64::midpoint(best.0, failing);
        match find(midpoint) {
            Some(found) => best = (midpoint, found),
            None => failing = midpoint,
        }
    }
    Some(best)
}

/// The longest prompts, as a power of two, for which all tables are solved.
fn find_longest_with_all_tables_solved(plan: &Plan, capacity: &Capacity, hops: usize) -> Option<SolvedLength> {
    let longest = largest_success(|k| construction::solves_all(plan, capacity, hops, k));
    longest.map(|(k, construction)| SolvedLength { log2_tokens: k as f64, construction: construction.name })
}

/// The longest prompt of a family of easy tables that is solved: m = 2^k, and the ratios n_e of table sizes are (1, .., 1, 3).
fn find_longest_with_some_tables_solved(plan: &Plan, capacity: &Capacity, hops: usize) -> Option<SolvedLength> {
    let longest = largest_success(|k| {
        let n = (1..hops).map(|e| BigUint::from(if e + 1 == hops { 3_u8 } else { 1 }));
        let tables = TableSizes::new(hops, BigUint::from(1_u8) << k, n.collect()).ok()?;
        let construction = construction::find(plan, capacity, &tables).ok()?;
        Some(SolvedLength { log2_tokens: log2(&tables.tokens()), construction: construction.name })
    });
    longest.map(|(_, solved)| solved)
}
