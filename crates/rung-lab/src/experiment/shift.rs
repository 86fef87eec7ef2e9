//! Distribution shift: trained on one distribution of tables, tested on others.
//!
//! The theory is about uniform tables; real tables are skewed, clustered, or permutations. A model that has learned to look up works on
//! all of them; one that has learned the statistics of its tables does not. Each model is trained on one distribution, with little and with
//! much weight decay, and tested on all of them.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, Prediction, conclude, render};
use super::seed_runs::{LEARNED_ACCURACY, SeedRuns, group_by_setting};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_train::run::RunRecord;

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "shift",
    title: "Shift: other distributions of tables than in training",
    chapter: ReportChapter::OpenQuestions,
    sweeps: [include_str!("shift-smoke.toml"), include_str!("shift-quick.toml"), include_str!("shift-quick.toml")],
    stack_verdicts: None,
    render: render_shift,
};

/// Distributions of tables, in the order of the axis.
const DISTRIBUTIONS: [&str; 4] = ["uniform", "zipf", "clustered", "permutation"];

/// Index of a task's distribution.
fn distribution_index(task: &str) -> Option<usize> {
    DISTRIBUTIONS.iter().position(|name| task.contains(&format!("tables={name}")))
}

/// One point for each distribution that the runs were tested on.
fn points_of_setting(runs: &SeedRuns<'_>) -> Vec<ComparisonPoint> {
    let config = &runs.first().config;
    let Some(trained_index) = distribution_index(&config.task) else { return Vec::new() };
    let Some(hops) = runs.first().accuracy.keys().max().copied() else { return Vec::new() };
    let series = format!("trained on {}, decay {}", DISTRIBUTIONS[trained_index], config.train.decay);
    let is_learned = runs.accuracy(hops.into()).mean >= LEARNED_ACCURACY;
    let training_point = ComparisonPoint::new(
        runs,
        hops.into(),
        series.clone(),
        trained_index as f64 + 1.0,
        format!("on {}", DISTRIBUTIONS[trained_index]),
    );
    let mut points =
        vec![training_point.with_prediction(Prediction::Learned, "within the rungs, on the trained distribution")];
    for task in &config.evaluate.other_tasks {
        let Some(tested_index) = distribution_index(task) else { continue };
        let accuracy = runs.accuracy_on(task, hops);
        let point = ComparisonPoint::new(
            runs,
            hops.into(),
            series.clone(),
            tested_index as f64 + 1.0,
            format!("on {}", DISTRIBUTIONS[tested_index]),
        )
        .with_accuracy(accuracy);
        // A learned look-up works on every distribution.
        points.push(if is_learned {
            point.with_prediction(Prediction::Learned, "look-ups were learned")
        } else {
            point
        });
    }
    points.sort_by(|a, b| a.position.total_cmp(&b.position));
    points
}

fn render_shift(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let points: Vec<ComparisonPoint> = group_by_setting(records).iter().flat_map(points_of_setting).collect();
    let figure = ComparisonFigure {
        file: "shift",
        title: "Trained on one distribution of tables, tested on all",
        axis: AxisKind::Names,
        proved_line: None,
        caption: "Accuracy on questions with the largest number of hops. Every row is one training distribution and weight decay, every marker a test distribution. Bars go \
                  from the worst seed to the best.",
    };
    render(&points, &figure, output);
    conclude(&points, "Did the model learn to look up, or the statistics of its tables?")
}
