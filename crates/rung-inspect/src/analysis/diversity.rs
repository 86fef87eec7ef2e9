//! Whether heads differ: the distance between the heads of a layer, by attention weights and by projections.
//!
//! Heads that read the same tokens are redundant. Training with repulsion between heads is meant to keep them different; this analysis
//! measures whether it did.
//!
//! # What it shows
//!
//! For each layer with several heads: the mean, over pairs of heads and over tokens, of the total variation distance between their
//! attention weights (0: the same tokens with the same weights, 1: no token in common); and the mean over pairs of one minus the cosine
//! between their query, key and value projections.
//!
//! # How
//!
//! For a recurrence, the weight of a token is the size of its weight times its value. The first tokens, which have little to read, count
//! as much as all others.
//!
//! # Validation
//!
//! Heads with the same weights have distance 0 in both; the numbers do not depend on the order of heads.
//!
//! # Source
//!
//! An et al., *Repulsive attention* (arXiv 2009.09364), for what it is meant to show.

use std::fmt::Write as _;

use rung_engine::{Parameters, Role, Scalar};
use rung_nn::model::names;
use rung_nn::trace::{MixingKind, MixingOp, Trace};
use serde::Serialize;

use super::matrix::dot;
use super::questions::{QuestionLimits, Questions};
use super::{AnalysisError, AnalysisOptions, AnalysisOutput, layer_names};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_nn::Network;

/// Default number of prompts.
const PROMPTS: usize = 4;

/// At most this many heads of a layer are compared.
const MAX_HEADS: usize = 16;

/// Distances between heads, layer by layer.
#[derive(Clone, Debug, Serialize)]
pub struct Diversity {
    /// Name of the network.
    pub name: String,
    /// The task.
    pub task: String,
    /// Layers with several heads.
    pub layers: Vec<HeadDistances>,
}

/// Distances between the heads of a layer.
#[derive(Clone, Debug, Serialize)]
pub struct HeadDistances {
    /// Name of the layer.
    pub layer: String,
    /// Number of the layer, from 0.
    #[serde(rename = "number")]
    pub layer_number: usize,
    /// Number of heads that were compared.
    #[serde(rename = "heads")]
    pub head_count: usize,
    /// Mean total variation distance between the attention weights of two heads.
    #[serde(rename = "reads")]
    pub attention_distance: f64,
    /// Mean of one minus the cosine between projections of two heads; `None` for mixers without such projections.
    #[serde(rename = "weights")]
    pub projection_distance: Option<f64>,
}

/// Compares the heads of every layer.
///
/// # Errors
/// No layer has several heads, or the task does not fit.
pub fn diversity<S: Scalar>(network: &Network<S>, options: &AnalysisOptions) -> Result<Diversity, AnalysisError> {
    let options = AnalysisOptions { prompts: Some(options.prompts.unwrap_or(PROMPTS)), ..options.clone() };
    let questions = Questions::sample(network, &options, QuestionLimits::NONE)?;
    let names = layer_names(&network.plan);
    // For each layer: sum of distances, number of prompts, number of heads.
    let mut sums = vec![(0.0, 0_usize, 0_usize); names.len()];
    for tokens in questions
        .batches
        .iter()
        .flat_map(|question_batch| question_batch.batch.tokens.chunks_exact(question_batch.batch.ids_per_row))
    {
        let trace = Trace::record(network, tokens)?;
        for (ops, sum) in trace.layers.iter().zip(&mut sums) {
            let token_mixing =
                ops.iter().filter(|op| op.kind != MixingKind::Convolution && op.token_count() == trace.token_count());
            let Some(op) = token_mixing.max_by_key(|op| op.heads).filter(|op| op.heads > 1) else { continue };
            *sum = (sum.0 + attention_distance(op), sum.1 + 1, op.heads.min(MAX_HEADS));
        }
    }
    let layers = names.into_iter().zip(sums).enumerate().filter(|(_, (_, (_, count, _)))| *count > 0);
    let layers: Vec<HeadDistances> = layers
        .map(|(index, (layer, (sum, count, heads)))| HeadDistances {
            layer,
            layer_number: index,
            head_count: heads,
            attention_distance: sum / count as f64,
            projection_distance: projection_distance(&network.weights, index, heads),
        })
        .collect();
    if layers.is_empty() {
        let (found, expected) = (network.name.clone(), "a layer with several heads".to_owned());
        return Err(AnalysisError::NotApplicable { analysis: "diversity", found, expected });
    }
    Ok(Diversity { name: network.name.clone(), task: questions.task.clone(), layers })
}

/// Total variation distance between the attention weights of two heads, mean over tokens and pairs of heads.
fn attention_distance(op: &MixingOp) -> f64 {
    let (tokens, heads) = (op.token_count(), op.heads.min(MAX_HEADS));
    let (mut sum, mut count) = (0.0, 0);
    for time in 0..tokens {
        let rows: Vec<Vec<f64>> = (0..heads).map(|head| op.shares(time, head)).collect();
        for (left, right) in pairs(heads) {
            sum += rows[left].iter().zip(&rows[right]).map(|(a, b)| (a - b).abs()).sum::<f64>() / 2.0;
            count += 1;
        }
    }
    sum / f64::from(count.max(1))
}

/// One minus the cosine between the projections of two heads, mean over projections and pairs of heads.
fn projection_distance<S: Scalar>(weights: &Parameters<S>, layer: usize, heads: usize) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0);
    for role in [Role::Query, Role::Key, Role::Value] {
        let Some(id) = weights.find_role(&names::mixer(layer, 0, 1), role) else { continue };
        let values: Vec<f64> = weights.get(id).iter().map(|value| value.to_f64()).collect();
        // Keys and values of grouped-query attention are shared by heads, so they are not compared.
        if !weights.entry(id).shape[0].is_multiple_of(heads) {
            continue;
        }
        let projections: Vec<&[f64]> = values.chunks_exact(values.len() / heads).collect();
        for (left, right) in pairs(heads) {
            let (left, right) = (projections[left], projections[right]);
            let norms = (dot(left, left) * dot(right, right)).sqrt();
            sum += 1.0 - dot(left, right) / norms.max(f64::MIN_POSITIVE);
            count += 1;
        }
    }
    (count > 0).then(|| sum / f64::from(count))
}

fn pairs(heads: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..heads).flat_map(move |left| (left + 1..heads).map(move |right| (left, right)))
}

impl Diversity {
    fn text(&self) -> String {
        let mut text = format!("{} on {}: distances between heads (measured)\n\n", self.name, self.task);
        text += "  layer            heads   what they read   projections\n";
        for layer in &self.layers {
            let weights = layer.projection_distance.map_or_else(|| "–".to_owned(), |distance| format!("{distance:.3}"));
            let _ = writeln!(
                text,
                "  {:15} {:>6} {:>16.3} {weights:>13}",
                layer.layer, layer.head_count, layer.attention_distance
            );
        }
        text += "\n  0: the same; 1: no token in common, or projections at right angles\n";
        text
    }

    /// The distance between heads by layer, as a series of [`empty_chart`](Self::empty_chart).
    pub fn series(&self, name: &str) -> Series {
        let points =
            self.layers.iter().map(|layer| Point::new(layer.layer_number as f64, layer.attention_distance)).collect();
        Series::line_and_points(name, points)
    }

    /// A chart without series, for one or more [`series`](Self::series).
    pub fn empty_chart(title: &str) -> LineChart {
        LineChart::new(
            format!("Distances between the attention of heads ({}): {title}", Evidence::Measured),
            AxisSpec::new("layer", Scale::Integer),
            AxisSpec::new("total variation between heads", Scale::Linear).with_range(0.0, 1.0),
        )
    }
}

/// Runs the analysis.
///
/// # Errors
/// No layer has several heads, or the task does not fit.
pub fn run(network: &Network<f32>, options: &AnalysisOptions) -> Result<AnalysisOutput, AnalysisError> {
    let diversity = diversity(network, options)?;
    let chart = Diversity::empty_chart(&diversity.name).series(diversity.series("mean over pairs of heads"));
    Ok(AnalysisOutput::new(&diversity, diversity.text(), vec![Box::new(chart)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::random_network;

    #[test]
    fn equal_heads_have_distance_0_and_the_order_of_heads_does_not_matter() {
        for stack in ["full gdn", "linear retnet"] {
            let options = AnalysisOptions::default();
            let network = random_network::<f64>(stack);
            let original = diversity(&network, &options).unwrap();
            assert!(
                original.layers.iter().all(|layer| layer.attention_distance > 1e-3 && layer.attention_distance <= 1.0),
                "{stack}"
            );
            let after_change = |change: fn(&mut [f64])| {
                let mut network = random_network::<f64>(stack);
                network.change_weights(|name, values| {
                    if name.contains("_proj") && !name.contains("o_proj") && name.contains("mixer") {
                        change(values);
                    }
                });
                diversity(&network, &options).unwrap()
            };
            let equal = after_change(|values| {
                let half = values.len() / 2;
                let (left, right) = values.split_at_mut(half);
                right[..half].copy_from_slice(left);
            });
            assert!(
                equal.layers[0].attention_distance < 1e-9 && equal.layers[0].projection_distance.unwrap() < 1e-9,
                "{stack}"
            );
            let swapped = after_change(|values| values.rotate_left(values.len() / 2));
            assert!(
                (swapped.layers[0].attention_distance - original.layers[0].attention_distance).abs() < 1e-9,
                "{stack}"
            );
        }
        assert!(diversity(&random_network::<f64>("full{heads=1,kv=1}"), &AnalysisOptions::default()).is_err());
    }
}
