//! Mixers: does every bounded-state mixer have the rungs that its layout has?
//!
//! The theorem speaks of any recurrence. Every bounded-state mixer that has a network stands in the place of the staircase's, in front
//! of as many full layers as the most hops asked for less one. Their states of 32-bit numbers could hold tables of 16 entries, so no
//! bound reaches these sizes: what is not learned beyond the rungs is a finding about training.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, conclude, render};
use super::table::{ResultCell, cells, guess, outline};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_train::run::RunRecord;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "zoo",
    title: "Mixers: every bounded-state layer before full ones",
    chapter: ReportChapter::Open,
    sweeps: [include_str!("zoo-smoke.toml"), include_str!("zoo-quick.toml"), include_str!("zoo-full.toml")],
    render: zoo,
};

fn of_hops(cell: &ResultCell<'_>) -> Vec<ComparisonPoint> {
    let series = outline(&cell.first().config.stack);
    let point = |hops: usize| {
        let label = format!("on {hops} hop{}", if hops == 1 { "" } else { "s" });
        let point = ComparisonPoint::of(cell, hops, series.clone(), hops as f64, label).guess(guess(cell, hops));
        let within = hops <= cell.rungs();
        point.predicted(within, if within { "within the rungs" } else { "beyond the rungs" })
    };
    cell.first().accuracy.keys().map(|hops| point(usize::from(*hops))).collect()
}

fn zoo(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let points: Vec<ComparisonPoint> = cells(records).iter().flat_map(of_hops).collect();
    let view = ComparisonFigure {
        file: "zoo-depth",
        title: "Every bounded-state mixer before full layers",
        along: AxisKind::Names,
        proved: None,
        caption: "Right answers by hops, for every mixer in the place of the staircase's bounded-state layer. Bars go from the worst seed to \
                  the best.",
    };
    render(&points, &view, page);
    conclude(&points, "Does every mixer have the rungs that its layout has?")
}
