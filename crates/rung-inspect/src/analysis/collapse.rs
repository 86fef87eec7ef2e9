//! Do all tokens become the same, and what keeps them apart: rank collapse, layer by layer, for every mixer.
//!
//! A mixer that only averages makes tokens more alike: its stream tends to one row repeated, a matrix of rank one. Skips and channel
//! mixers work against it. The residual is what is left of the stream after taking away what all tokens have in common.
//!
//! # What it shows
//!
//! - The relative residual `|X - 1 x'| / |X|` after every layer, x being the mean token: for the stack as it is, without channel
//!   mixers, without skips around mixers, and without both. The norm is the composite one, the root of the largest row sum times
//!   the largest column sum of absolute values.
//! - Paths: through every layer a token's content goes past the mixer or through it, so the last stream is a sum over paths, and
//!   paths can be sorted by how many mixers they pass. How many there are of each length is a count; how large their sum is, is
//!   measured, with gates held still, and the sums add up to the stream exactly.
//! - Products of token-by-token weights along random paths of heads: how far from rank one they are after so many layers.
//! - The published bound on the residual of attention without skips and channel mixers, where it reaches: softmax attention that
//!   is bidirectional, no norms, no positions. For causal attention, and for other mixers, there is none here.
//!
//! # Known answer
//!
//! Without skips and channel mixers, bidirectional attention collapses doubly exponentially; with skips it does not.
//!
//! # Source
//!
//! Dong, Cordonnier and Loukas, *Attention is not all you need: pure attention loses rank doubly exponentially with depth*
//! (arXiv 2103.03404). Mixers other than softmax attention, and sizes of paths by held gates, are ours.

use std::fmt::Write as _;

use rung_engine::{Native, Ops, Parameters, Role, Scalar, Tensor};
use rung_nn::model::names;
use rung_nn::{Hooks, ModelError, NormConfig, Positions};
use serde::Serialize;

use super::matrix::Matrix;
use super::paths::{self, PathLength, heads};
use super::questions::Questions;
use super::{AnalysisError, Finding, InstrumentOptions, layer_names};
use rung_figure::figure::{AxisSpec, Chart, LineChart, Point, Scale, Series};
use rung_nn::Network;

/// Prompts that residuals are a mean over.
const PROMPTS: usize = 4;

/// The most layers whose paths are separated by length: beyond, rounding would show.
const MOST_LAYERS: usize = 16;

/// What is left of differences between tokens.
#[derive(Clone, Debug, Serialize)]
pub struct Collapse {
    /// The network.
    pub name: String,
    /// The task.
    pub task: String,
    /// The levels of the stream.
    pub levels: Vec<String>,
    /// As it is, without channel mixers, without skips, without both.
    pub variants: Vec<StackVariant>,
    /// Paths by the number of mixers they pass; none for very deep stacks.
    pub paths: Vec<PathLength>,
    /// Products of weights along paths of heads, after every layer; none where weights cannot be had.
    pub products: Vec<f64>,
    /// Decimal logarithms of the published bound on the residual without both, at every level; or why there is none.
    pub bound: Result<Vec<f64>, String>,
}

/// A variant of the stack.
#[derive(Clone, Debug, Serialize)]
pub struct StackVariant {
    /// What it is.
    pub name: &'static str,
    /// The relative residual at every level, mean over prompts.
    pub relative: Vec<f64>,
    /// The residual itself, largest of the prompts.
    pub residual: Vec<f64>,
}

const VARIANTS: [(&str, bool, bool); 4] = [
    ("as it is", true, true),
    ("without channel mixers", true, false),
    ("without skips", false, true),
    ("without both", false, false),
];

/// Keeps the streams of a pass without some of its parts.
struct ReducedPass {
    skips: bool,
    channels: bool,
    streams: Vec<Vec<f64>>,
}

impl<S: Scalar> Hooks<Native<S>> for ReducedPass {
    fn stream(&mut self, ops: &Native<S>, _: usize, x: Tensor<S>) -> Tensor<S> {
        self.streams.push(ops.values(&x).into_iter().map(Scalar::to_f64).collect());
        x
    }

    fn skips(&self) -> bool {
        self.skips
    }

    fn channels(&self) -> bool {
        self.channels
    }
}

/// Measures.
///
/// # Errors
/// The network or the task does not fit.
pub fn collapse<S: Scalar>(network: &Network<S>, options: &InstrumentOptions) -> Result<Collapse, AnalysisError> {
    let options = InstrumentOptions { prompts: Some(options.prompts.unwrap_or(PROMPTS)), ..options.clone() };
    let questions = Questions::draw(network, &options, (usize::MAX, usize::MAX))?;
    let prompts: Vec<&[u32]> =
        questions.batches.iter().flat_map(|asked| asked.batch.tokens.chunks_exact(asked.batch.ids)).collect();
    let variants = VARIANTS.iter().map(|variant| residuals(network, *variant, &prompts));
    let variants = variants.collect::<Result<Vec<_>, _>>()?;
    let bound = bound(network).map(|bound| {
        let start = variants[3].residual[0].log10();
        (0..=network.model.depth()).map(|depth| bound.at(depth, start)).collect()
    });
    let mut levels = vec!["embedding".to_owned()];
    levels.extend(layer_names(&network.plan));
    let paths = if network.model.depth() <= MOST_LAYERS { paths::by_length(network, prompts[0])? } else { Vec::new() };
    let products = paths::products(network, prompts[0], options.seed)?;
    Ok(Collapse { name: network.name.clone(), task: questions.task.clone(), levels, variants, paths, products, bound })
}

fn residuals<S: Scalar>(
    network: &Network<S>,
    (name, skips, channels): (&'static str, bool, bool),
    prompts: &[&[u32]],
) -> Result<StackVariant, ModelError> {
    let levels = network.model.depth() + 1;
    let (mut relative, mut residual) = (vec![0.0; levels], vec![0.0_f64; levels]);
    for tokens in prompts {
        let ops = Native::new();
        ops.bind_frozen(&network.weights);
        let mut bare = ReducedPass { skips, channels, streams: Vec::new() };
        network.model.forward_with_hooks(&ops, tokens, 1, &mut bare)?;
        for (level, stream) in bare.streams.into_iter().enumerate() {
            let width = network.model.width();
            let matrix = Matrix::new(stream.len() / width, width, stream);
            let (left, whole) = (matrix.residual().composite_norm(), matrix.composite_norm());
            relative[level] += left / whole.max(f64::MIN_POSITIVE) / prompts.len() as f64;
            residual[level] = residual[level].max(left);
        }
    }
    Ok(StackVariant { name, relative, residual })
}

/// The published bound: `(4 beta H / sqrt d)^((3^L - 1) / 2) |res X|^(3^L)`.
struct Bound {
    log_base: f64,
}

impl Bound {
    /// Its decimal logarithm after so many layers, from that of the residual at the start.
    fn at(&self, depth: usize, start: f64) -> f64 {
        let power = 3_f64.powf(depth as f64);
        (power - 1.0) / 2.0 * self.log_base + power * start
    }
}

/// The bound of a network, or why there is none.
fn bound<S: Scalar>(network: &Network<S>) -> Result<Bound, String> {
    let config = &network.config;
    if config.causal {
        return Err("the theorem is for bidirectional attention; this network is causal".to_owned());
    }
    if config.norm != NormConfig::None || !matches!(config.positions, Positions::None) {
        return Err("the theorem is for attention without norms and positions".to_owned());
    }
    let (mut beta, mut base) = (0.0_f64, 0.0_f64);
    for (layer, found) in network.plan.layers.iter().enumerate() {
        let [mixer] = &found.mixers[..] else { return Err("a layer has several mixers side by side".to_owned()) };
        if !mixer.facts().looks_up || mixer.number("conv") != Some(0) {
            return Err(format!("no bound is known here for {mixer}"));
        }
        let (heads, kv) = (heads(mixer) as usize, mixer.facts().attention.map_or(1, |heads| heads.kv as usize));
        let table = |role: Role| of_weight(&network.weights, layer, role);
        let (Some(query), Some(key), Some(value), Some(output)) =
            (table(Role::Query), table(Role::Key), table(Role::Value), table(Role::Output))
        else {
            return Err("attention shares the cache of another layer".to_owned());
        };
        let width = query.rows / heads;
        for head in 0..heads {
            let group = head * kv / heads;
            let rows = |table: &Matrix, at: usize, count: usize| {
                let size = table.rows / count;
                let numbers = table.numbers[at * size * table.columns..(at + 1) * size * table.columns].to_vec();
                Matrix::new(size, table.columns, numbers)
            };
            let scores = rows(&query, head, heads).flipped().times(&rows(&key, group, kv));
            let moved = rows(&output.flipped(), head, heads);
            let moved = rows(&value, group, kv).flipped().times(&moved);
            beta = beta.max(scores.column_norm() * moved.composite_norm());
        }
        base = base.max(4.0 * heads as f64 / (width as f64).sqrt());
    }
    Ok(Bound { log_base: (base * beta).log10() })
}

fn of_weight<S: Scalar>(weights: &Parameters<S>, layer: usize, role: Role) -> Option<Matrix> {
    let id = weights.find_role(&names::mixer(layer, 0, 1), role)?;
    let [rows, columns] = weights.entry(id).shape[..] else { return None };
    Some(Matrix::new(rows, columns, weights.get(id).iter().map(|value| value.to_f64()).collect()))
}

impl Collapse {
    fn text(&self) -> String {
        let mut text = format!("{} on {}: differences between tokens (measured)\n\n", self.name, self.task);
        let widest = self.levels.iter().map(String::len).max().unwrap_or(0).max(10);
        let _ = write!(text, "  {:widest$}", "residual");
        for variant in &self.variants {
            let _ = write!(text, "{:>24}", variant.name);
        }
        text += if self.products.is_empty() { "\n" } else { "   products of weights\n" };
        for (level, name) in self.levels.iter().enumerate() {
            let _ = write!(text, "  {name:widest$}");
            for variant in &self.variants {
                let _ = write!(text, "{:>24.2e}", variant.relative[level]);
            }
            if let Some(product) = level.checked_sub(1).and_then(|layer| self.products.get(layer)) {
                let _ = write!(text, "{product:>22.2e}");
            }
            text += "\n";
        }
        if !self.paths.is_empty() {
            text += "\n  mixers passed   share of paths   size of their sum\n";
            for path in &self.paths {
                let _ = writeln!(text, "  {:>13}   {:>13.1}%   {:>17.3}", path.mixers, 100.0 * path.counted, path.size);
            }
        }
        text += "\n";
        match &self.bound {
            Ok(bound) => {
                let last = self.levels.len() - 1;
                let found = self.variants[3].residual[last];
                let _ = writeln!(
                    text,
                    "  without both: residual {found:.2e}; the published bound is 10^{:.1}",
                    bound[last]
                );
            }
            Err(why) => {
                let _ = writeln!(text, "  no bound beside it: {why}");
            }
        }
        text
    }

    /// Residuals layer by layer.
    pub fn chart(&self) -> LineChart {
        let mut chart = LineChart::new(
            format!("What is left of differences between tokens (measured): {}", self.name),
            AxisSpec::new("layers", Scale::Whole),
            AxisSpec::new("relative residual to rank one", Scale::Log10),
        );
        let points = |values: &[f64], first: usize| {
            values.iter().enumerate().map(|(at, value)| Point::new((at + first) as f64, *value)).collect::<Vec<_>>()
        };
        for variant in &self.variants {
            chart = chart.series(Series::line_and_points(variant.name, points(&variant.relative, 0)));
        }
        if !self.products.is_empty() {
            chart = chart.series(Series::line("products of weights", points(&self.products, 1)));
        }
        chart
    }

    /// Paths by length.
    pub fn path_chart(&self) -> Option<LineChart> {
        let points = |value: fn(&PathLength) -> f64| {
            self.paths.iter().map(|path| Point::new(path.mixers as f64, value(path))).collect::<Vec<_>>()
        };
        let chart = LineChart::new(
            format!("Paths by the number of mixers they pass: {}", self.name),
            AxisSpec::new("mixers passed", Scale::Whole),
            AxisSpec::new("share", Scale::Linear),
        )
        .series(Series::line_and_points("share of all paths, counted", points(|path| path.counted)))
        .series(Series::line_and_points("size of their sum over the stream's, measured", points(|path| path.size)));
        (!self.paths.is_empty()).then_some(chart)
    }
}

/// Runs it.
///
/// # Errors
/// The network or the task does not fit.
pub fn find<S: Scalar>(network: &Network<S>, options: &InstrumentOptions) -> Result<Finding, AnalysisError> {
    let found = collapse(network, options)?;
    let mut charts: Vec<Box<dyn Chart>> = vec![Box::new(found.chart())];
    if let Some(chart) = found.path_chart() {
        charts.push(Box::new(chart));
    }
    Ok(Finding::of(&found, found.text(), charts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{sample, sample_with};
    use rung_nn::{FeedForwardConfig, ModelConfig};

    /// Bidirectional attention, and nothing else.
    fn bare(stack: &str, deviation: f64) -> Network<f64> {
        sample_with(stack, |config| ModelConfig {
            causal: false,
            norm: NormConfig::None,
            feed_forward: FeedForwardConfig::None,
            deviation,
            tied_query_key: false,
            ..config
        })
    }

    #[test]
    fn attention_alone_collapses_below_its_bound_and_skips_keep_tokens_apart() {
        let found = collapse(&bare("full full full", 0.05), &InstrumentOptions::default()).unwrap();
        let [whole, _, _, alone] = &found.variants[..] else { panic!("four variants") };
        assert!(
            alone.relative.windows(2).all(|pair| pair[1] < 0.2 * pair[0] || pair[1] < 1e-12),
            "{:?}",
            alone.relative
        );
        assert!(whole.relative.iter().all(|left| *left > 0.5), "{:?}", whole.relative);
        let bound = found.bound.unwrap();
        for (residual, bound) in alone.residual.iter().zip(bound).skip(1) {
            assert!(residual.log10() <= bound, "{residual} above 10^{bound}");
        }
        assert!(found.products.windows(2).all(|pair| pair[1] < pair[0]), "{:?}", found.products);
    }

    #[test]
    fn the_sum_over_paths_of_heads_is_attention_without_skips() {
        // By hand for two layers of two heads: sum over (h1, h2) of P_h2 P_h1 X W_h1 W_h2.
        let network = bare("full full", 0.3);
        let questions =
            Questions::draw(&network, &InstrumentOptions { prompts: Some(1), ..InstrumentOptions::default() }, (1, 1))
                .unwrap();
        let tokens = &questions.batches[0].batch.tokens;
        let ops = Native::new();
        ops.bind_frozen(&network.weights);
        let mut bare = ReducedPass { skips: false, channels: false, streams: Vec::new() };
        network.model.forward_with_hooks(&ops, tokens, 1, &mut bare).unwrap();
        let width = network.model.width();
        let matrix = |stream: &Vec<f64>| Matrix::new(stream.len() / width, width, stream.clone());
        let mut sum = Matrix::zeros(bare.streams[0].len() / width, width);
        let weights = |layer: usize, x: &Matrix, head: usize| {
            let table = |role: Role| of_weight(&network.weights, layer, role).unwrap();
            let rows = |table: &Matrix| {
                Matrix::new(8, width, table.numbers[head * 8 * width..(head + 1) * 8 * width].to_vec())
            };
            let scores =
                x.times(&rows(&table(Role::Query)).flipped()).times(&rows(&table(Role::Key)).times(&x.flipped()));
            let mut shares = scores.clone();
            for row in shares.numbers.chunks_exact_mut(scores.columns) {
                let sum: f64 = row.iter().map(|score| (score / 8_f64.sqrt()).exp()).sum();
                for score in row {
                    *score = (*score / 8_f64.sqrt()).exp() / sum;
                }
            }
            (shares, rows(&table(Role::Value)).flipped().times(&rows(&table(Role::Output).flipped())))
        };
        for first in 0..2 {
            for second in 0..2 {
                let (p1, w1) = weights(0, &matrix(&bare.streams[0]), first);
                let (p2, w2) = weights(1, &matrix(&bare.streams[1]), second);
                sum = sum.plus(1.0, &p2.times(&p1).times(&matrix(&bare.streams[0])).times(&w1).times(&w2));
            }
        }
        let apart = sum.plus(-1.0, &matrix(&bare.streams[2]));
        assert!(apart.composite_norm() < 1e-9 * sum.composite_norm());
    }

    #[test]
    fn every_mixer_can_be_looked_at() {
        for name in rung_nn::mixer::NAMES {
            let found = collapse(&sample::<f64>(&format!("{name} {name}")), &InstrumentOptions::default()).unwrap();
            assert!(
                found.bound.is_err() && found.variants.iter().all(|one| one.relative.iter().all(|x| x.is_finite()))
            );
            let counted: f64 = found.paths.iter().map(|path| path.counted).sum();
            assert!((counted - 1.0).abs() < 1e-12, "{name}");
        }
    }
}
