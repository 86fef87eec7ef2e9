//! Variants: does any layer pattern compute more hops than it has rungs?
//!
//! Alternating layers, other orders, other mixers, and two parallel mixers in one layer, on the same two hops. A pattern that computes more hops
//! than it has rungs with a state smaller than the table would contradict the theory; one with a larger state may have a shortcut.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, Prediction, conclude, render};
use super::seed_runs::{SeedRuns, group_by_setting, strip_mixer_options};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_train::run::RunRecord;

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "variants",
    title: "Variants: does any pattern compute more hops than it has rungs?",
    chapter: ReportChapter::OpenQuestions,
    sweeps: [
        include_str!("variants-smoke.toml"),
        include_str!("variants-quick.toml"),
        include_str!("variants-full.toml"),
    ],
    stack_verdicts: None,
    render: render_variants,
};

/// One point for each number of hops of the questions.
pub(super) fn points_by_hops(runs: &SeedRuns<'_>) -> Vec<ComparisonPoint> {
    let record = runs.first();
    let plural = if runs.rungs() == 1 { "rung" } else { "rungs" };
    let series = format!("{}: {} {plural}", strip_mixer_options(&record.config.stack), runs.rungs());
    let state_holds_table = record.facts.table_bits.is_none_or(|bits| runs.state_bits() >= bits);
    let point = |hops: usize| {
        let label = format!("on {hops} hop{}", if hops == 1 { "" } else { "s" });
        let point = ComparisonPoint::new(runs, hops, series.clone(), hops as f64, label)
            .with_chance_accuracy(super::seed_runs::chance_accuracy(runs, hops));
        match hops <= runs.rungs() {
            true => point.with_prediction(Prediction::Learned, "within the rungs"),
            false if state_holds_table => point,
            false => {
                point.with_prediction(Prediction::NotLearned, "beyond the rungs, the state smaller than the table")
            }
        }
    };
    record.accuracy.keys().map(|hops| point(usize::from(*hops))).collect()
}

fn render_variants(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let points: Vec<ComparisonPoint> = group_by_setting(records).iter().flat_map(points_by_hops).collect();
    let figure = ComparisonFigure {
        file: "variants",
        title: "Patterns of layers on one and two hops",
        axis: AxisKind::Names,
        proved_line: None,
        caption: "Accuracy by number of hops. Each row is one pattern of layers, labelled with its rungs. Bars go from the worst seed to the best.",
    };
    render(&points, &figure, output);
    conclude(&points, "Does any pattern reach more hops than it has rungs?")
}
