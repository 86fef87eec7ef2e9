//! Whether two different queries give the same attention weights: the rank test of injectivity, and colliding queries where there are some.
//!
//! A query gives a row of attention weights over the keys, below just called its row. If two different queries give the same row, the head cannot distinguish them.
//! Whether that happens for the keys of a prompt is decided by the rank of a matrix.
//!
//! # What it shows
//!
//! For the last token of a prompt and every head: the dimension of the query, the rank of the map from queries to rows, whether it is
//! injective, and the change of the row along the direction that changes it least. If that change is zero, the two queries collide; one
//! collision is drawn, beside an equally long step in the direction that changes the row most.
//!
//! # How
//!
//! - Softmax attention: the rows of q and q' are the same exactly if `K (q - q')` is constant over the visible keys. So the map is
//!   injective if the rank of the keys minus their mean is the dimension of the query.
//! - Recurrences and InLine attention: the row is a linear function of the query, and its rank decides.
//! - Linear attention that divides by the sum of weights is never injective: q and 2 q give the same row.
//!
//! # Validation
//!
//! Attention with at most as many keys as the query has dimensions is not injective.
//!
//! # What it does not show
//!
//! The query is taken after feature maps; what a map such as ReLU discards is not counted. Mixers that select blocks are left out. Rows that
//! differ by little count as different.
//!
//! # Source
//!
//! After *Bridging the divide: reconsidering softmax and linear attention* (arXiv 2412.06590).

use std::fmt::Write as _;

use rung_engine::Scalar;
use rung_nn::trace::{MixingKind, MixingOp, Trace};
use rung_theory::stack::Layer;
use serde::Serialize;

use super::matrix::{Matrix, dot};
use super::questions::{QuestionLimits, Questions};
use super::{AnalysisError, AnalysisOptions, AnalysisOutput, layer_names};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, CellFormat, Chart, HeatCell, HeatMap, LineChart, Point, Scale, Series};
use rung_nn::Network;

/// Singular values below this share of the largest count as zero.
const ZERO_TOLERANCE: f64 = 1e-9;

/// At most this many heads of a layer are tested.
const MAX_HEADS: usize = 8;

/// The injectivity of every head.
#[derive(Clone, Debug, Serialize)]
pub struct Injectivity {
    /// Name of the network.
    pub name: String,
    /// The task.
    pub task: String,
    /// Number of tokens of the prompt.
    #[serde(rename = "tokens")]
    pub token_count: usize,
    /// The heads, layer by layer.
    pub heads: Vec<HeadInjectivity>,
}

/// The injectivity of one head.
#[derive(Clone, Debug, Serialize)]
pub struct HeadInjectivity {
    /// Name of the layer.
    pub layer: String,
    /// The head, from 0.
    pub head: usize,
    /// Dimension of the query.
    #[serde(rename = "width")]
    pub query_dim: usize,
    /// The rank of the map from queries to rows.
    pub rank: usize,
    /// Whether different queries have different rows.
    pub injective: bool,
    /// Whether the head is not injective for any keys.
    #[serde(rename = "never")]
    pub never_injective: bool,
    /// The query of the last token.
    pub query: Vec<f64>,
    /// A step from it in the direction that changes the row least.
    #[serde(rename = "other")]
    pub other_query: Vec<f64>,
    /// The rows of weights of `query`, of `other_query`, and of an equally long step in the direction that changes the row most.
    pub rows: [Vec<f64>; 3],
    /// The largest difference between the rows of `query` and `other_query`, relative to the largest weight.
    #[serde(rename = "change")]
    pub least_change: f64,
    /// The largest difference between the first and the third row, relative to the largest weight.
    pub most_change: f64,
}

/// Tests the heads of every layer.
///
/// # Errors
/// No mixer can be tested, or the task does not fit.
pub fn injectivity<S: Scalar>(network: &Network<S>, options: &AnalysisOptions) -> Result<Injectivity, AnalysisError> {
    let questions =
        Questions::sample(network, &AnalysisOptions { prompts: Some(1), ..options.clone() }, QuestionLimits::NONE)?;
    let batch = &questions.batches[0].batch;
    let trace = Trace::record(network, &batch.tokens)?;
    let mut heads = Vec::new();
    for ((ops, layer), name) in trace.layers.iter().zip(&network.plan.layers).zip(layer_names(&network.plan)) {
        let token_mixing =
            ops.iter().filter(|op| op.kind != MixingKind::Convolution && op.token_count() == batch.tokens_per_row);
        // The sum of keys in a normaliser is recorded too. Of several recorded sums, the one with the largest query is the read.
        let query_dim = |op: &&MixingOp| op.query(batch.tokens_per_row - 1, 0).map_or(0, <[f64]>::len);
        let has_attention = ops.iter().any(|op| op.kind == MixingKind::Attention);
        let Some(op) = token_mixing
            .filter(|op| query_dim(op) > 0 && (!has_attention || op.kind == MixingKind::Attention))
            .max_by_key(query_dim)
        else {
            continue;
        };
        for head in 0..op.heads.min(MAX_HEADS) {
            heads.push(test_head(op, head, batch.tokens_per_row - 1, normalizes(layer), &name));
        }
    }
    if heads.is_empty() {
        let (found, expected) =
            (network.name.clone(), "attention or a recurrence that does not select blocks".to_owned());
        return Err(AnalysisError::NotApplicable { analysis: "injective", found, expected });
    }
    Ok(Injectivity {
        name: network.name.clone(),
        task: questions.task.clone(),
        token_count: batch.tokens_per_row,
        heads,
    })
}

/// Whether a layer divides its output by the sum of weights, so that the scale of the query has no effect.
fn normalizes(layer: &Layer) -> bool {
    layer.mixers.iter().any(|mixer| mixer.facts().scale_invariant)
}

fn test_head(op: &MixingOp, head: usize, time: usize, normalizes: bool, layer: &str) -> HeadInjectivity {
    let query = op.query(time, head).unwrap_or_default().to_vec();
    let query_dim = query.len();
    let map = query_to_row(op, time, head, query_dim);
    // Softmax ignores a constant that is added to all scores.
    let map = if op.kind == MixingKind::Attention { map.subtract_mean_row() } else { map };
    let mut pairs = map.singular_pairs();
    let largest = pairs[0].0;
    let rank = pairs.iter().filter(|(value, _)| *value > ZERO_TOLERANCE * largest && largest > 0.0).count();
    let query_norm = dot(&query, &query).sqrt().max(1e-3);
    let step = |direction: &[f64]| -> Vec<f64> {
        query.iter().zip(direction).map(|(query, direction)| query + query_norm * direction).collect()
    };
    let query_direction: Vec<f64> = query.iter().map(|value| value / query_norm).collect();
    let (_, least_direction) = pairs.pop().unwrap_or_default();
    let other_query = step(if normalizes { &query_direction } else { &least_direction });
    let most_changed = pairs.first().map_or_else(|| other_query.clone(), |(_, direction)| step(direction));
    let row = |query: &[f64]| {
        let row = op.weights_with_query(time, head, query);
        let sum: f64 = row.iter().sum();
        if normalizes && sum != 0.0 { row.iter().map(|weight| weight / sum).collect() } else { row }
    };
    let rows = [row(&query), row(&other_query), row(&most_changed)];
    let largest_weight = rows[0].iter().map(|weight| weight.abs()).fold(f64::MIN_POSITIVE, f64::max);
    let change = |index: usize| {
        let differences = rows[0].iter().zip(&rows[index]).map(|(first, other)| (first - other).abs());
        differences.fold(0.0, f64::max) / largest_weight
    };
    HeadInjectivity {
        layer: layer.to_owned(),
        head,
        query_dim,
        rank,
        injective: rank == query_dim && !normalizes,
        never_injective: normalizes,
        least_change: change(1),
        most_change: change(2),
        query,
        other_query,
        rows,
    }
}

/// The linear map from queries to the scores of attention, or to the weights of a recurrence, over the visible keys.
fn query_to_row(op: &MixingOp, time: usize, head: usize, width: usize) -> Matrix {
    let basis_vector = |axis: usize| (0..width).map(|other| f64::from(u8::from(other == axis))).collect::<Vec<f64>>();
    let row = |query: &[f64]| op.weights_with_query(time, head, query);
    let columns: Vec<Vec<f64>> = if op.kind == MixingKind::Attention {
        // The logarithm of the weights is the scores plus a constant, which subtracting the mean removes.
        let row_of_zero = row(&vec![0.0; width]);
        let visible: Vec<usize> = (0..row_of_zero.len()).filter(|token| row_of_zero[*token] > 0.0).collect();
        let step = 1e-3;
        let column = |axis: usize| {
            let query: Vec<f64> = basis_vector(axis).iter().map(|value| step * value).collect();
            let row = row(&query);
            visible.iter().map(|token| (row[*token].ln() - row_of_zero[*token].ln()) / step).collect()
        };
        (0..width).map(column).collect()
    } else {
        (0..width).map(|axis| row(&basis_vector(axis))).collect()
    };
    let tokens = columns[0].len();
    Matrix::new(width, tokens, columns.concat()).transposed()
}

impl Injectivity {
    fn text(&self) -> String {
        let Self { name, task, token_count, .. } = self;
        let mut text = format!("{name} on {task}: rows of weights at the last of {token_count} tokens (measured)\n\n");
        text += "  layer           head  width  rank  injective            least change   most change\n";
        for head in &self.heads {
            let verdict = match (head.injective, head.never_injective) {
                (true, _) => "yes",
                (false, true) => "never",
                (false, false) => "not for these keys",
            };
            let _ = writeln!(
                text,
                "  {:15} {:>4}  {:>5}  {:>4}  {verdict:18} {:>14.1e} {:>13.1e}",
                head.layer, head.head, head.query_dim, head.rank, head.least_change, head.most_change
            );
        }
        if let Some(head) = self.first_non_injective_head() {
            let vector_text = |numbers: &[f64]| {
                let first = numbers.iter().take(6).map(|value| format!("{value:.3}")).collect::<Vec<_>>().join(", ");
                if numbers.len() > 6 { format!("({first}, ..)") } else { format!("({first})") }
            };
            let (layer, head_index, change) = (&head.layer, head.head, head.least_change);
            let _ =
                writeln!(text, "\n  a collision, at layer {layer}, head {head_index}: {}", vector_text(&head.query));
            let _ = writeln!(
                text,
                "  and {}\n  give rows that differ by {change:.0e} of the largest weight",
                vector_text(&head.other_query)
            );
        }
        text
    }

    /// The first head that is not injective.
    pub fn first_non_injective_head(&self) -> Option<&HeadInjectivity> {
        self.heads.iter().find(|head| !head.injective)
    }

    /// The rows of two colliding queries, or of the two with the smallest change if no head collides.
    pub fn chart(&self) -> LineChart {
        let closest = || self.heads.iter().min_by(|a, b| a.least_change.total_cmp(&b.least_change));
        let head = self.first_non_injective_head().or_else(closest).unwrap_or_else(|| unreachable!("there is a head"));
        let point = |(token, weight): (usize, &f64)| Point::new(token as f64, *weight);
        let points = |row: &[f64]| row.iter().enumerate().map(point).collect();
        let queries = if head.injective { "closest queries" } else { "colliding queries" };
        LineChart::new(
            format!("Rows of two {queries} (measured): {}, layer {}, head {}", self.name, head.layer, head.head),
            AxisSpec::new("token that is read", Scale::Linear),
            AxisSpec::new("weight", Scale::Linear),
        )
        .series(Series::line("the last token's query", points(&head.rows[0])))
        .series(Series::points("another, along the least change", points(&head.rows[1])))
        .series(Series::line("an equally long step along the most", points(&head.rows[2])))
    }

    /// A heat map of the rank relative to the dimension of the query, for every head.
    pub fn rank_chart(&self) -> HeatMap {
        let mut rows: Vec<&str> = self.heads.iter().map(|head| &head.layer[..]).collect();
        rows.dedup();
        let last_head = self.heads.iter().map(|head| head.head).max().unwrap_or(0);
        let columns: Vec<String> = (0..=last_head).map(|head| head.to_string()).collect();
        let cell = |layer: &str, head_index: usize| {
            let head = self.heads.iter().find(|head| head.layer == layer && head.head == head_index);
            let share = |head: &HeadInjectivity| {
                head.rank.saturating_sub(usize::from(head.never_injective)) as f64 / head.query_dim as f64
            };
            head.map_or_else(HeatCell::default, |head| {
                let cell = HeatCell::new(share(head));
                if head.injective { cell.framed() } else { cell }
            })
        };
        let cells =
            rows.iter().map(|layer| (0..=last_head).map(|head_index| cell(layer, head_index)).collect()).collect();
        let map = HeatMap::new(
            format!("Query dimensions that the attention weights depend on: {}", self.name),
            ("layer", &rows),
            ("head", &columns),
            cells,
        );
        HeatMap { format: CellFormat::Percent, ..map }
            .with_evidence(Evidence::Measured)
            .with_note("Dimensions of the query that the row of weights depends on, of all; framed: injective.")
    }
}

/// Runs the analysis.
///
/// # Errors
/// No mixer can be tested, or the task does not fit.
pub fn run<S: Scalar>(network: &Network<S>, options: &AnalysisOptions) -> Result<AnalysisOutput, AnalysisError> {
    let injectivity = injectivity(network, options)?;
    let charts: Vec<Box<dyn Chart>> = vec![Box::new(injectivity.chart()), Box::new(injectivity.rank_chart())];
    Ok(AnalysisOutput::new(&injectivity, injectivity.text(), charts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::random_network;

    #[test]
    fn attention_is_injective_with_enough_keys_and_collides_with_few() {
        // Thirteen tokens: more than a query of dimension 8 needs, fewer than one of 16.
        let enough_keys = injectivity(&random_network::<f64>("full"), &AnalysisOptions::default()).unwrap();
        assert!(enough_keys.heads.iter().all(|head| head.injective && head.rank == 8 && head.least_change > 1e-6));
        let few_keys = injectivity(&random_network::<f64>("full{head=16}"), &AnalysisOptions::default()).unwrap();
        for head in &few_keys.heads {
            assert!(!head.injective && head.rank < few_keys.token_count, "{}", head.rank);
            assert!(head.least_change < 1e-7 && head.most_change > 1e-3, "{} {}", head.least_change, head.most_change);
            let squared_distance: f64 = head.query.iter().zip(&head.other_query).map(|(a, b)| (a - b).powi(2)).sum();
            assert!(squared_distance > 1e-6, "two different queries");
        }
    }

    #[test]
    fn normalized_linear_attention_ignores_the_scale_of_the_query_and_inline_does_not() {
        let normalized = injectivity(&random_network::<f64>("linear"), &AnalysisOptions::default()).unwrap();
        assert!(
            normalized.heads.iter().all(|head| head.never_injective && !head.injective && head.least_change < 1e-12)
        );
        let inline = injectivity(&random_network::<f64>("inline"), &AnalysisOptions::default()).unwrap();
        assert!(inline.heads.iter().all(|head| head.injective && head.query_dim == 9 && head.least_change > 1e-9));
    }

    #[test]
    fn recurrences_can_be_tested() {
        for mixer in ["gdn", "rwkv7", "gla", "mamba2", "linear{normaliser=no}", "retnet"] {
            let result = injectivity(&random_network::<f64>(mixer), &AnalysisOptions::default()).unwrap();
            assert!(!result.heads.is_empty() && result.heads.iter().all(|head| !head.never_injective), "{mixer}");
        }
    }
}
