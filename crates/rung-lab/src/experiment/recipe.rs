//! Recipe: an ablation of the training recipe.
//!
//! The stack of [`staircase`](super::staircase) on as many hops as it has full layers, with one setting of the recipe changed at a time, and few training
//! steps, so that differences show. There is no prediction for the changed recipes.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, Prediction, conclude, render};
use super::seed_runs::{SeedRuns, chance_accuracy, group_by_setting};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_train::run::RunRecord;

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "recipe",
    title: "Recipe: what training needs",
    chapter: ReportChapter::Measured,
    sweeps: [include_str!("recipe-smoke.toml"), include_str!("recipe-quick.toml"), include_str!("recipe-full.toml")],
    stack_verdicts: None,
    render: render_recipe,
};

/// The keys in which a config differs from the complete recipe, with their values.
fn describe_change(complete: &SeedRuns<'_>, changed: &SeedRuns<'_>) -> String {
    let [complete, changed] = [complete, changed].map(|runs| runs.first().config.to_toml());
    let has_line = |text: &str, line: &str| text.lines().any(|other| other == line);
    let key = |line: &str| line.split(" =").next().unwrap_or_default().to_owned();
    let changed_lines: Vec<&str> = changed.lines().filter(|line| !has_line(&complete, line)).collect();
    let missing_lines = complete
        .lines()
        .filter(|line| !has_line(&changed, line) && !changed_lines.iter().any(|other| key(other) == key(line)));
    let missing_keys = missing_lines.map(|line| format!("no {}", key(line)));
    let differences: Vec<String> = changed_lines.iter().map(|line| (*line).to_owned()).chain(missing_keys).collect();
    if differences.is_empty() { "the complete recipe".to_owned() } else { differences.join(", ") }
}

fn render_recipe(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let settings = group_by_setting(records);
    let points: Vec<ComparisonPoint> = settings.iter().flat_map(|runs| points_by_hops(&settings[0], runs)).collect();
    let figure = ComparisonFigure {
        file: "recipe",
        title: "The recipe without one of its ingredients",
        axis: AxisKind::Names,
        proved_line: None,
        caption: "Accuracy by number of hops after few steps, with one ingredient changed. Bars go from the worst seed to the best.",
    };
    render(&points, &figure, output);
    conclude(&points, "What does training need?")
}

/// One point for each number of hops. Only the complete recipe has a prediction.
fn points_by_hops(complete: &SeedRuns<'_>, runs: &SeedRuns<'_>) -> Vec<ComparisonPoint> {
    let series = describe_change(complete, runs);
    let point = |hops: usize| {
        let label = format!("on {hops} hop{}", if hops == 1 { "" } else { "s" });
        let point = ComparisonPoint::new(runs, hops, series.clone(), hops as f64, label)
            .with_chance_accuracy(chance_accuracy(runs, hops));
        if std::ptr::eq(complete, runs) {
            point.with_prediction(Prediction::Learned, "within the rungs, with the complete recipe")
        } else {
            point
        }
    };
    runs.first().accuracy.keys().map(|hops| point(usize::from(*hops))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::seed_runs::tests::record;
    use super::*;

    #[test]
    fn changes_are_described_by_their_config_keys() {
        let task = "funccomp{hops=1,m=16,names=levels}";
        let edited_record = |edit: &dyn Fn(&mut rung_train::run::RunConfig)| {
            let mut record = record("gated{bits=2} full", task, 0, 1e-3, &[999]);
            record.config.model.unembedding_field = Some("value".to_owned());
            edit(&mut record.config);
            record
        };
        let records = [
            edited_record(&|_| ()),
            edited_record(&|config| config.train.auxiliary = 0.5),
            edited_record(&|config| config.model.unembedding_field = None),
        ];
        let settings = group_by_setting(&records);
        let names: Vec<String> = settings.iter().map(|runs| describe_change(&settings[0], runs)).collect();
        assert_eq!(names, ["the complete recipe", "auxiliary = 0.5", "no read_out"]);
    }
}
