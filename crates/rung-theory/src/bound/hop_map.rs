//! The hop map of a stack: what is solved, impossible and unknown, for every number of hops and length of text.
//!
//! *Solved for all tables up to n tokens*: whatever the shape of the tables, a construction fits the stack. *Impossible for some
//! tables from n tokens on*: a certificate was found. What lies between is unknown, and drawn as plainly. Some shapes of tables
//! are easier than others, and a stack may solve them far beyond: *solved for some tables up to n* is said beside it and does not
//! contradict an impossibility, which is about other tables of the same length.

use num_bigint::BigUint;

use super::construction;
use super::input::log2;
use super::search::CheckedCertificate;
use super::stack_bounds::StackBounds;
use super::tables::TableSizes;
use crate::stack::{Capacity, Plan};

/// One row of the map, with the proof behind it.
#[derive(Debug)]
pub struct Rung {
    /// Hops.
    pub hops: usize,
    /// Solved for all tables up to so many tokens.
    pub solved_all: Option<SolvedLength>,
    /// Solved for some tables up to so many tokens, where that is further.
    pub solved_some: Option<SolvedLength>,
    /// Impossible for some tables of this certificate's size.
    pub impossible: Option<CheckedCertificate>,
}

/// How far a construction reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SolvedLength {
    /// Base-two logarithm of the tokens.
    pub log2_tokens: f64,
    /// The construction at that length.
    pub construction: &'static str,
}

/// What is known of one number of hops.
pub fn rung(bounds: &StackBounds<'_>, hops: usize) -> Rung {
    let (plan, capacity) = (bounds.plan(), bounds.capacity());
    let solved_all = solved_all(plan, capacity, hops);
    let further = |some: &SolvedLength| solved_all.is_none_or(|all| some.log2_tokens > all.log2_tokens + 4.0);
    Rung {
        hops,
        solved_all,
        solved_some: solved_some(plan, capacity, hops).filter(further),
        impossible: bounds.lower_bound(hops).into_certificate(),
    }
}

/// The largest k for which something is found, by halving; k = 1 must be tried first.
fn largest<T>(find: impl Fn(u64) -> Option<T>) -> Option<(u64, T)> {
    let mut best = (1, find(1)?);
    let mut beyond = 1 << 20;
    while beyond - best.0 > 1 {
        let middle = u64::midpoint(best.0, beyond);
        match find(middle) {
            Some(found) => best = (middle, found),
            None => beyond = middle,
        }
    }
    Some(best)
}

/// The longest prompt, as a power of two, all of whose tables are solved.
fn solved_all(plan: &Plan, capacity: &Capacity, hops: usize) -> Option<SolvedLength> {
    let found = largest(|k| construction::solves_all(plan, capacity, hops, k));
    found.map(|(k, found)| SolvedLength { log2_tokens: k as f64, construction: found.name })
}

/// The longest prompt of a family of easy tables, m = 2^k and n = (1, .., 1, 3), that is solved.
fn solved_some(plan: &Plan, capacity: &Capacity, hops: usize) -> Option<SolvedLength> {
    let found = largest(|k| {
        let n = (1..hops).map(|e| BigUint::from(if e + 1 == hops { 3_u8 } else { 1 }));
        let tables = TableSizes::new(hops, BigUint::from(1_u8) << k, n.collect()).ok()?;
        let found = construction::find(plan, capacity, &tables).ok()?;
        Some(SolvedLength { log2_tokens: log2(&tables.tokens()), construction: found.name })
    });
    found.map(|(_, solved)| solved)
}
