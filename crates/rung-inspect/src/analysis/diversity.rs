//! Do heads do different things: how far apart the heads of a layer read, and how far apart their weights are.
//!
//! Heads that read the same tokens are one head paid for several times. Training with repulsion between heads is meant to keep
//! them apart; this is the instrument to see whether it did.
//!
//! # What it shows
//!
//! For each layer with several heads: the mean over pairs of heads, and over tokens, of the total variation between what they read
//! (0: the same tokens with the same shares, 1: no token in common); and the mean over pairs of the angle between their query, key
//! and value projections, as one minus the cosine.
//!
//! # How
//!
//! Shares of attention are its weights; shares of a recurrence are sizes of weight times value. The first tokens, which have little
//! to read, count as all others.
//!
//! # Known answer
//!
//! Heads with the same weights have distance 0 in both; the numbers do not depend on the order of heads.
//!
//! # Source
//!
//! An et al., *Repulsive attention* (arXiv 2009.09364), for what it is meant to show.

use std::fmt::Write as _;

use rung_engine::{Parameters, Role, Scalar};
use rung_nn::model::names;
use rung_nn::trace::{MixingOp, ReaderKind, Trace};
use serde::Serialize;

use super::matrix::dot;
use super::questions::Questions;
use super::{AnalysisError, Finding, InstrumentOptions, layer_names};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_nn::Network;

/// Prompts that are read.
const PROMPTS: usize = 4;

/// The most heads of a layer that are compared.
const MOST_HEADS: usize = 16;

/// Heads of every layer.
#[derive(Clone, Debug, Serialize)]
pub struct Diversity {
    /// The network.
    pub name: String,
    /// The task.
    pub task: String,
    /// Layers with several heads.
    pub layers: Vec<Heads>,
}

/// The heads of a layer.
#[derive(Clone, Debug, Serialize)]
pub struct Heads {
    /// The layer.
    pub layer: String,
    /// Its number, from 1.
    pub number: usize,
    /// How many heads were compared.
    pub heads: usize,
    /// Mean total variation between what two heads read.
    pub reads: f64,
    /// Mean of one minus the cosine between projections of two heads; none where projections have other names.
    pub weights: Option<f64>,
}

/// Compares heads.
///
/// # Errors
/// No layer has several heads, or the task does not fit.
pub fn diversity<S: Scalar>(network: &Network<S>, options: &InstrumentOptions) -> Result<Diversity, AnalysisError> {
    let options = InstrumentOptions { prompts: Some(options.prompts.unwrap_or(PROMPTS)), ..options.clone() };
    let questions = Questions::draw(network, &options, (usize::MAX, usize::MAX))?;
    let names = layer_names(&network.plan);
    let mut sums = vec![(0.0, 0_usize, 0_usize); names.len()];
    for tokens in questions.batches.iter().flat_map(|asked| asked.batch.tokens.chunks_exact(asked.batch.ids)) {
        let trace = Trace::record(network, tokens)?;
        for (readings, sum) in trace.layers.iter().zip(&mut sums) {
            let mixing =
                readings.iter().filter(|one| one.reads != ReaderKind::Convolution && one.tokens() == trace.tokens());
            let Some(reading) = mixing.max_by_key(|one| one.heads).filter(|one| one.heads > 1) else { continue };
            *sum = (sum.0 + apart(reading), sum.1 + 1, reading.heads.min(MOST_HEADS));
        }
    }
    let layers = names.into_iter().zip(sums).enumerate().filter(|(_, (_, (_, count, _)))| *count > 0);
    let layers: Vec<Heads> = layers
        .map(|(at, (layer, (sum, count, heads)))| Heads {
            layer,
            number: at + 1,
            heads,
            reads: sum / count as f64,
            weights: projections(&network.weights, at, heads),
        })
        .collect();
    if layers.is_empty() {
        let (found, expected) = (network.name.clone(), "a layer with several heads".to_owned());
        return Err(AnalysisError::Unfit { instrument: "diversity", found, expected });
    }
    Ok(Diversity { name: network.name.clone(), task: questions.task.clone(), layers })
}

/// Mean over tokens and pairs of heads of half the sum of differences between shares.
fn apart(reading: &MixingOp) -> f64 {
    let (tokens, heads) = (reading.tokens(), reading.heads.min(MOST_HEADS));
    let (mut sum, mut count) = (0.0, 0);
    for time in 0..tokens {
        let rows: Vec<Vec<f64>> = (0..heads).map(|head| reading.shares(time, head)).collect();
        for (left, right) in pairs(heads) {
            sum += rows[left].iter().zip(&rows[right]).map(|(a, b)| (a - b).abs()).sum::<f64>() / 2.0;
            count += 1;
        }
    }
    sum / f64::from(count.max(1))
}

/// Mean over projections and pairs of heads of one minus the cosine.
fn projections<S: Scalar>(weights: &Parameters<S>, layer: usize, heads: usize) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0);
    for role in [Role::Query, Role::Key, Role::Value] {
        let Some(id) = weights.find_role(&names::mixer(layer, 0, 1), role) else { continue };
        let values: Vec<f64> = weights.get(id).iter().map(|value| value.to_f64()).collect();
        // Keys and values of fewer heads are shared, and tell no heads apart.
        if !weights.entry(id).shape[0].is_multiple_of(heads) {
            continue;
        }
        let parts: Vec<&[f64]> = values.chunks_exact(values.len() / heads).collect();
        for (left, right) in pairs(heads) {
            let size = (dot(parts[left], parts[left]) * dot(parts[right], parts[right])).sqrt();
            sum += 1.0 - dot(parts[left], parts[right]) / size.max(f64::MIN_POSITIVE);
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
        let mut text = format!("{} on {}: how far apart heads are (measured)\n\n", self.name, self.task);
        text += "  layer            heads   what they read   projections\n";
        for layer in &self.layers {
            let weights = layer.weights.map_or_else(|| "–".to_owned(), |apart| format!("{apart:.3}"));
            let _ = writeln!(text, "  {:15} {:>6} {:>16.3} {weights:>13}", layer.layer, layer.heads, layer.reads);
        }
        text += "\n  0: the same; 1: no token in common, or projections at right angles\n";
        text
    }

    /// One line of the picture: layers and distances.
    pub fn series(&self, name: &str) -> Series {
        let points = self.layers.iter().map(|layer| Point::new(layer.number as f64, layer.reads)).collect();
        Series::line_and_points(name, points)
    }

    /// An empty picture for [`series`](Self::series).
    pub fn sheet(title: &str) -> LineChart {
        LineChart::new(
            format!("How far apart heads read ({}): {title}", Evidence::Measured),
            AxisSpec::new("layer", Scale::Whole),
            AxisSpec::new("total variation between heads", Scale::Linear).from_to(0.0, 1.0),
        )
    }
}

/// Runs it.
///
/// # Errors
/// No layer has several heads, or the task does not fit.
pub fn find(network: &Network<f32>, options: &InstrumentOptions) -> Result<Finding, AnalysisError> {
    let found = diversity(network, options)?;
    let chart = Diversity::sheet(&found.name).series(found.series("mean over pairs of heads"));
    Ok(Finding::of(&found, found.text(), vec![Box::new(chart)]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::sample;

    #[test]
    fn equal_heads_are_not_apart_and_their_order_does_not_matter() {
        for stack in ["full gdn", "linear retnet"] {
            let options = InstrumentOptions::default();
            let network = sample::<f64>(stack);
            let found = diversity(&network, &options).unwrap();
            assert!(found.layers.iter().all(|layer| layer.reads > 1e-3 && layer.reads <= 1.0), "{stack}");
            let change = |change: fn(&mut [f64])| {
                let mut network = sample::<f64>(stack);
                network.change_weights(|name, values| {
                    if name.contains("_proj") && !name.contains("o_proj") && name.contains("mixer") {
                        change(values);
                    }
                });
                diversity(&network, &options).unwrap()
            };
            let equal = change(|values| {
                let half = values.len() / 2;
                let (left, right) = values.split_at_mut(half);
                right[..half].copy_from_slice(left);
            });
            assert!(equal.layers[0].reads < 1e-9 && equal.layers[0].weights.unwrap() < 1e-9, "{stack}");
            let turned = change(|values| values.rotate_left(values.len() / 2));
            assert!((turned.layers[0].reads - found.layers[0].reads).abs() < 1e-9, "{stack}");
        }
        assert!(diversity(&sample::<f64>("full{heads=1,kv=1}"), &InstrumentOptions::default()).is_err());
    }
}
