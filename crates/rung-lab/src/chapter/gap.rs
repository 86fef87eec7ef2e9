//! The gap between what is solved and what is impossible, hop by hop, for one size of model.
//!
//! Four lines: where the papers' own parameters start to apply, where the first form of our proof does (stored certificates,
//! checked again when the evidence is computed), where today's theorems do, and up to where a protocol in the same model solves every
//! instance of a family of tables. Between the last two nothing is known.

use num_bigint::BigUint;
use rung_theory::bound::input::log2;
use rung_theory::bound::tables::TableSizes;
use rung_theory::bound::{certificate, checker, papers, shortcut};
use rung_theory::stack::Plan;

use crate::artefact::{Artefact, figure_files};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_figure::report::{Chapter, Figure};
use serde::{Deserialize, Serialize};

/// Certificates of the first form of the proof, for 16 heads of 128 at 16 bits with three linear layers in every block.
const FIRST_FORM: &str = include_str!("first_form.json");

/// Hops and log2 tokens of the stored certificates that the checker accepts.
fn first_form() -> Vec<(usize, f64)> {
    let stored: Vec<serde_json::Value> = serde_json::from_str(FIRST_FORM).unwrap_or_default();
    let points = stored.iter().filter_map(|value| certificate::read(&value.to_string()).ok());
    points.filter_map(|point| Some((point.hops, log2(&checker::check(&point).ok()?.tokens)))).collect()
}

/// log2 of the tokens of the largest tables of a family that a protocol solves: n_1 = 1, and further n just too large for entries to
/// look ahead, so that a full layer is needed for each.
fn protocol(plan: &Plan, hops: usize) -> Option<f64> {
    let capacity = plan.capacity();
    let tables = |m: u64| {
        let branches = capacity.message_bits / 20 + 1;
        let n = (1..hops).map(|e| BigUint::from(if e == 1 { 1 } else { branches }));
        TableSizes::new(hops, m.into(), n.collect()).ok()
    };
    let solved = |m: u64| tables(m).is_some_and(|tables| shortcut::way(&capacity, &tables).is_some());
    let (mut low, mut high) = (2_u64, 1_u64 << 48);
    if !solved(low) || solved(high) {
        return None;
    }
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        if solved(middle) { low = middle } else { high = middle }
    }
    tables(low).map(|tables| log2(&tables.tokens()))
}

/// The lines of the figure beside that of today's certificates: hops, and log2 of the tokens.
#[derive(Serialize, Deserialize)]
pub(super) struct GapLines {
    papers: Vec<(usize, f64)>,
    first_form: Vec<(usize, f64)>,
    protocols: Vec<(usize, f64)>,
}

impl GapLines {
    /// `plan` has the stack for a number of hops.
    pub(super) fn compute(
        hops: std::ops::RangeInclusive<usize>,
        plan: impl Fn(usize) -> Option<Plan>,
        heads_dim_bits: u128,
    ) -> Self {
        Self {
            papers: hops.clone().map(|hops| (hops, papers::own_parameters(heads_dim_bits, hops))).collect(),
            first_form: first_form().into_iter().filter(|(known, _)| hops.contains(known)).collect(),
            protocols: hops.filter_map(|hops| Some((hops, protocol(&plan(hops)?, hops)?))).collect(),
        }
    }
}

/// Adds the figure. `certified` has hops and log2 tokens of today's certificates.
pub(super) fn figure(
    chapter: &mut Chapter,
    artefacts: &mut Vec<Artefact>,
    lines: GapLines,
    certified: Vec<(usize, f64)>,
) {
    chapter.paragraph(
        "For 16 heads of 128 at 16 bits per number, one full layer fewer than hops, and three linear layers in every block: the \
         number of tokens from which the hops are certified to be impossible, by the papers' own parameters, by the first form of our \
         proof and by today's theorems; and the number of tokens up to which a protocol solves them in the same model, on \
         tables whose second and later levels have too many branches for looking ahead. A protocol is not weights. Between the two \
         lowest lines neither is known.",
    );
    let line =
        |points: Vec<(usize, f64)>| points.into_iter().map(|(hops, log2)| Point::new(hops as f64, log2)).collect();
    let series = |name: &str, points: Vec<Point>, evidence| Series::line_and_points(name, points).known(evidence);
    let chart = LineChart::new(
        "From how many tokens on L hops are impossible",
        AxisSpec::new("hops", Scale::Linear),
        AxisSpec::new("log2 of the tokens", Scale::Log2),
    )
    .series(series("papers, by their own parameters", line(lines.papers), Evidence::Proved))
    .series(series("first form of the proof", line(lines.first_form), Evidence::Proved))
    .series(series("today's theorems", line(certified), Evidence::Proved))
    .series(series("a protocol in the model solves up to here", line(lines.protocols), Evidence::Proved));
    artefacts.extend(figure_files("gap", &chart));
    let caption = "Lower is sharper; the lowest line is a limit that no proof of this kind can pass for these tables.";
    let command = "rung bound \"linear*3 full linear*3\" --hops 2 --heads 16 --head-dim 128 --bits 16";
    chapter.figure(Figure::new(&chart, caption, command, "gap.csv"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_theory::stack::Defaults;

    #[test]
    fn stored_certificates_are_accepted_and_lie_above_protocols() {
        let old = first_form();
        assert_eq!(old.iter().map(|(hops, _)| *hops).collect::<Vec<_>>(), [2, 3, 4, 5]);
        let defaults = Defaults { heads: 16, head_dim: 128, bits: 16, ..Defaults::default() };
        for (hops, impossible) in old {
            let stack = format!("linear*3{}", " full linear*3".repeat(hops - 1));
            let plan = Plan::parse(&stack, &defaults).unwrap();
            let solved = protocol(&plan, hops).unwrap();
            assert!(solved > 15.0 && solved < impossible, "{hops} hops: {solved} against {impossible}");
        }
    }
}
