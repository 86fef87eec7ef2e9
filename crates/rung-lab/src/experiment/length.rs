//! Length: hops on tables larger than any in training.
//!
//! Numbers are renamed in every prompt, among as many names as the largest table has, so that no name is new when tables grow. A
//! model that looks up by comparing should go on; one that holds the table in its state cannot.

use std::any::Any;

use rung_theory::task::{self, chain::Chain};

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, conclude, render};
use super::table::{LEARNED, ResultCell, cells, outline};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::figure::Scale;
use rung_train::run::RunRecord;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "length",
    title: "Length: tables two, four and eight times as large",
    chapter: ReportChapter::Open,
    sweeps: [include_str!("length-smoke.toml"), include_str!("length-quick.toml"), include_str!("length-quick.toml")],
    render: length,
};

fn entries_of(task: &str) -> Option<f64> {
    let task = task::parse(task).ok()?;
    Some(f64::from((&*task as &dyn Any).downcast_ref::<Chain>()?.walk().sizes()[0]))
}

fn of_cell(cell: &ResultCell<'_>) -> Vec<ComparisonPoint> {
    let record = cell.first();
    let Some(trained) = entries_of(&record.config.task) else { return Vec::new() };
    let mut points = Vec::new();
    for group in record.accuracy.keys().copied() {
        let series = format!("{}, {group}-hop questions", outline(&record.config.stack));
        let own = cell.accuracy(group.into());
        let point = ComparisonPoint::of(cell, group.into(), series.clone(), 1.0, "at the trained size");
        points.push(if usize::from(group) <= cell.rungs() { point.predicted(true, "within the rungs") } else { point });
        for task in &record.config.evaluate.also {
            let Some(asked) = entries_of(task) else { continue };
            let found = cell.accuracy_on(task, group);
            let times = asked / trained;
            let guess = task::parse(task).map_or(f64::NAN, |task| task.baseline());
            let point = ComparisonPoint::of(cell, group.into(), series.clone(), times, format!("at {times} times"));
            let point = point.found(found).guess(guess);
            let bits = asked * asked.log2();
            // What a state alone answers is bounded by its bits, whatever was learned on smaller tables.
            let proved = record.facts.full_layers == 0 && cell.state_bits() < bits;
            points.push(match (proved, own.mean >= LEARNED) {
                (true, _) => point.predicted(false, "proved: the state is smaller than the table"),
                (false, true) => point.predicted(true, "a look-up by comparison does not mind the size"),
                (false, false) => point,
            });
        }
    }
    points
}

fn length(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let points: Vec<ComparisonPoint> = cells(records).iter().flat_map(of_cell).collect();
    let view = ComparisonFigure {
        file: "length",
        title: "Tables larger than in training",
        along: AxisKind::Measure("size of the first table / size in training", Scale::Log2),
        proved: None,
        caption: "Right answers at the trained size and beyond. Bars go from the worst seed to the best.",
    };
    render(&points, &view, page);
    conclude(&points, "Does what was learned on small tables hold on large ones?")
}
