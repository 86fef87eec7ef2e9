//! A figure of the gap between prompt lengths that are solved and those that are impossible, by number of hops, for one model size.
//!
//! Four lines: from which length on the papers' parameters prove impossibility, the same for the first version of our proof (stored
//! certificates, checked again when the records are computed), the same for the current theorems, and up to which length a
//! communication protocol solves every instance of a family of tables. Between the last two nothing is known.

use num_bigint::BigUint;
use rung_theory::bound::input::log2;
use rung_theory::bound::papers::published_log2_tokens;
use rung_theory::bound::tables::TableSizes;
use rung_theory::bound::{certificate, checker, shortcut};
use rung_theory::stack::Plan;

use crate::artefact::{Artefact, add_figure};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_figure::report::Chapter;
use serde::{Deserialize, Serialize};

/// Certificates of the first version of the proof, for 16 heads of 128 at 16 bits with three linear layers in every block.
const FIRST_VERSION: &str = include_str!("first_form.json");

/// Hops and log2 tokens of those stored certificates that the checker accepts.
fn first_version_points() -> Vec<(usize, f64)> {
    let certificates: Vec<serde_json::Value> = serde_json::from_str(FIRST_VERSION).unwrap_or_default();
    let points = certificates.iter().filter_map(|value| certificate::read(&value.to_string()).ok());
    points.filter_map(|point| Some((point.hops, log2(&checker::check(&point).ok()?.tokens)))).collect()
}

/// log2 of the tokens of the largest tables that a protocol solves. The family of tables has n_1 = 1, and later n so large that a table
/// entry cannot be composed in advance with all of its successors, so that each hop needs a full layer.
fn protocol_limit(plan: &Plan, hops: usize) -> Option<f64> {
    let capacity = plan.capacity();
    let tables = |m: u64| {
        let ratio = capacity.message_bits / 20 + 1;
        let n = (1..hops).map(|level| BigUint::from(if level == 1 { 1 } else { ratio }));
        TableSizes::new(hops, m.into(), n.collect()).ok()
    };
    let is_solved = |m: u64| tables(m).is_some_and(|tables| shortcut::find_steps(&capacity, &tables).is_some());
    let (mut low, mut high) = (2_u64, 1_u64 << 48);
    if !is_solved(low) || is_solved(high) {
        return None;
    }
    while high - low > 1 {
        let midpoint = u64::midpoint(low, high);
        if is_solved(midpoint) { low = midpoint } else { high = midpoint }
    }
    tables(low).map(|tables| log2(&tables.tokens()))
}

/// Points of three of the four lines: hops, and log2 of the tokens. The line of the current theorems is computed from certificates.
#[derive(Serialize, Deserialize)]
pub(super) struct GapLines {
    papers: Vec<(usize, f64)>,
    #[serde(rename = "first_form")]
    first_version: Vec<(usize, f64)>,
    protocols: Vec<(usize, f64)>,
}

impl GapLines {
    /// Computes the lines. `plan` returns the stack for a number of hops.
    pub(super) fn compute(
        hops: std::ops::RangeInclusive<usize>,
        plan: impl Fn(usize) -> Option<Plan>,
        heads_dim_bits: u128,
    ) -> Self {
        Self {
            papers: hops.clone().map(|hops| (hops, published_log2_tokens(heads_dim_bits, hops))).collect(),
            first_version: first_version_points()
                .into_iter()
                .filter(|(point_hops, _)| hops.contains(point_hops))
                .collect(),
            protocols: hops.filter_map(|hops| Some((hops, protocol_limit(&plan(hops)?, hops)?))).collect(),
        }
    }
}

/// Writes the section with the figure. `certified` has hops and log2 tokens of the current certificates.
pub(super) fn render(
    chapter: &mut Chapter,
    artefacts: &mut Vec<Artefact>,
    lines: GapLines,
    certified: Vec<(usize, f64)>,
) {
    chapter.paragraph(
        "For 16 heads of 128 at 16 bits per number, one full layer fewer than hops, and three linear layers in every block: the \
         number of tokens from which the hops are certified to be impossible, by the papers' own parameters, by the first version of our \
         proof and by the current theorems; and the number of tokens up to which a protocol solves them in the same model, on \
         tables whose second and later levels are too much larger than the first to be composed in advance. A protocol is not a set of weights. Between the two \
         lowest lines neither is known.",
    );
    let to_points =
        |points: Vec<(usize, f64)>| points.into_iter().map(|(hops, log2)| Point::new(hops as f64, log2)).collect();
    let series =
        |name: &str, points: Vec<Point>, evidence| Series::line_and_points(name, points).with_evidence(evidence);
    let chart = LineChart::new(
        "From how many tokens on L hops are impossible",
        AxisSpec::new("hops", Scale::Linear),
        AxisSpec::new("log2 of the tokens", Scale::Log2),
    )
    .series(series("papers, by their own parameters", to_points(lines.papers), Evidence::Proved))
    .series(series("first version of the proof", to_points(lines.first_version), Evidence::Proved))
    .series(series("current theorems", to_points(certified), Evidence::Proved))
    .series(series("a protocol in the model solves up to here", to_points(lines.protocols), Evidence::Proved));
    let caption =
        "Lower is better; the lowest line is a limit below which no proof of this kind can be for these tables.";
    let command = "rung bound \"linear*3 full linear*3\" --hops 2 --heads 16 --head-dim 128 --bits 16";
    add_figure(chapter, artefacts, "gap", &chart, caption, command);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_theory::stack::Defaults;

    #[test]
    fn stored_certificates_are_accepted_and_lie_above_the_protocol_limit() {
        let first_version = first_version_points();
        assert_eq!(first_version.iter().map(|(hops, _)| *hops).collect::<Vec<_>>(), [2, 3, 4, 5]);
        let defaults = Defaults { heads: 16, head_dim: 128, bits: 16, ..Defaults::default() };
        for (hops, impossible_from) in first_version {
            let stack = format!("linear*3{}", " full linear*3".repeat(hops - 1));
            let plan = Plan::parse(&stack, &defaults).unwrap();
            let solved_up_to = protocol_limit(&plan, hops).unwrap();
            assert!(
                solved_up_to > 15.0 && solved_up_to < impossible_from,
                "{hops} hops: {solved_up_to} against {impossible_from}"
            );
        }
    }
}
