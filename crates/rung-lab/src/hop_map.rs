//! The hop map of a stack, drawn. Its rows are those of [`rung_theory::bound::hop_map`].

use rung_theory::bound::papers;
use rung_theory::bound::search::CheckedCertificate;
use rung_theory::stack::{Convention, Plan};

pub use rung_theory::bound::hop_map::{Rung, SolvedLength, rung};

use rung_figure::figure::{HopMap, Marker, Row, Span, SpanKind};
use serde::{Deserialize, Serialize};

/// What a map shows of one number of hops; lengths are base-two logarithms of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MapRow {
    /// Hops.
    pub hops: usize,
    /// All tables up to this length are solved.
    pub solved: Option<f64>,
    /// Some tables of this length are impossible.
    pub impossible: Option<f64>,
}

impl From<&Rung> for MapRow {
    fn from(rung: &Rung) -> Self {
        let Rung { hops, solved_all, impossible, .. } = rung;
        let solved = solved_all.map(|solved| solved.log2_tokens);
        Self { hops: *hops, solved, impossible: impossible.as_ref().map(CheckedCertificate::log2_tokens) }
    }
}

/// Draws the map from its rows.
pub fn draw(title: &str, plan: &Plan, convention: Convention, rows: &[MapRow]) -> HopMap {
    let heads_dim_bits = plan.message_bits(Convention::Paper) / 2;
    let up_to = (rows.iter().filter_map(|row| row.impossible).fold(40.0, f64::max) * 1.15).ceil();
    let rows = rows.iter().map(|row| {
        let solved = row.solved.unwrap_or(0.0);
        let impossible = row.impossible.unwrap_or(f64::INFINITY);
        let mut spans = Vec::new();
        if solved > 0.0 {
            spans.push(Span::new(0.0, solved, SpanKind::Solved));
        }
        spans.push(Span::new(solved, impossible, SpanKind::Unknown));
        if impossible.is_finite() {
            spans.push(Span::new(impossible, f64::INFINITY, SpanKind::Impossible));
        }
        let drawn = Row::new(row.hops as u32, spans);
        let papers = papers::own_parameters(heads_dim_bits.max(1), row.hops);
        // The papers' figure is mostly far beyond the edge; a legend for a mark that is not there would confuse.
        let shown = row.impossible.is_some() && convention == Convention::Paper && papers <= up_to;
        if shown { drawn.marked(Marker::papers(papers)) } else { drawn }
    });
    HopMap::new(title, rows.collect()).up_to(up_to)
}
