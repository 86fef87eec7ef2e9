//! Distribution shift: trained on one distribution of tables, tested on others.
//!
//! The theory is about uniform tables; real tables are skewed, clustered, or permutations. A model that has learned to look up works on
//! all of them; one that has learned the statistics of its tables does not. Each model is trained on one distribution, with little and with
//! much weight decay, and tested on all of them.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, conclude, render};
use super::table::{LEARNED, ResultCell, group_by_setting};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_train::run::RunRecord;

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "shift",
    title: "Shift: other tables than in training",
    chapter: ReportChapter::Open,
    sweeps: [include_str!("shift-smoke.toml"), include_str!("shift-quick.toml"), include_str!("shift-quick.toml")],
    render: shift,
};

/// Distributions of tables, in the order of the axis.
const DISTRIBUTIONS: [&str; 4] = ["uniform", "zipf", "clustered", "permutation"];

/// Index of a task's distribution.
fn distribution(task: &str) -> Option<usize> {
    DISTRIBUTIONS.iter().position(|name| task.contains(&format!("tables={name}")))
}

/// One point for each distribution that the cell was tested on.
fn points_of_cell(cell: &ResultCell<'_>) -> Vec<ComparisonPoint> {
    let config = &cell.first().config;
    let Some(trained_index) = distribution(&config.task) else { return Vec::new() };
    let Some(hops) = cell.first().accuracy.keys().max().copied() else { return Vec::new() };
    let series = format!("trained on {}, decay {}", DISTRIBUTIONS[trained_index], config.train.decay);
    let is_learned = cell.accuracy(hops.into()).mean >= LEARNED;
    let training_point = ComparisonPoint::new(
        cell,
        hops.into(),
        series.clone(),
        trained_index as f64 + 1.0,
        format!("on {}", DISTRIBUTIONS[trained_index]),
    );
    let mut points = vec![training_point.predicted(true, "within the rungs, on its own kind")];
    for task in &config.evaluate.also {
        let Some(tested_index) = distribution(task) else { continue };
        let accuracy = cell.accuracy_on(task, hops);
        let point = ComparisonPoint::new(
            cell,
            hops.into(),
            series.clone(),
            tested_index as f64 + 1.0,
            format!("on {}", DISTRIBUTIONS[tested_index]),
        )
        .with_accuracy(accuracy);
        // A learned look-up works on every distribution.
        points.push(if is_learned { point.predicted(true, "the walk was learned") } else { point });
    }
    points.sort_by(|a, b| a.position.total_cmp(&b.position));
    points
}

fn shift(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let points: Vec<ComparisonPoint> = group_by_setting(records).iter().flat_map(points_of_cell).collect();
    let figure = ComparisonFigure {
        file: "shift",
        title: "Trained on one kind of table, asked about all",
        axis: AxisKind::Names,
        proved_line: None,
        caption: "Right answers to questions of the most hops. Every row is one kind of training, every mark a kind of question. Bars go \
                  from the worst seed to the best.",
    };
    render(&points, &figure, page);
    conclude(&points, "Is it the walk that was learned, or the tables?")
}
