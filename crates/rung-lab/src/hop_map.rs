//! The hop map of a stack, drawn. Its rows are those of [`rung_theory::bound::hop_map`].

use rung_theory::bound::papers;
use rung_theory::bound::search::Certified;
use rung_theory::stack::{Convention, Plan};

pub use rung_theory::bound::hop_map::{Rung, Solved, rung};

use rung_figure::figure::{HopMap, Kind, Marker, Row, Span};

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
