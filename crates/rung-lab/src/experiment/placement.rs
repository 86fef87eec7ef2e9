//! Placement: does the position of the bounded-state layer matter?
//!
//! The layers of [`staircase`](super::staircase) in other orders. A bounded-state layer gives an extra hop if it is before or directly after the first full
//! layer, and nowhere else. Without one before it, a full layer must attend to the previous token among many similar ones, so those stacks
//! have a learned bias on the attention scores of the nearest tokens.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, conclude, render};
use super::seed_runs::group_by_setting;
use super::variants::points_by_hops;
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_train::run::RunRecord;

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "placement",
    title: "Placement: where the extra hop comes from",
    chapter: ReportChapter::Measured,
    sweeps: [
        include_str!("placement-smoke.toml"),
        include_str!("placement-quick.toml"),
        include_str!("placement-full.toml"),
    ],
    stack_verdicts: None,
    render: render_placement,
};

fn render_placement(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let points: Vec<ComparisonPoint> = group_by_setting(records).iter().flat_map(points_by_hops).collect();
    let figure = ComparisonFigure {
        file: "placement",
        title: "The same layers in different orders",
        axis: AxisKind::Names,
        proved_line: None,
        caption: "Accuracy by number of hops. Each row is one order of the same layers, labelled with its rungs. Bars go from the worst seed to the best.",
    };
    render(&points, &figure, output);
    conclude(&points, "Does the position of the bounded-state layer matter?")
}
