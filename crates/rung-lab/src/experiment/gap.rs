//! Gap: can many linear layers replace a full one?
//!
//! One full layer after more and more recurrent layers, compared with two full layers, on one and two hops. For large tables no number
//! of recurrent layers gives the second hop, not even an exponential one. At these sizes the states hold more bits than the table, so a
//! shortcut may exist, and the question is open for each point.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, Prediction, conclude, render};
use super::seed_runs::{SeedRuns, group_by_setting};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::figure::Scale;
use rung_train::run::RunRecord;

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "gap",
    title: "Gap: many linear layers against one more full layer",
    chapter: ReportChapter::OpenQuestions,
    sweeps: [include_str!("gap-smoke.toml"), include_str!("gap-quick.toml"), include_str!("gap-full.toml")],
    stack_verdicts: None,
    render: render_gap,
};

/// One point for each number of hops of the questions.
fn points_by_hops(runs: &SeedRuns<'_>) -> Vec<ComparisonPoint> {
    let (record, full) = (runs.first(), runs.first().facts.full_layers);
    let layers = runs.plan().layers.len();
    let point = |hops: usize| {
        let linear = layers - full;
        let series = format!("{full} full, {hops}-hop questions");
        let label = format!("with {linear} linear layer{}", if linear == 1 { "" } else { "s" });
        let point = ComparisonPoint::new(runs, hops, series, linear as f64, label)
            .with_chance_accuracy(super::seed_runs::chance_accuracy(runs, hops));
        if hops <= runs.rungs() {
            point.with_prediction(Prediction::Learned, "within the rungs")
        } else if record.facts.table_bits.is_some_and(|bits| runs.state_bits() < bits) {
            point
                .with_prediction(Prediction::NotLearned, "beyond the rungs, all states together smaller than the table")
        } else {
            point
        }
    };
    record.accuracy.keys().map(|hops| point(usize::from(*hops))).collect()
}

fn render_gap(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let points: Vec<ComparisonPoint> = group_by_setting(records).iter().flat_map(points_by_hops).collect();
    let figure = ComparisonFigure {
        file: "gap",
        title: "Full layers after many linear ones",
        axis: AxisKind::Number("linear layers", Scale::Log2),
        proved_line: None,
        caption: "Accuracy on questions of one and two hops, against the number of linear layers before the full ones. Bars go from the \
                  worst seed to the best.",
    };
    render(&points, &figure, output);
    conclude(&points, "Can many linear layers replace a full one?")
}
