//! More sparse layers: does 2-Sum become solvable with two or three of them?
//!
//! The lower bound holds for one layer of block-sparse attention. With a second layer a token can pass on the content of its own block, and
//! nothing is proved. The experiment has one to three layers with the same short block summaries (few key
//! dimensions per block), and a stack of one full layer for comparison.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, Prediction, conclude, render};
use super::seed_runs::{group_by_setting, strip_mixer_options};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::figure::Scale;
use rung_theory::task::SINGLE_GROUP;
use rung_train::run::RunRecord;

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "layers",
    title: "More sparse layers: does 2-Sum become solvable?",
    chapter: ReportChapter::OpenQuestions,
    sweeps: [include_str!("layers-smoke.toml"), include_str!("layers-quick.toml"), include_str!("layers-quick.toml")],
    stack_verdicts: None,
    render: render_layers,
};

fn render_layers(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let settings = group_by_setting(records);
    let points: Vec<ComparisonPoint> = settings
        .iter()
        .map(|runs| {
            let stack = strip_mixer_options(&runs.first().config.stack);
            let mixer = stack.split(['*', ' ']).next().unwrap_or_default().to_owned();
            let count = runs.plan().layers.len();
            let label = if count == 1 { "with 1 layer".to_owned() } else { format!("with {count} layers") };
            let point = ComparisonPoint::new(runs, usize::from(SINGLE_GROUP), mixer, count as f64, label);
            if stack == "full" { point.with_prediction(Prediction::Learned, "constructed, U5") } else { point }
        })
        .collect();
    let figure = ComparisonFigure {
        file: "layers",
        title: "2-Sum by layers of block-sparse attention",
        axis: AxisKind::Number("layers", Scale::Integer),
        proved_line: None,
        caption: "Accuracy against the number of sparse layers; a stack of one full layer is shown for comparison. Nothing is proved \
                  about two layers or more. Bars go from the worst seed to the best.",
    };
    render(&points, &figure, output);
    conclude(&points, "Do further sparse layers make up for short block summaries (few key dimensions per block)?")
}
