//! Recipe: which of its ingredients does training need?
//!
//! The stack of the staircase on as many hops as it has full layers, with one ingredient of the recipe changed at a time and few
//! steps, so that what helps shows. Nothing is predicted about the changed ones.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, conclude, render};
use super::table::{ResultCell, cells, guess};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_train::run::RunRecord;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "recipe",
    title: "Recipe: what training needs",
    chapter: ReportChapter::Measured,
    sweeps: [include_str!("recipe-smoke.toml"), include_str!("recipe-quick.toml"), include_str!("recipe-full.toml")],
    render: recipe,
};

/// The keys in which a config differs from the whole recipe, with their values.
fn change(whole: &ResultCell<'_>, own: &ResultCell<'_>) -> String {
    let [whole, own] = [whole, own].map(|cell| cell.first().config.text());
    let has = |text: &str, line: &str| text.lines().any(|other| other == line);
    let key = |line: &str| line.split(" =").next().unwrap_or_default().to_owned();
    let set: Vec<&str> = own.lines().filter(|line| !has(&whole, line)).collect();
    let unset = whole.lines().filter(|line| !has(&own, line) && !set.iter().any(|other| key(other) == key(line)));
    let unset = unset.map(|line| format!("no {}", key(line)));
    let changes: Vec<String> = set.iter().map(|line| (*line).to_owned()).chain(unset).collect();
    if changes.is_empty() { "the whole recipe".to_owned() } else { changes.join(", ") }
}

fn recipe(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let cells = cells(records);
    let points: Vec<ComparisonPoint> = cells.iter().flat_map(|cell| of_change(&cells[0], cell)).collect();
    let view = ComparisonFigure {
        file: "recipe",
        title: "The recipe without one of its ingredients",
        along: AxisKind::Names,
        proved: None,
        caption: "Right answers by hops after few steps, with one ingredient changed. Bars go from the worst seed to the best.",
    };
    render(&points, &view, page);
    conclude(&points, "What does training need?")
}

/// Questions of every number of hops. The whole recipe comes first.
fn of_change(whole: &ResultCell<'_>, cell: &ResultCell<'_>) -> Vec<ComparisonPoint> {
    let series = change(whole, cell);
    let point = |hops: usize| {
        let label = format!("on {hops} hop{}", if hops == 1 { "" } else { "s" });
        let point = ComparisonPoint::of(cell, hops, series.clone(), hops as f64, label).guess(guess(cell, hops));
        if std::ptr::eq(whole, cell) { point.predicted(true, "within the rungs, with the whole recipe") } else { point }
    };
    cell.first().accuracy.keys().map(|hops| point(usize::from(*hops))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::record;
    use super::*;

    #[test]
    fn changes_are_named_by_their_keys() {
        let task = "funccomp{hops=1,m=16,names=levels}";
        let make = |edit: &dyn Fn(&mut rung_train::run::RunConfig)| {
            let mut one = record("gated{bits=2} full", task, 0, 1e-3, &[999]);
            one.config.model.read_out = Some("value".to_owned());
            edit(&mut one.config);
            one
        };
        let records =
            [make(&|_| ()), make(&|config| config.train.auxiliary = 0.5), make(&|config| config.model.read_out = None)];
        let cells = cells(&records);
        let names: Vec<String> = cells.iter().map(|cell| change(&cells[0], cell)).collect();
        assert_eq!(names, ["the whole recipe", "auxiliary = 0.5", "no read_out"]);
    }
}
