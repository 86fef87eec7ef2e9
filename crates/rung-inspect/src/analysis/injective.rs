//! Can two different queries read the same: the rank test of injectivity, and colliding queries where there are some.
//!
//! A head reads with a row of weights. If two different queries give the same row, whatever made them differ is lost at that head.
//! Whether that can happen is decided by a rank, for the keys that are really there.
//!
//! # What it shows
//!
//! For the last token of a prompt and every head: the width of the query, the rank of the map from queries to rows, whether it is
//! injective, and the change of the row along the direction that changes it least. Where that change is nothing, the two queries
//! are a collision; one is drawn, beside an equally long step in the direction that changes the row most.
//!
//! # How
//!
//! - Softmax attention: rows of q and q' are the same exactly if `K (q - q')` is constant over the keys in sight. So: the rank of
//!   the keys with their mean taken away, against the width.
//! - Recurrences and InLine attention: the row is linear in the query that enters the sum, so: the rank of that map.
//! - Linear attention that divides by the sum of weights: twice the query gives the same row. Never injective.
//!
//! # Known answer
//!
//! With no more keys than the query is wide, no attention is injective.
//!
//! # What it does not show
//!
//! The query meant is the one that enters the sum, after feature maps: what a map such as ReLU drops is dropped before. Mixers that
//! select blocks are left out. Rows that differ little differ all the same here.
//!
//! # Source
//!
//! After *Bridging the divide: reconsidering softmax and linear attention* (arXiv 2412.06590).

use std::fmt::Write as _;

use rung_engine::Scalar;
use rung_nn::trace::{MixingOp, ReaderKind, Trace};
use rung_theory::stack::Layer;
use serde::Serialize;

use super::matrix::{Matrix, dot};
use super::questions::Questions;
use super::{AnalysisError, Finding, InstrumentOptions, layer_names};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, CellFormat, Chart, HeatCell, HeatMap, LineChart, Point, Scale, Series};
use rung_nn::Network;

/// Singular values below this share of the largest count as none.
const NOTHING: f64 = 1e-9;

/// The most heads of a layer that are examined.
const MOST_HEADS: usize = 8;

/// Every head and its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Injectivity {
    /// The network.
    pub name: String,
    /// The task.
    pub task: String,
    /// Tokens of the prompt.
    pub tokens: usize,
    /// Heads, layer by layer.
    pub heads: Vec<HeadInjectivity>,
}

/// One head.
#[derive(Clone, Debug, Serialize)]
pub struct HeadInjectivity {
    /// The layer.
    pub layer: String,
    /// The head, from 0.
    pub head: usize,
    /// Width of the query.
    pub width: usize,
    /// The rank of the map from queries to rows.
    pub rank: usize,
    /// Whether different queries have different rows.
    pub injective: bool,
    /// Whether it is not for a reason that no keys can change.
    pub never: bool,
    /// The query of the last token.
    pub query: Vec<f64>,
    /// Another one, in the direction that changes the row least.
    pub other: Vec<f64>,
    /// The row of weights of each.
    pub rows: [Vec<f64>; 3],
    /// The largest change between the rows of the two, over the largest weight.
    pub change: f64,
    /// The same for an equally long step in the direction that changes the row most.
    pub most_change: f64,
}

/// Tests every head.
///
/// # Errors
/// No mixer can be tested, or the task does not fit.
pub fn injectivity<S: Scalar>(network: &Network<S>, options: &InstrumentOptions) -> Result<Injectivity, AnalysisError> {
    let questions = Questions::draw(network, &InstrumentOptions { prompts: Some(1), ..options.clone() }, (1, 1))?;
    let batch = &questions.batches[0].batch;
    let trace = Trace::record(network, &batch.tokens)?;
    let mut heads = Vec::new();
    for ((readings, layer), name) in trace.layers.iter().zip(&network.plan.layers).zip(layer_names(&network.plan)) {
        let fitting =
            readings.iter().filter(|one| one.reads != ReaderKind::Convolution && one.tokens() == batch.length);
        // A sum of keys is no read of its own: of several sums in a layer, the one with the widest query is the read.
        let widest = |one: &&MixingOp| one.query(batch.length - 1, 0).map_or(0, <[f64]>::len);
        let attention = readings.iter().any(|one| one.reads == ReaderKind::Attention);
        let Some(reading) = fitting.filter(|one| !attention || one.reads == ReaderKind::Attention).max_by_key(widest)
        else {
            continue;
        };
        for head in 0..reading.heads.min(MOST_HEADS) {
            heads.push(test(reading, head, batch.length - 1, divides(layer), &name));
        }
    }
    if heads.is_empty() {
        let (found, expected) =
            (network.name.clone(), "attention or a recurrence that is not made of chosen blocks".to_owned());
        return Err(AnalysisError::Unfit { instrument: "injective", found, expected });
    }
    Ok(Injectivity { name: network.name.clone(), task: questions.task.clone(), tokens: batch.length, heads })
}

/// Whether a layer divides what it reads by the sum of weights, with weights that have no constant part.
fn divides(layer: &Layer) -> bool {
    layer.mixers.iter().any(|mixer| mixer.facts().scale_invariant)
}

fn test(reading: &MixingOp, head: usize, time: usize, divides: bool, layer: &str) -> HeadInjectivity {
    let query = reading.query(time, head).unwrap_or_default().to_vec();
    let width = query.len();
    let map = scores(reading, time, head, width);
    // Rows count only up to what they have in common, where a softmax follows.
    let map = if reading.reads == ReaderKind::Attention { map.residual() } else { map };
    let mut found = map.singular();
    let largest = found[0].0;
    let rank = found.iter().filter(|(value, _)| *value > NOTHING * largest && largest > 0.0).count();
    let length = dot(&query, &query).sqrt().max(1e-3);
    let step = |direction: &[f64]| -> Vec<f64> {
        query.iter().zip(direction).map(|(query, direction)| query + length * direction).collect()
    };
    let along: Vec<f64> = query.iter().map(|value| value / length).collect();
    let (_, least) = found.pop().unwrap_or_default();
    let other = step(if divides { &along } else { &least });
    let most = found.first().map_or_else(|| other.clone(), |(_, direction)| step(direction));
    let row = |query: &[f64]| {
        let row = reading.weights_for(time, head, query);
        let sum: f64 = row.iter().sum();
        if divides && sum != 0.0 { row.iter().map(|weight| weight / sum).collect() } else { row }
    };
    let rows = [row(&query), row(&other), row(&most)];
    let size = rows[0].iter().map(|weight| weight.abs()).fold(f64::MIN_POSITIVE, f64::max);
    let change =
        |at: usize| rows[0].iter().zip(&rows[at]).map(|(one, other)| (one - other).abs()).fold(0.0, f64::max) / size;
    HeadInjectivity {
        layer: layer.to_owned(),
        head,
        width,
        rank,
        injective: rank == width && !divides,
        never: divides,
        change: change(1),
        most_change: change(2),
        query,
        other,
        rows,
    }
}

/// The linear part of the map from queries to rows: scores of attention, weights of a recurrence. Keys in sight only.
fn scores(reading: &MixingOp, time: usize, head: usize, width: usize) -> Matrix {
    let unit = |at: usize| (0..width).map(|other| f64::from(u8::from(other == at))).collect::<Vec<f64>>();
    let row = |query: &[f64]| reading.weights_for(time, head, query);
    let columns: Vec<Vec<f64>> = if reading.reads == ReaderKind::Attention {
        // The logarithm of a row is its scores, up to a constant that the residual takes away.
        let none = row(&vec![0.0; width]);
        let seen: Vec<usize> = (0..none.len()).filter(|at| none[*at] > 0.0).collect();
        let small = 1e-3;
        let column = |at: usize| {
            let query: Vec<f64> = unit(at).iter().map(|value| small * value).collect();
            let moved = row(&query);
            seen.iter().map(|token| (moved[*token].ln() - none[*token].ln()) / small).collect()
        };
        (0..width).map(column).collect()
    } else {
        (0..width).map(|at| row(&unit(at))).collect()
    };
    let tokens = columns[0].len();
    Matrix::new(width, tokens, columns.concat()).flipped()
}

impl Injectivity {
    fn text(&self) -> String {
        let Self { name, task, tokens, .. } = self;
        let mut text = format!("{name} on {task}: rows of weights at the last of {tokens} tokens (measured)\n\n");
        text += "  layer           head  width  rank  injective      least change   most change\n";
        for head in &self.heads {
            let verdict = match (head.injective, head.never) {
                (true, _) => "yes",
                (false, true) => "never",
                (false, false) => "not here",
            };
            let _ = writeln!(
                text,
                "  {:15} {:>4}  {:>5}  {:>4}  {verdict:12} {:>14.1e} {:>13.1e}",
                head.layer, head.head, head.width, head.rank, head.change, head.most_change
            );
        }
        if let Some(head) = self.collision() {
            let few = |numbers: &[f64]| {
                let shown = numbers.iter().take(6).map(|value| format!("{value:.3}")).collect::<Vec<_>>().join(", ");
                if numbers.len() > 6 { format!("({shown}, ..)") } else { format!("({shown})") }
            };
            let (layer, number, change) = (&head.layer, head.head, head.change);
            let _ = writeln!(text, "\n  a collision, at layer {layer}, head {number}: {}", few(&head.query));
            let _ = writeln!(
                text,
                "  and {}\n  give rows that differ by {change:.0e} of the largest weight",
                few(&head.other)
            );
        }
        text
    }

    /// A head that is not injective.
    pub fn collision(&self) -> Option<&HeadInjectivity> {
        self.heads.iter().find(|head| !head.injective)
    }

    /// The rows of two queries that collide, or are closest to it.
    pub fn chart(&self) -> LineChart {
        let closest = || self.heads.iter().min_by(|a, b| a.change.total_cmp(&b.change));
        let head = self.collision().or_else(closest).unwrap_or_else(|| unreachable!("there is a head"));
        let points = |row: &[f64]| row.iter().enumerate().map(|(at, weight)| Point::new(at as f64, *weight)).collect();
        let word = if head.injective { "closest queries" } else { "colliding queries" };
        LineChart::new(
            format!("Rows of two {word} (measured): {}, layer {}, head {}", self.name, head.layer, head.head),
            AxisSpec::new("token that is read", Scale::Linear),
            AxisSpec::new("weight", Scale::Linear),
        )
        .series(Series::line("the last token's query", points(&head.rows[0])))
        .series(Series::points("another, along the least change", points(&head.rows[1])))
        .series(Series::line("an equally long step along the most", points(&head.rows[2])))
    }

    /// The share of a query's width that survives, head by head.
    pub fn rank_chart(&self) -> HeatMap {
        let mut rows: Vec<&str> = self.heads.iter().map(|head| &head.layer[..]).collect();
        rows.dedup();
        let most = self.heads.iter().map(|head| head.head).max().unwrap_or(0);
        let columns: Vec<String> = (0..=most).map(|head| head.to_string()).collect();
        let cell = |layer: &str, at: usize| {
            let head = self.heads.iter().find(|head| head.layer == layer && head.head == at);
            let share =
                |head: &HeadInjectivity| head.rank.saturating_sub(usize::from(head.never)) as f64 / head.width as f64;
            head.map_or_else(HeatCell::default, |head| {
                let cell = HeatCell::new(share(head));
                if head.injective { cell.framed() } else { cell }
            })
        };
        let cells = rows.iter().map(|layer| (0..=most).map(|at| cell(layer, at)).collect()).collect();
        let map = HeatMap::new(
            format!("How much of a query its row keeps: {}", self.name),
            ("layer", &rows),
            ("head", &columns),
            cells,
        );
        HeatMap { letters: CellFormat::Percent, ..map }
            .known(Evidence::Measured)
            .noted("Dimensions of the query that the row of weights depends on, of all; framed: injective.")
    }
}

/// Runs it.
///
/// # Errors
/// No mixer can be tested, or the task does not fit.
pub fn find<S: Scalar>(network: &Network<S>, options: &InstrumentOptions) -> Result<Finding, AnalysisError> {
    let found = injectivity(network, options)?;
    let charts: Vec<Box<dyn Chart>> = vec![Box::new(found.chart()), Box::new(found.rank_chart())];
    Ok(Finding::of(&found, found.text(), charts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::sample;

    #[test]
    fn attention_is_injective_with_enough_keys_and_collides_with_few() {
        // Thirteen tokens: more than a query of 8 is wide, fewer than one of 16.
        let wide = injectivity(&sample::<f64>("full"), &InstrumentOptions::default()).unwrap();
        assert!(wide.heads.iter().all(|head| head.injective && head.rank == 8 && head.change > 1e-6));
        let narrow = injectivity(&sample::<f64>("full{head=16}"), &InstrumentOptions::default()).unwrap();
        for head in &narrow.heads {
            assert!(!head.injective && head.rank < narrow.tokens, "{}", head.rank);
            assert!(head.change < 1e-7 && head.most_change > 1e-3, "{} {}", head.change, head.most_change);
            let apart: f64 = head.query.iter().zip(&head.other).map(|(a, b)| (a - b).powi(2)).sum();
            assert!(apart > 1e-6, "two different queries");
        }
    }

    #[test]
    fn a_divided_sum_loses_the_scale_and_inline_does_not() {
        let divided = injectivity(&sample::<f64>("linear"), &InstrumentOptions::default()).unwrap();
        assert!(divided.heads.iter().all(|head| head.never && !head.injective && head.change < 1e-12));
        let inline = injectivity(&sample::<f64>("inline"), &InstrumentOptions::default()).unwrap();
        assert!(inline.heads.iter().all(|head| head.injective && head.width == 9 && head.change > 1e-9));
    }

    #[test]
    fn recurrences_can_be_tested() {
        for mixer in ["gdn", "rwkv7", "gla", "mamba2", "linear{normaliser=no}", "retnet"] {
            let found = injectivity(&sample::<f64>(mixer), &InstrumentOptions::default()).unwrap();
            assert!(!found.heads.is_empty() && found.heads.iter().all(|head| !head.never), "{mixer}");
        }
    }
}
