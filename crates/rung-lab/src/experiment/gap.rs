//! Gap: can many linear layers stand in for a full one?
//!
//! One full layer behind more and more layers with a state, against two full layers, on one and two hops. For large tables no number
//! of such layers buys the second hop (their number may even be exponential); at these sizes the states hold more bits than the table,
//! so a shortcut may exist, and the question is open for each point.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, conclude, render};
use super::table::{ResultCell, cells};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::figure::Scale;
use rung_train::run::RunRecord;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "gap",
    title: "Gap: many linear layers against one more full layer",
    chapter: ReportChapter::Open,
    sweeps: [include_str!("gap-smoke.toml"), include_str!("gap-quick.toml"), include_str!("gap-full.toml")],
    render: gap,
};

fn of_hops(cell: &ResultCell<'_>) -> Vec<ComparisonPoint> {
    let (record, full) = (cell.first(), cell.first().facts.full_layers);
    let layers = cell.plan().layers.len();
    let point = |hops: usize| {
        let linear = layers - full;
        let series = format!("{full} full, {hops}-hop questions");
        let label = format!("with {linear} linear layer{}", if linear == 1 { "" } else { "s" });
        let point =
            ComparisonPoint::of(cell, hops, series, linear as f64, label).guess(super::table::guess(cell, hops));
        if hops <= cell.rungs() {
            point.predicted(true, "within the rungs")
        } else if record.facts.table_bits.is_some_and(|bits| cell.state_bits() < bits) {
            point.predicted(false, "beyond the rungs, all states together smaller than the table")
        } else {
            point
        }
    };
    record.accuracy.keys().map(|hops| point(usize::from(*hops))).collect()
}

fn gap(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let points: Vec<ComparisonPoint> = cells(records).iter().flat_map(of_hops).collect();
    let view = ComparisonFigure {
        file: "gap",
        title: "Full layers behind many linear ones",
        along: AxisKind::Measure("linear layers", Scale::Log2),
        proved: None,
        caption: "Right answers to questions of one and two hops, against the number of linear layers before the full ones. Bars go from the \
                  worst seed to the best.",
    };
    render(&points, &view, page);
    conclude(&points, "Do many linear layers stand in for a full one?")
}
