//! The hop map of a stack: what is solved, impossible and unknown, for every number of hops and length of text.
//!
//! *Solved for all tables up to n tokens*: whatever the shape of the tables, a construction fits the stack. *Impossible for some
//! tables from n tokens on*: a certificate was found. What lies between is unknown, and drawn as plainly. Some shapes of tables
//! are easier than others, and a stack may solve them far beyond: *solved for some tables up to n* is said beside it and does not
//! contradict an impossibility, which is about other tables of the same length.

use num_bigint::BigUint;
use rung_theory::bound::construction;
use rung_theory::bound::papers;
use rung_theory::bound::question::{Question, log2};
use rung_theory::bound::search::{self, Certified};
use rung_theory::bound::tables::Tables;
use rung_theory::stack::{Capacity, Convention, Plan};

use rung_figure::figure::{HopMap, Kind, Marker, Row, Span};

/// One row of the map, with the proof behind it.
#[derive(Debug)]
pub struct Rung {
    /// Hops.
    pub hops: usize,
    /// Solved for all tables up to so many tokens.
    pub solved_all: Option<Solved>,
    /// Solved for some tables up to so many tokens, where that is further.
    pub solved_some: Option<Solved>,
    /// Impossible for some tables of this certificate's size.
    pub impossible: Option<Certified>,
}

/// How far a construction reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Solved {
    /// Base-two logarithm of the tokens.
    pub log2_tokens: f64,
    /// The construction at that length.
    pub construction: &'static str,
}

/// What is known of one number of hops.
pub fn rung(plan: &Plan, capacity: &Capacity, hops: usize) -> Rung {
    let question = Question::of(capacity, hops, [1; 3]);
    let fits = |found: &Certified| plan.covers_tokens(&found.accepted.tokens);
    let solved_all = solved_all(plan, capacity, hops);
    let further = |some: &Solved| solved_all.is_none_or(|all| some.log2_tokens > all.log2_tokens + 4.0);
    Rung {
        hops,
        solved_all,
        solved_some: solved_some(plan, capacity, hops).filter(further),
        impossible: question.as_ref().and_then(search::smallest).filter(fits),
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
fn solved_all(plan: &Plan, capacity: &Capacity, hops: usize) -> Option<Solved> {
    let found = largest(|k| construction::solves_all(plan, capacity, hops, k));
    found.map(|(k, found)| Solved { log2_tokens: k as f64, construction: found.name })
}

/// The longest prompt of a family of easy tables, m = 2^k and n = (1, .., 1, 3), that is solved.
fn solved_some(plan: &Plan, capacity: &Capacity, hops: usize) -> Option<Solved> {
    let found = largest(|k| {
        let n = (1..hops).map(|e| BigUint::from(if e + 1 == hops { 3_u8 } else { 1 }));
        let tables = Tables::new(hops, BigUint::from(1_u8) << k, n.collect()).ok()?;
        let found = construction::find(plan, capacity, &tables).ok()?;
        Some(Solved { log2_tokens: log2(&tables.tokens()), construction: found.name })
    });
    found.map(|(_, solved)| solved)
}

/// Draws the map from its rows.
pub fn draw(title: &str, plan: &Plan, convention: Convention, rungs: &[Rung]) -> HopMap {
    let heads_dim_bits = plan.message_bits(Convention::Paper) / 2;
    let certified = rungs.iter().filter_map(|rung| rung.impossible.as_ref()).map(Certified::log2_tokens);
    let up_to = (certified.fold(40.0, f64::max) * 1.15).ceil();
    let rows = rungs.iter().map(|rung| {
        let solved = rung.solved_all.map_or(0.0, |solved| solved.log2_tokens);
        let impossible = rung.impossible.as_ref().map_or(f64::INFINITY, Certified::log2_tokens);
        let mut spans = Vec::new();
        if solved > 0.0 {
            spans.push(Span::new(0.0, solved, Kind::Solved));
        }
        spans.push(Span::new(solved, impossible, Kind::Unknown));
        if impossible.is_finite() {
            spans.push(Span::new(impossible, f64::INFINITY, Kind::Impossible));
        }
        let row = Row::new(rung.hops as u32, spans);
        let papers = papers::own_parameters(heads_dim_bits.max(1), rung.hops);
        // The papers' figure is mostly far beyond the edge; a legend for a mark that is not there would confuse.
        let shown = rung.impossible.is_some() && convention == Convention::Paper && papers <= up_to;
        if shown { row.marked(Marker::papers(papers)) } else { row }
    });
    HopMap::new(title, rows.collect()).up_to(up_to)
}
