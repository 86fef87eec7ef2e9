//! Shift: trained on one kind of table, asked about another.
//!
//! Uniform tables are what the theory speaks about; tables out there are skewed, clustered, or repeat nothing. A model that has
//! learned to look up does not care; one that has learned a habit of its tables does. Each model is trained on one kind, with
//! little and with much weight decay, and asked about all kinds.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, conclude, render};
use super::table::{LEARNED, ResultCell, cells};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_train::run::RunRecord;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "shift",
    title: "Shift: other tables than in training",
    chapter: ReportChapter::Open,
    sweeps: [include_str!("shift-smoke.toml"), include_str!("shift-quick.toml"), include_str!("shift-quick.toml")],
    render: shift,
};

/// In the order of the axis.
const KINDS: [&str; 4] = ["uniform", "zipf", "clustered", "permutation"];

fn kind(task: &str) -> Option<usize> {
    KINDS.iter().position(|kind| task.contains(&format!("tables={kind}")))
}

fn of_cell(cell: &ResultCell<'_>) -> Vec<ComparisonPoint> {
    let config = &cell.first().config;
    let Some(trained) = kind(&config.task) else { return Vec::new() };
    let Some(hops) = cell.first().accuracy.keys().max().copied() else { return Vec::new() };
    let series = format!("trained on {}, decay {}", KINDS[trained], config.train.decay);
    let known = cell.accuracy(hops.into()).mean >= LEARNED;
    let own =
        ComparisonPoint::of(cell, hops.into(), series.clone(), trained as f64 + 1.0, format!("on {}", KINDS[trained]));
    let mut points = vec![own.predicted(true, "within the rungs, on its own kind")];
    for task in &config.evaluate.also {
        let Some(asked) = kind(task) else { continue };
        let found = cell.accuracy_on(task, hops);
        let point =
            ComparisonPoint::of(cell, hops.into(), series.clone(), asked as f64 + 1.0, format!("on {}", KINDS[asked]))
                .found(found);
        // A walk that was learned is a walk on any table.
        points.push(if known { point.predicted(true, "the walk was learned") } else { point });
    }
    points.sort_by(|a, b| a.at.total_cmp(&b.at));
    points
}

fn shift(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let points: Vec<ComparisonPoint> = cells(records).iter().flat_map(of_cell).collect();
    let view = ComparisonFigure {
        file: "shift",
        title: "Trained on one kind of table, asked about all",
        along: AxisKind::Names,
        proved: None,
        caption: "Right answers to questions of the most hops. Every row is one kind of training, every mark a kind of question. Bars go \
                  from the worst seed to the best.",
    };
    render(&points, &view, page);
    conclude(&points, "Is it the walk that was learned, or the tables?")
}
