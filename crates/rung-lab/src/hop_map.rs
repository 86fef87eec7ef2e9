//! The hop map of a stack: what is solved, impossible and unknown, for every number of hops and length of text.
//!
//! *Solved up to n* means: for all tables that fit in n tokens, a construction fits the stack. *Impossible from n*: for some
//! tables that fit in n tokens, a certificate was found. What lies between is unknown, and drawn as plainly.

use rung_theory::bound::construction;
use rung_theory::bound::papers;
use rung_theory::bound::question::Question;
use rung_theory::bound::search::{self, Certified};
use rung_theory::bound::tables::Tables;
use rung_theory::stack::{Capacity, Convention, Plan};

use crate::figure::{HopMap, Kind, Marker, Row, Span};

/// One row of the map, with the proof behind it.
#[derive(Debug)]
pub struct Rung {
    /// Hops.
    pub hops: usize,
    /// Solved for all tables of at most 2^this tokens, by this construction.
    pub solved: Option<(f64, &'static str)>,
    /// Impossible for some tables of this certificate's size.
    pub impossible: Option<Certified>,
}

/// What is known of one number of hops.
pub fn rung(plan: &Plan, capacity: &Capacity, hops: usize) -> Rung {
    let question = Question::of(capacity, hops, [1; 3]);
    let fits = |found: &Certified| plan.covers_tokens(&found.accepted.tokens);
    Rung {
        hops,
        solved: solved_up_to(plan, capacity, hops),
        impossible: question.as_ref().and_then(search::smallest).filter(fits),
    }
}

/// The longest text, as a power of two, whose every table some construction solves.
fn solved_up_to(plan: &Plan, capacity: &Capacity, hops: usize) -> Option<(f64, &'static str)> {
    // Of all tables in 2^k tokens the longest address has at most k + 1 bits, and the start value k: try an instance with
    // both, and find the largest k by halving.
    let fits = |k: u64| {
        let n = (1..hops).map(|e| if e + 1 == hops { 3_u8 } else { 1 });
        let m = num_bigint::BigUint::from(1_u8) << k;
        let tables = Tables::new(hops, m, n.map(Into::into).collect()).ok()?;
        construction::find(plan, capacity, &tables).ok().map(|found| found.name)
    };
    let name = fits(1)?;
    let (mut low, mut high) = (1, 1 << 20);
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        if fits(middle).is_some() { low = middle } else { high = middle }
    }
    Some((low as f64, name))
}

/// Draws the map from its rows.
pub fn draw(title: &str, plan: &Plan, convention: Convention, rungs: &[Rung]) -> HopMap {
    let heads_dim_bits = plan.message_bits(Convention::Paper) / 2;
    let certified = rungs.iter().filter_map(|rung| rung.impossible.as_ref()).map(Certified::log2_tokens);
    let up_to = (certified.fold(40.0, f64::max) * 1.15).ceil();
    let rows = rungs.iter().map(|rung| {
        let solved = rung.solved.map_or(0.0, |(up_to, _)| up_to);
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
