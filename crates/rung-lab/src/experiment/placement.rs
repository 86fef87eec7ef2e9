//! Placement: does it matter where the bounded-state layer stands?
//!
//! The layers of the staircase in other orders. A bounded-state layer earns its hop before the first full layer or right after it;
//! anywhere else it is worth nothing. Without one in front, a full layer must find the token before among many alike, so those stacks
//! have a learned number on the scores of the nearest tokens.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, conclude, render};
use super::table::cells;
use super::variants::of_hops;
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_train::run::RunRecord;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "placement",
    title: "Placement: where the extra hop comes from",
    chapter: ReportChapter::Measured,
    sweeps: [
        include_str!("placement-smoke.toml"),
        include_str!("placement-quick.toml"),
        include_str!("placement-full.toml"),
    ],
    render: placement,
};

fn placement(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let points: Vec<ComparisonPoint> = cells(records).iter().flat_map(of_hops).collect();
    let view = ComparisonFigure {
        file: "placement",
        title: "The same layers in different orders",
        along: AxisKind::Names,
        proved: None,
        caption: "Right answers by hops, for orders of the same layers and the rungs they have. Bars go from the worst seed to the best.",
    };
    render(&points, &view, page);
    conclude(&points, "Does it matter where the bounded-state layer stands?")
}
