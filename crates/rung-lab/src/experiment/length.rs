//! Length: hops on tables larger than any in training.
//!
//! Numbers are renamed at random in every prompt, with as many names as the largest table has, so that larger tables have no new names. A model
//! that compares keys should generalize; one that stores the table in its state cannot.

use std::any::Any;

use rung_theory::task::{self, chain::Chain};

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, Prediction, conclude, render};
use super::seed_runs::{LEARNED_ACCURACY, SeedRuns, group_by_setting, strip_mixer_options};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::figure::Scale;
use rung_train::run::RunRecord;

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "length",
    title: "Length: tables two, four and eight times as large",
    chapter: ReportChapter::OpenQuestions,
    sweeps: [include_str!("length-smoke.toml"), include_str!("length-quick.toml"), include_str!("length-quick.toml")],
    stack_verdicts: None,
    render: render_length,
};

/// Number of entries of the first table.
fn first_table_entries(task: &str) -> Option<f64> {
    let task = task::parse(task).ok()?;
    Some(f64::from((&*task as &dyn Any).downcast_ref::<Chain>()?.composition().sizes()[0]))
}

/// One point for each number of hops and table size.
fn points_of_setting(runs: &SeedRuns<'_>) -> Vec<ComparisonPoint> {
    let record = runs.first();
    let Some(trained_entries) = first_table_entries(&record.config.task) else { return Vec::new() };
    let mut points = Vec::new();
    for group in record.accuracy.keys().copied() {
        let series = format!("{}, {group}-hop questions", strip_mixer_options(&record.config.stack));
        let trained_accuracy = runs.accuracy(group.into());
        let point = ComparisonPoint::new(runs, group.into(), series.clone(), 1.0, "at the trained size");
        points.push(if usize::from(group) <= runs.rungs() {
            point.with_prediction(Prediction::Learned, "within the rungs")
        } else {
            point
        });
        for task in &record.config.evaluate.other_tasks {
            let Some(entries) = first_table_entries(task) else { continue };
            let accuracy = runs.accuracy_on(task, group);
            let size_ratio = entries / trained_entries;
            let chance_accuracy = task::parse(task).map_or(f64::NAN, |task| task.baseline());
            let point =
                ComparisonPoint::new(runs, group.into(), series.clone(), size_ratio, format!("at {size_ratio} times"));
            let point = point.with_accuracy(accuracy).with_chance_accuracy(chance_accuracy);
            let table_bits = entries * entries.log2();
            // Without a full layer the accuracy is bounded by the state's bits, whatever was learned on smaller tables.
            let state_too_small = record.facts.full_layers == 0 && runs.state_bits() < table_bits;
            points.push(match (state_too_small, trained_accuracy.mean >= LEARNED_ACCURACY) {
                (true, _) => {
                    point.with_prediction(Prediction::NotLearned, "proved: the state is smaller than the table")
                }
                (false, true) => point
                    .with_prediction(Prediction::Learned, "a look-up by comparison does not depend on the table size"),
                (false, false) => point,
            });
        }
    }
    points
}

fn render_length(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let points: Vec<ComparisonPoint> = group_by_setting(records).iter().flat_map(points_of_setting).collect();
    let figure = ComparisonFigure {
        file: "length",
        title: "Tables larger than in training",
        axis: AxisKind::Number("size of the first table / size in training", Scale::Log2),
        proved_line: None,
        caption: "Accuracy at the trained size and beyond. Bars go from the worst seed to the best.",
    };
    render(&points, &figure, output);
    conclude(&points, "Do models trained on small tables generalize to large ones?")
}
