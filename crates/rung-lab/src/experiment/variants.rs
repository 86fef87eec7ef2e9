//! Variants: does any pattern beat its rungs?
//!
//! Alternating layers, other orders, other mixers, two mixers side by side in one layer, on the same two hops. A pattern that reaches
//! more hops than it has rungs, with a state that cannot hold the table, would be news; one with a larger state may have a shortcut.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, conclude, render};
use super::table::{ResultCell, cells, outline};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_train::run::RunRecord;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "variants",
    title: "Variants: does any pattern beat its rungs?",
    chapter: ReportChapter::Open,
    sweeps: [
        include_str!("variants-smoke.toml"),
        include_str!("variants-quick.toml"),
        include_str!("variants-full.toml"),
    ],
    render: variants,
};

/// Questions of every number of hops, one line for each cell.
pub(super) fn of_hops(cell: &ResultCell<'_>) -> Vec<ComparisonPoint> {
    let record = cell.first();
    let plural = if cell.rungs() == 1 { "rung" } else { "rungs" };
    let series = format!("{}: {} {plural}", outline(&record.config.stack), cell.rungs());
    let roomy = record.facts.table_bits.is_none_or(|bits| cell.state_bits() >= bits);
    let point = |hops: usize| {
        let label = format!("on {hops} hop{}", if hops == 1 { "" } else { "s" });
        let point =
            ComparisonPoint::of(cell, hops, series.clone(), hops as f64, label).guess(super::table::guess(cell, hops));
        match hops <= cell.rungs() {
            true => point.predicted(true, "within the rungs"),
            false if roomy => point,
            false => point.predicted(false, "beyond the rungs, the state smaller than the table"),
        }
    };
    record.accuracy.keys().map(|hops| point(usize::from(*hops))).collect()
}

fn variants(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let points: Vec<ComparisonPoint> = cells(records).iter().flat_map(of_hops).collect();
    let view = ComparisonFigure {
        file: "variants",
        title: "Patterns of layers on one and two hops",
        along: AxisKind::Names,
        proved: None,
        caption: "Right answers by hops, for patterns of layers and the rungs they have. Bars go from the worst seed to the best.",
    };
    render(&points, &view, page);
    conclude(&points, "Does any pattern reach more hops than it has rungs?")
}
