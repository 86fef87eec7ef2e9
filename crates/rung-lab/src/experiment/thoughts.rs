//! Chain of thought: how many steps must be written down?
//!
//! A stack with fewer rungs than hops may write intermediate stops and read them again: every thought is another pass. The stops
//! are spread evenly over the walk, so the longest run of hops between two of them is what one pass must do: with s thoughts and L
//! hops, the part of L that is one in s+1. One rung and L-1 thoughts suffice (constructions U3 and U6).
//!
//! Stops are trained and asked with the right ones before them. A chain is right if all its stops are; then the model, writing by
//! itself, writes exactly these tokens. What is shown is the lower end of that: one minus the errors of all stops.

use std::any::Any;

use rung_theory::task::{self, chain::Chain};

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, conclude, render};
use super::table::{ResultCell, SeedSpread, cells, outline};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::figure::Scale;
use rung_train::run::RunRecord;
use rung_train::run::accuracy::AnswerCount;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "thoughts",
    title: "Chain of thought: how many steps must be written down?",
    chapter: ReportChapter::Open,
    sweeps: [
        include_str!("thoughts-smoke.toml"),
        include_str!("thoughts-quick.toml"),
        include_str!("thoughts-quick.toml"),
    ],
    render: thoughts,
};

/// At least this share of chains is right.
fn right_chains(record: &RunRecord) -> f64 {
    let errors: f64 = record.accuracy.values().map(|stop| 1.0 - AnswerCount::mean(stop)).sum();
    (1.0 - errors).max(0.0)
}

fn comparison_point(cell: &ResultCell<'_>) -> Option<ComparisonPoint> {
    let record = cell.first();
    let task = task::parse(&record.config.task).ok()?;
    let task = (&*task as &dyn Any).downcast_ref::<Chain>()?;
    let (hops, thoughts) = (task.walk().hops(), task.thoughts());
    let label = format!("with {thoughts} thought{}", if thoughts == 1 { "" } else { "s" });
    let series = format!("{}, {hops} hops", outline(&record.config.stack));
    let found = SeedSpread::of(cell.records.iter().map(|record| right_chains(record)));
    let last = *task.walk().sizes().last()?;
    let point =
        ComparisonPoint::of(cell, hops, series, thoughts as f64, label).found(found).guess(1.0 / f64::from(last));
    let longest_run = hops.div_ceil(thoughts + 1);
    let first = task.walk().sizes()[0];
    let state_holds_table = cell.state_bits() >= f64::from(first) * f64::from(first).log2();
    Some(match longest_run <= cell.rungs() {
        true => point.predicted(true, "no run of hops is longer than the rungs"),
        false if state_holds_table => point,
        false => point.predicted(false, "a run of hops is longer than the rungs"),
    })
}

fn thoughts(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let points: Vec<ComparisonPoint> = cells(records).iter().filter_map(comparison_point).collect();
    let view = ComparisonFigure {
        file: "thoughts",
        title: "Chains of thought by the number of thoughts",
        along: AxisKind::Measure("thoughts", Scale::Whole),
        proved: None,
        caption: "At least this share of whole chains is right. Constructed: one rung does any number of hops with one thought fewer than hops. \
                  Bars go from the worst seed to the best.",
    };
    render(&points, &view, page);
    conclude(&points, "How many steps must a stack write down?")
}
