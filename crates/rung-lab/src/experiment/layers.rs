//! More sparse layers: does 2-Sum become solvable with two or three of them?
//!
//! The bound speaks about one layer of block-sparse attention. With a second layer a token can carry what its own block holds, and
//! nothing is proved. The same short summaries, one to three layers, and one full layer beside them.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, conclude, render};
use super::table::{cells, outline};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::figure::Scale;
use rung_train::run::RunRecord;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "layers",
    title: "More sparse layers: does 2-Sum become solvable?",
    chapter: ReportChapter::Open,
    sweeps: [include_str!("layers-smoke.toml"), include_str!("layers-quick.toml"), include_str!("layers-quick.toml")],
    render: layers,
};

fn layers(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let cells = cells(records);
    let points: Vec<ComparisonPoint> = cells
        .iter()
        .map(|cell| {
            let stack = outline(&cell.first().config.stack);
            let mixer = stack.split(['*', ' ']).next().unwrap_or_default().to_owned();
            let count = cell.plan().layers.len();
            let label = if count == 1 { "with 1 layer".to_owned() } else { format!("with {count} layers") };
            let point = ComparisonPoint::of(cell, 1, mixer, count as f64, label);
            if stack == "full" { point.predicted(true, "constructed, U5") } else { point }
        })
        .collect();
    let view = ComparisonFigure {
        file: "layers",
        title: "2-Sum by layers of block-sparse attention",
        along: AxisKind::Measure("layers", Scale::Whole),
        proved: None,
        caption: "Right answers against the number of sparse layers; one full layer beside them. Nothing is proved about two layers or more. \
                  Bars go from the worst seed to the best.",
    };
    render(&points, &view, page);
    conclude(&points, "Do further sparse layers make up for short summaries?")
}
