//! Sparse capacity: how long must a block's summary be for 2-Sum?
//!
//! One layer of block-sparse attention answers at every token whether an earlier value adds up with it to zero. A block that is not selected
//! is visible only through its summary, and with too few bits different contents have equal summaries: below the proved number of bits no
//! weights answer every prompt. The accuracy of trained layers on random prompts, which rarely contain such collisions, is measured.

use rung_theory::task::SINGLE_GROUP;
use std::any::Any;

use rung_theory::bound::sparse::BlockSparseInstance;
use rung_theory::stack::mixer::TokenSelection;
use rung_theory::task::{self, match2::Match2};

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, Prediction, conclude, render};
use super::seed_runs::{SeedRuns, group_by_setting, strip_mixer_options};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::figure::Scale;
use rung_train::run::RunRecord;

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "sparse",
    title: "Sparse capacity: how long must a summary be?",
    chapter: ReportChapter::OpenQuestions,
    sweeps: [include_str!("sparse-smoke.toml"), include_str!("sparse-quick.toml"), include_str!("sparse-quick.toml")],
    stack_verdicts: None,
    render: render_sparse,
};

/// Bits of a block's summary, and the instance of the lower bound for the layer and task of the runs.
pub(super) fn summary_bits_and_instance(runs: &SeedRuns<'_>) -> Option<(f64, BlockSparseInstance)> {
    let config = &runs.first().config;
    let (bits, plan) = (config.model.bits.unwrap_or(32), runs.plan());
    let task = task::parse(&config.task).ok()?;
    let modulus = (&*task as &dyn Any).downcast_ref::<Match2>()?.modulus();
    let mut mixers = plan.layers.iter().flat_map(|layer| layer.mixers.iter());
    let selection = mixers.find_map(|mixer| mixer.facts().selection())?;
    let TokenSelection { groups, selected_count, block, summary_elements, .. } = selection;
    let summary_bits = u64::try_from(summary_elements * u128::from(bits)).ok()?;
    let to_u64 = |number: u128| u64::try_from(number).ok();
    let block = to_u64(block)?;
    let earlier_blocks = (task.length() as u64).div_ceil(block).saturating_sub(1);
    let instance = BlockSparseInstance {
        block_tokens: block,
        selected_blocks: to_u64(groups * selected_count)?,
        summary_bits,
        modulus: modulus.into(),
        other_blocks: earlier_blocks,
        shared_summary_map: true,
    };
    Some((summary_bits as f64, instance))
}

fn render_sparse(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let settings = group_by_setting(records);
    let points: Vec<ComparisonPoint> = settings.iter().filter_map(point).collect();
    let figure = ComparisonFigure {
        file: "sparse-capacity",
        title: "2-Sum by one layer of block-sparse attention",
        axis: AxisKind::Number("bits of a summary / bits that the bound requires", Scale::Log2),
        proved_line: Some((1.0, "bits that the bound requires")),
        caption: "Accuracy against the bits of a block's summary, all heads together, over the smallest number that the proved \
                  bound does not exclude. Left of 1 no weights answer every prompt; random prompts rarely contain colliding blocks, so accuracy may \
                  still be well above a half there. Bars go from the worst seed to the best.",
    };
    render(&points, &figure, output);
    conclude(&points, "How much do short summaries cost on random prompts?")
}

fn point(runs: &SeedRuns<'_>) -> Option<ComparisonPoint> {
    let (summary_bits, instance) = summary_bits_and_instance(runs)?;
    let verdict = instance.verdict().ok()?;
    let needed_bits = verdict.needed_bits? as f64;
    let (ratio, stack) = (summary_bits / needed_bits, strip_mixer_options(&runs.first().config.stack));
    let series = format!("{stack}, blocks of {} tokens", instance.block_tokens);
    let label = format!("with {summary_bits} bits where the bound requires {needed_bits}");
    let point = ComparisonPoint::new(runs, usize::from(SINGLE_GROUP), series, ratio, label);
    Some(if verdict.impossible {
        point.with_prediction(Prediction::NotLearned, "proved for the worst prompt")
    } else {
        point
    })
}
