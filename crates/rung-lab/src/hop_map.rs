//! Draws the hop map of a stack: for each number of hops, the prompt lengths that are solved, unknown and impossible.
//!
//! Its rows are computed by [`rung_theory::bound::hop_map`].

use rung_theory::bound::papers::published_log2_tokens;
use rung_theory::bound::search::CheckedCertificate;
use rung_theory::stack::{MessageSizeConvention, Plan};

pub use rung_theory::bound::hop_map::{HopMapRow, SolvedLength, hop_map_row};

use rung_figure::figure::{ContextRange, HopMap, HopRow, Marker, RangeVerdict};
use serde::{Deserialize, Serialize};

/// The part of a [`HopMapRow`] that is drawn and stored in records; lengths are base-2 logarithms of the number of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedMapRow {
    /// Number of hops.
    pub hops: usize,
    /// All tables up to this length are solved.
    #[serde(rename = "solved")]
    pub solved_log2_tokens: Option<f64>,
    /// Some tables of this length are impossible.
    #[serde(rename = "impossible")]
    pub impossible_log2_tokens: Option<f64>,
}

impl From<&HopMapRow> for RecordedMapRow {
    fn from(row: &HopMapRow) -> Self {
        let HopMapRow { hops, longest_with_all_tables_solved, impossibility_certificate, .. } = row;
        let solved_log2_tokens = longest_with_all_tables_solved.map(|solved| solved.log2_tokens);
        Self {
            hops: *hops,
            solved_log2_tokens,
            impossible_log2_tokens: impossibility_certificate.as_ref().map(CheckedCertificate::log2_tokens),
        }
    }
}

/// Draws the map from its rows. `convention` is how the bits of a message are counted; the papers' bound is marked only where it is counted like theirs.
pub fn draw_hop_map(title: &str, plan: &Plan, convention: MessageSizeConvention, rows: &[RecordedMapRow]) -> HopMap {
    // The papers count 2 H d p bits: heads, head dimension and bits per number, twice. Half of it is H d p.
    let heads_dim_bits = plan.message_bits(MessageSizeConvention::Paper) / 2;
    let max_log2_tokens = (rows.iter().filter_map(|row| row.impossible_log2_tokens).fold(40.0, f64::max) * 1.15).ceil();
    let rows = rows.iter().map(|row| {
        let solved = row.solved_log2_tokens.unwrap_or(0.0);
        let impossible = row.impossible_log2_tokens.unwrap_or(f64::INFINITY);
        let mut ranges = Vec::new();
        if solved > 0.0 {
            ranges.push(ContextRange::new(0.0, solved, RangeVerdict::Solved));
        }
        ranges.push(ContextRange::new(solved, impossible, RangeVerdict::Unknown));
        if impossible.is_finite() {
            ranges.push(ContextRange::new(impossible, f64::INFINITY, RangeVerdict::Impossible));
        }
        let map_row = HopRow::new(row.hops as u32, ranges);
        let papers_log2_tokens = published_log2_tokens(heads_dim_bits.max(1), row.hops);
        // The papers' bound is mostly beyond the right edge. Then the marker is left out, so that it is not in the legend.
        let has_marker = row.impossible_log2_tokens.is_some()
            && convention == MessageSizeConvention::Paper
            && papers_log2_tokens <= max_log2_tokens;
        if has_marker { map_row.with_marker(Marker::papers(papers_log2_tokens)) } else { map_row }
    });
    HopMap::new(title, rows.collect()).up_to(max_log2_tokens)
}
