//! Chain of thought: how many intermediate results must be emitted as tokens?
//!
//! A stack with fewer rungs than hops may emit intermediate results (thoughts) as tokens and attend to them: every thought is another
//! forward pass. Thoughts are spread evenly over the hops, so one pass must make the largest number of hops between two of them: with s
//! thoughts and L hops, L/(s+1) rounded up. One rung and L-1 thoughts suffice (construction U6).
//!
//! Thoughts are trained and tested with teacher forcing. A chain is right if all its thoughts and its answer are; the model then generates
//! exactly these tokens by itself. The report shows a lower bound on the fraction of right chains: one minus the sum of the error rates.

use std::any::Any;

use rung_theory::task::{self, chain::Chain};

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, Prediction, conclude, render};
use super::seed_runs::{SeedRuns, SeedSpread, group_by_setting, strip_mixer_options};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::figure::Scale;
use rung_train::run::RunRecord;
use rung_train::run::accuracy::AnswerCount;

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "thoughts",
    title: "Chain of thought: how many intermediate results must be emitted?",
    chapter: ReportChapter::OpenQuestions,
    sweeps: [
        include_str!("thoughts-smoke.toml"),
        include_str!("thoughts-quick.toml"),
        include_str!("thoughts-quick.toml"),
    ],
    stack_verdicts: None,
    render: render_thoughts,
};

/// A lower bound on the fraction of chains whose thoughts and answer are all right.
fn chain_accuracy_lower_bound(record: &RunRecord) -> f64 {
    let errors: f64 = record.accuracy.values().map(|answers| 1.0 - AnswerCount::accuracy(answers)).sum();
    (1.0 - errors).max(0.0)
}

fn comparison_point(runs: &SeedRuns<'_>) -> Option<ComparisonPoint> {
    let record = runs.first();
    let task = task::parse(&record.config.task).ok()?;
    let task = (&*task as &dyn Any).downcast_ref::<Chain>()?;
    let composition = task.composition();
    let (hops, thoughts) = (composition.hops(), task.thoughts());
    let label = format!("with {thoughts} thought{}", if thoughts == 1 { "" } else { "s" });
    let series = format!("{}, {hops} hops", strip_mixer_options(&record.config.stack));
    let accuracy = SeedSpread::new(runs.records.iter().map(|record| chain_accuracy_lower_bound(record)));
    let last_table_entries = *composition.sizes().last()?;
    let point = ComparisonPoint::new(runs, hops, series, thoughts as f64, label)
        .with_accuracy(accuracy)
        .with_chance_accuracy(1.0 / f64::from(last_table_entries));
    let hops_per_pass = hops.div_ceil(thoughts + 1);
    let entries = f64::from(composition.sizes()[0]);
    let state_holds_table = runs.state_bits() >= entries * entries.log2();
    Some(match hops_per_pass <= runs.rungs() {
        true => point.with_prediction(Prediction::Learned, "no more hops between two thoughts than rungs"),
        false if state_holds_table => point,
        false => point.with_prediction(Prediction::NotLearned, "more hops between two thoughts than rungs"),
    })
}

fn render_thoughts(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let points: Vec<ComparisonPoint> = group_by_setting(records).iter().filter_map(comparison_point).collect();
    let figure = ComparisonFigure {
        file: "thoughts",
        title: "Chains of thought by the number of thoughts",
        axis: AxisKind::Number("thoughts", Scale::Integer),
        proved_line: None,
        caption: "At least this share of whole chains is right. Constructed: one rung does any number of hops with one thought fewer than hops. \
                  Bars go from the worst seed to the best.",
    };
    render(&points, &figure, output);
    conclude(&points, "How many intermediate results must a stack emit?")
}
