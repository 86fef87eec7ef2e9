//! Mixers: does every bounded-state mixer reach the rungs of its layout?
//!
//! The theorem holds for any recurrence. Every implemented bounded-state mixer except `evicting` and `inline` takes the place of the
//! bounded-state layer of [`staircase`](super::staircase). It is followed by F full layers; questions ask for up to F + 1 hops. All but
//! `gated`, which has 16 bits, have states of 32-bit numbers that could hold tables of 16 entries, so that the lower bounds do not apply to
//! them at these sizes: a failure beyond the rungs is a result about training.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, Prediction, conclude, render};
use super::seed_runs::{SeedRuns, chance_accuracy, group_by_setting, strip_mixer_options};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_train::run::RunRecord;

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "zoo",
    title: "Mixers: every bounded-state layer before full ones",
    chapter: ReportChapter::OpenQuestions,
    sweeps: [include_str!("zoo-smoke.toml"), include_str!("zoo-quick.toml"), include_str!("zoo-full.toml")],
    stack_verdicts: None,
    render: render_zoo,
};

/// One point for each number of hops of the questions.
fn points_by_hops(runs: &SeedRuns<'_>) -> Vec<ComparisonPoint> {
    let series = strip_mixer_options(&runs.first().config.stack);
    let point = |hops: usize| {
        let label = format!("on {hops} hop{}", if hops == 1 { "" } else { "s" });
        let point = ComparisonPoint::new(runs, hops, series.clone(), hops as f64, label)
            .with_chance_accuracy(chance_accuracy(runs, hops));
        let prediction = Prediction::from_rungs(hops, runs.rungs());
        let reason = match prediction {
            Prediction::Learned => "within the rungs",
            Prediction::NotLearned => "beyond the rungs",
        };
        point.with_prediction(prediction, reason)
    };
    runs.first().accuracy.keys().map(|hops| point(usize::from(*hops))).collect()
}

fn render_zoo(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let points: Vec<ComparisonPoint> = group_by_setting(records).iter().flat_map(points_by_hops).collect();
    let figure = ComparisonFigure {
        file: "zoo-hops",
        title: "Every bounded-state mixer before full layers",
        axis: AxisKind::Names,
        proved_line: None,
        caption: "Accuracy by number of hops, for every mixer as the bounded-state layer before F full layers. Bars go from the worst seed \
                  to the best.",
    };
    render(&points, &figure, output);
    conclude(&points, "Does every mixer reach the rungs of its layout?")
}
