//! Sparse capacity: how long must a block's summary be for 2-Sum?
//!
//! One layer of block-sparse attention, asked at every token whether some value before cancels it. A block that was not read speaks
//! only through its summary, and summaries of too few bits look alike for different contents: below the proved number of bits no
//! weights answer every prompt. What training reaches on random prompts, where most blind spots are never met, is measured.

use std::any::Any;

use rung_theory::bound::sparse::Sparse;
use rung_theory::stack::mixer::{MixerReach, TokenSelection};
use rung_theory::task::{self, match2::Match2};

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, conclude, render};
use super::table::{ResultCell, cells, outline};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::figure::Scale;
use rung_train::run::RunRecord;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "sparse",
    title: "Sparse capacity: how long must a summary be?",
    chapter: ReportChapter::Open,
    sweeps: [include_str!("sparse-smoke.toml"), include_str!("sparse-quick.toml"), include_str!("sparse-quick.toml")],
    render: sparse,
};

/// The layer's blocks on the cell's task: bits of a summary, and the bound.
pub(super) fn blocks(cell: &ResultCell<'_>) -> Option<(f64, Sparse)> {
    let config = &cell.first().config;
    let (bits, plan) = (config.model.bits.unwrap_or(32), cell.plan());
    let task = task::parse(&config.task).ok()?;
    let values = (&*task as &dyn Any).downcast_ref::<Match2>()?.modulus();
    let mixers = plan.layers.iter().flat_map(|layer| layer.mixers.iter());
    let picks = mixers.filter_map(|mixer| match mixer.facts().reach {
        MixerReach::Full(message) => message.selection,
        MixerReach::Bounded => None,
    });
    let TokenSelection { groups, picked, block, summary, .. } = picks.into_iter().next()?;
    let had = u64::try_from(summary * u128::from(bits)).ok()?;
    let narrow = |number: u128| u64::try_from(number).ok();
    let block = narrow(block)?;
    let others = (task.length() as u64).div_ceil(block).saturating_sub(1);
    let bound = Sparse {
        block,
        select: narrow(groups * picked)?,
        bits: had,
        values: values.into(),
        blocks: others,
        same_map: true,
    };
    Some((had as f64, bound))
}

fn sparse(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let cells = cells(records);
    let points: Vec<ComparisonPoint> = cells.iter().filter_map(point).collect();
    let view = ComparisonFigure {
        file: "sparse-capacity",
        title: "2-Sum by one layer of block-sparse attention",
        along: AxisKind::Measure("bits of a summary / bits that the bound asks for", Scale::Log2),
        proved: Some((1.0, "what the bound asks for")),
        caption: "Right answers against the bits of a block's summary, all heads together, over the smallest number for which the proved \
                  bound is silent. Left of 1 no weights answer every prompt; random prompts rarely meet the blind spots, so accuracy may \
                  still be well above a half there. Bars go from the worst seed to the best.",
    };
    render(&points, &view, page);
    conclude(&points, "How much do short summaries cost on random prompts?")
}

fn point(cell: &ResultCell<'_>) -> Option<ComparisonPoint> {
    let (had, bound) = blocks(cell)?;
    let verdict = bound.verdict().ok()?;
    let needed = verdict.needed? as f64;
    let (ratio, mixer) = (had / needed, outline(&cell.first().config.stack));
    let series = format!("{mixer}, blocks of {}", bound.block);
    let label = format!("with {had} bits where {needed} are needed");
    let point = ComparisonPoint::of(cell, 1, series, ratio, label);
    Some(if verdict.impossible { point.predicted(false, "proved for the worst prompt") } else { point })
}
