//! Rank collapse: whether the residual streams of all tokens become the same, layer by layer, for every mixer.
//!
//! A mixer that only averages makes tokens more alike: the residual stream of all tokens, as a matrix with a row per token, tends to a
//! matrix of rank one. Skip connections and feed-forward networks work against it. The deviation is the residual stream minus its mean
//! over tokens; the paper calls it the residual.
//!
//! # What it shows
//!
//! - The relative deviation `|X - 1 x'| / |X|` after every layer, x being the mean token: for the intact stack, without
//!   feed-forward networks, without skips around mixers, and without both. The norm is the composite norm, the root of the largest row sum times
//!   the largest column sum of absolute values.
//! - Paths: in every layer the residual stream goes through a mixer or through the skip around it, so the last residual stream is a
//!   sum over paths. Paths are grouped by the number of mixers they go through. The number of paths of each length is counted; the size of their sum is measured
//!   with frozen gates and attention weights. The sums add up to the residual stream exactly.
//! - Products of attention matrices along random paths of heads: their distance from rank one after every layer.
//! - The published bound on the deviation of attention without skips and feed-forward networks, where it applies: bidirectional softmax
//!   attention without norms and positions. For causal attention and for other mixers there is none here.
//!
//! # Validation
//!
//! Without skips and feed-forward networks, bidirectional attention collapses doubly exponentially; with skips it does not.
//!
//! # Source
//!
//! Dong, Cordonnier and Loukas, *Attention is not all you need: pure attention loses rank doubly exponentially with depth*
//! (arXiv 2103.03404). Mixers other than softmax attention, and sizes of paths with frozen gates, are additions of this project.

use std::fmt::Write as _;

use rung_engine::{Native, Ops, Parameters, Role, Scalar, Tensor};
use rung_nn::model::names;
use rung_nn::{Hooks, ModelError, NormConfig, Positions};
use serde::Serialize;

use super::matrix::Matrix;
use super::paths::{self, PathLength, head_count};
use super::questions::{QuestionLimits, Questions};
use super::{AnalysisError, AnalysisOptions, AnalysisOutput, layer_names};
use rung_figure::figure::{AxisSpec, Chart, LineChart, Point, Scale, Series};
use rung_nn::Network;

/// Default number of prompts; deviations are means over them.
const PROMPTS: usize = 4;

/// Paths of deeper stacks are not separated by length, since the interpolation would lose too much precision.
const MAX_PATH_LAYERS: usize = 16;

/// How similar the residual streams of all tokens are, layer by layer.
#[derive(Clone, Debug, Serialize)]
pub struct Collapse {
    /// Name of the network.
    pub name: String,
    /// The task.
    pub task: String,
    /// Names of the levels of the residual stream: the embedding, then every layer.
    pub levels: Vec<String>,
    /// The intact stack, without feed-forward networks, without skips, without both.
    pub variants: Vec<StackVariant>,
    /// Paths by the number of mixers they go through; empty for very deep stacks.
    pub paths: Vec<PathLength>,
    /// Distance from rank one of products of attention matrices along paths of heads, after every layer; empty where a mixer has no such
    /// matrix.
    pub products: Vec<f64>,
    /// Decimal logarithms of the published bound on the deviation without skips and feed-forward networks, at every level; or why there is none.
    pub bound: Result<Vec<f64>, String>,
}

/// The deviations of a stack without some of its parts.
#[derive(Clone, Debug, Serialize)]
pub struct StackVariant {
    /// `as it is`, or the missing parts.
    pub name: &'static str,
    /// The relative deviation at every level, mean over prompts.
    #[serde(rename = "relative")]
    pub relative_deviation: Vec<f64>,
    /// The absolute deviation at every level, maximum over prompts.
    #[serde(rename = "residual")]
    pub deviation: Vec<f64>,
}

/// Which parts a variant of the stack has.
#[derive(Clone, Copy)]
struct StackParts {
    name: &'static str,
    skips: bool,
    feed_forward: bool,
}

const VARIANTS: [StackParts; 4] = [
    StackParts { name: "as it is", skips: true, feed_forward: true },
    StackParts { name: "without feed-forward", skips: true, feed_forward: false },
    StackParts { name: "without skips", skips: false, feed_forward: true },
    StackParts { name: "without both", skips: false, feed_forward: false },
];

/// Index in [`VARIANTS`] of the stack that the published bound is about.
const WITHOUT_BOTH: usize = 3;

/// Hooks that switch off skips or feed-forward networks and store the residual streams.
struct ReducedPass {
    skips: bool,
    feed_forward: bool,
    residuals: Vec<Vec<f64>>,
}

impl<S: Scalar> Hooks<Native<S>> for ReducedPass {
    fn residual(&mut self, ops: &Native<S>, _: usize, x: Tensor<S>) -> Tensor<S> {
        self.residuals.push(ops.values(&x).into_iter().map(Scalar::to_f64).collect());
        x
    }

    fn adds_residual(&self) -> bool {
        self.skips
    }

    fn runs_feed_forward(&self) -> bool {
        self.feed_forward
    }
}

/// Measures how similar tokens become.
///
/// # Errors
/// The network or the task does not fit.
pub fn collapse<S: Scalar>(network: &Network<S>, options: &AnalysisOptions) -> Result<Collapse, AnalysisError> {
    let options = AnalysisOptions { prompts: Some(options.prompts.unwrap_or(PROMPTS)), ..options.clone() };
    let questions = Questions::sample(network, &options, QuestionLimits::NONE)?;
    let prompts: Vec<&[u32]> = questions
        .batches
        .iter()
        .flat_map(|question_batch| question_batch.batch.tokens.chunks_exact(question_batch.batch.ids_per_row))
        .collect();
    let variants = VARIANTS.iter().map(|variant| measure_deviations(network, *variant, &prompts));
    let variants = variants.collect::<Result<Vec<_>, _>>()?;
    let bound = deviation_bound(network).map(|bound| {
        let initial_log10 = variants[WITHOUT_BOTH].deviation[0].log10();
        (0..=network.model.depth()).map(|depth| bound.log10_after(depth, initial_log10)).collect()
    });
    let mut levels = vec!["embedding".to_owned()];
    levels.extend(layer_names(&network.plan));
    let paths = if network.model.depth() <= MAX_PATH_LAYERS {
        paths::paths_by_length(network, prompts[0])?
    } else {
        Vec::new()
    };
    let products = paths::attention_product_distances(network, prompts[0], options.seed)?;
    Ok(Collapse { name: network.name.clone(), task: questions.task.clone(), levels, variants, paths, products, bound })
}

fn measure_deviations<S: Scalar>(
    network: &Network<S>,
    StackParts { name, skips, feed_forward }: StackParts,
    prompts: &[&[u32]],
) -> Result<StackVariant, ModelError> {
    let levels = network.model.depth() + 1;
    let (mut relative_deviation, mut deviation) = (vec![0.0; levels], vec![0.0_f64; levels]);
    for tokens in prompts {
        let ops = Native::new();
        ops.bind_frozen(&network.weights);
        let mut hooks = ReducedPass { skips, feed_forward, residuals: Vec::new() };
        network.model.forward_with_hooks(&ops, tokens, 1, &mut hooks)?;
        for (level, residual) in hooks.residuals.into_iter().enumerate() {
            let width = network.model.width();
            let matrix = Matrix::new(residual.len() / width, width, residual);
            let (deviation_norm, norm) = (matrix.subtract_mean_row().composite_norm(), matrix.composite_norm());
            relative_deviation[level] += deviation_norm / norm.max(f64::MIN_POSITIVE) / prompts.len() as f64;
            deviation[level] = deviation[level].max(deviation_norm);
        }
    }
    Ok(StackVariant { name, relative_deviation, deviation })
}

/// The published bound: `(4 beta H / sqrt d)^((3^L - 1) / 2) |res X|^(3^L)`, for L layers of H heads with d channels, `res X` the
/// deviation of the embedding, and beta the largest product of the norms of a head's query-key and value-output matrices.
struct DeviationBound {
    /// Decimal logarithm of `4 beta H / sqrt d`.
    log10_base: f64,
}

impl DeviationBound {
    /// The bound's decimal logarithm after `depth` layers, from the decimal logarithm of the deviation of the embedding.
    fn log10_after(&self, depth: usize, initial_log10: f64) -> f64 {
        let power = 3_f64.powf(depth as f64);
        (power - 1.0) / 2.0 * self.log10_base + power * initial_log10
    }
}

/// The bound of a network, or why there is none.
fn deviation_bound<S: Scalar>(network: &Network<S>) -> Result<DeviationBound, String> {
    let config = &network.config;
    if config.causal {
        return Err("the theorem is for bidirectional attention; this network is causal".to_owned());
    }
    if config.norm != NormConfig::None || !matches!(config.positions, Positions::None) {
        return Err("the theorem is for attention without norms and positions".to_owned());
    }
    let (mut beta, mut base) = (0.0_f64, 0.0_f64);
    for (index, layer) in network.plan.layers.iter().enumerate() {
        let [mixer] = &layer.mixers[..] else { return Err("a layer has several mixers side by side".to_owned()) };
        if !mixer.facts().looks_up || mixer.number("conv") != Some(0) {
            return Err(format!("no bound is known here for {mixer}"));
        }
        let (heads, kv_heads) =
            (head_count(mixer) as usize, mixer.facts().attention.map_or(1, |heads| heads.kv_heads as usize));
        let projection = |role: Role| weight_matrix(&network.weights, index, role);
        let (Some(query), Some(key), Some(value), Some(output)) =
            (projection(Role::Query), projection(Role::Key), projection(Role::Value), projection(Role::Output))
        else {
            return Err("attention shares the cache of another layer".to_owned());
        };
        let head_dim = query.rows / heads;
        for head in 0..heads {
            let kv_head = head * kv_heads / heads;
            let rows_of_head = |matrix: &Matrix, head: usize, heads: usize| {
                let size = matrix.rows / heads;
                let range = head * size * matrix.columns..(head + 1) * size * matrix.columns;
                Matrix::new(size, matrix.columns, matrix.entries[range].to_vec())
            };
            let query_key =
                rows_of_head(&query, head, heads).transposed().matmul(&rows_of_head(&key, kv_head, kv_heads));
            let output = rows_of_head(&output.transposed(), head, heads);
            let value_output = rows_of_head(&value, kv_head, kv_heads).transposed().matmul(&output);
            beta = beta.max(query_key.column_norm() * value_output.composite_norm());
        }
        base = base.max(4.0 * heads as f64 / (head_dim as f64).sqrt());
    }
    Ok(DeviationBound { log10_base: (base * beta).log10() })
}

/// The projection of a layer's only mixer with this role.
fn weight_matrix<S: Scalar>(weights: &Parameters<S>, layer: usize, role: Role) -> Option<Matrix> {
    let id = weights.find_role(&names::mixer(layer, 0, 1), role)?;
    let [rows, columns] = weights.entry(id).shape[..] else { return None };
    Some(Matrix::new(rows, columns, weights.get(id).iter().map(|value| value.to_f64()).collect()))
}

impl Collapse {
    fn text(&self) -> String {
        let mut text = format!("{} on {}: differences between tokens (measured)\n\n", self.name, self.task);
        let widest = self.levels.iter().map(String::len).max().unwrap_or(0).max(10);
        let _ = write!(text, "  {:widest$}", "deviation");
        for variant in &self.variants {
            let _ = write!(text, "{:>24}", variant.name);
        }
        text += if self.products.is_empty() { "\n" } else { "   attention products\n" };
        for (level, name) in self.levels.iter().enumerate() {
            let _ = write!(text, "  {name:widest$}");
            for variant in &self.variants {
                let _ = write!(text, "{:>24.2e}", variant.relative_deviation[level]);
            }
            if let Some(product) = level.checked_sub(1).and_then(|layer| self.products.get(layer)) {
                let _ = write!(text, "{product:>22.2e}");
            }
            text += "\n";
        }
        if !self.paths.is_empty() {
            text += "\n  mixers passed   share of paths   size of their sum\n";
            for path in &self.paths {
                let _ = writeln!(
                    text,
                    "  {:>13}   {:>13.1}%   {:>17.3}",
                    path.mixers,
                    100.0 * path.share_of_paths,
                    path.relative_norm
                );
            }
        }
        text += "\n";
        match &self.bound {
            Ok(bound) => {
                let last = self.levels.len() - 1;
                let deviation = self.variants[WITHOUT_BOTH].deviation[last];
                let _ = writeln!(
                    text,
                    "  without both: deviation {deviation:.2e}; the published bound is 10^{:.1}",
                    bound[last]
                );
            }
            Err(reason) => {
                let _ = writeln!(text, "  no bound: {reason}");
            }
        }
        text
    }

    /// Relative deviations layer by layer.
    pub fn chart(&self) -> LineChart {
        let mut chart = LineChart::new(
            format!("Differences between tokens (measured): {}", self.name),
            AxisSpec::new("layers", Scale::Integer),
            AxisSpec::new("relative deviation from the mean token", Scale::Log10),
        );
        let points = |values: &[f64], first: usize| {
            let point = |(index, value): (usize, &f64)| Point::new((index + first) as f64, *value);
            values.iter().enumerate().map(point).collect::<Vec<_>>()
        };
        for variant in &self.variants {
            chart = chart.series(Series::line_and_points(variant.name, points(&variant.relative_deviation, 0)));
        }
        if !self.products.is_empty() {
            chart = chart.series(Series::line("products of attention matrices", points(&self.products, 1)));
        }
        chart
    }

    /// Paths by length.
    pub fn path_chart(&self) -> Option<LineChart> {
        let points = |value: fn(&PathLength) -> f64| {
            self.paths.iter().map(|path| Point::new(path.mixers as f64, value(path))).collect::<Vec<_>>()
        };
        let chart = LineChart::new(
            format!("Paths by the number of mixers they go through: {}", self.name),
            AxisSpec::new("mixers passed", Scale::Integer),
            AxisSpec::new("share", Scale::Linear),
        )
        .series(Series::line_and_points("share of all paths, counted", points(|path| path.share_of_paths)))
        .series(Series::line_and_points(
            "size of their sum over the residual stream's, measured",
            points(|path| path.relative_norm),
        ));
        (!self.paths.is_empty()).then_some(chart)
    }
}

/// Runs the analysis.
///
/// # Errors
/// The network or the task does not fit.
pub fn run<S: Scalar>(network: &Network<S>, options: &AnalysisOptions) -> Result<AnalysisOutput, AnalysisError> {
    let collapse = collapse(network, options)?;
    let mut charts: Vec<Box<dyn Chart>> = vec![Box::new(collapse.chart())];
    if let Some(chart) = collapse.path_chart() {
        charts.push(Box::new(chart));
    }
    Ok(AnalysisOutput::new(&collapse, collapse.text(), charts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{random_network, random_network_with};
    use rung_nn::{FeedForwardConfig, ModelConfig};

    /// Bidirectional attention without norms and feed-forward networks.
    fn attention_only(stack: &str, init_std: f64) -> Network<f64> {
        random_network_with(stack, |config| ModelConfig {
            causal: false,
            norm: NormConfig::None,
            feed_forward: FeedForwardConfig::None,
            init_std,
            init_key_from_query: false,
            ..config
        })
    }

    #[test]
    fn attention_without_skips_collapses_below_its_bound_and_with_skips_does_not() {
        let measured = collapse(&attention_only("full full full", 0.05), &AnalysisOptions::default()).unwrap();
        let [intact, _, _, without_both] = &measured.variants[..] else { panic!("four variants") };
        assert!(
            without_both.relative_deviation.windows(2).all(|pair| pair[1] < 0.2 * pair[0] || pair[1] < 1e-12),
            "{:?}",
            without_both.relative_deviation
        );
        assert!(intact.relative_deviation.iter().all(|deviation| *deviation > 0.5), "{:?}", intact.relative_deviation);
        let bound = measured.bound.unwrap();
        for (deviation, bound) in without_both.deviation.iter().zip(bound).skip(1) {
            assert!(deviation.log10() <= bound, "{deviation} above 10^{bound}");
        }
        assert!(measured.products.windows(2).all(|pair| pair[1] < pair[0]), "{:?}", measured.products);
    }

    #[test]
    fn attention_without_skips_is_the_sum_over_paths_of_heads() {
        // Computed here for two layers of two heads: the sum over (h1, h2) of P_h2 P_h1 X W_h1 W_h2, where P_h is the attention matrix
        // and W_h the value times the output projection of head h.
        let network = attention_only("full full", 0.3);
        let questions = Questions::sample(
            &network,
            &AnalysisOptions { prompts: Some(1), ..AnalysisOptions::default() },
            QuestionLimits::NONE,
        )
        .unwrap();
        let tokens = &questions.batches[0].batch.tokens;
        let ops = Native::new();
        ops.bind_frozen(&network.weights);
        let mut hooks = ReducedPass { skips: false, feed_forward: false, residuals: Vec::new() };
        network.model.forward_with_hooks(&ops, tokens, 1, &mut hooks).unwrap();
        let width = network.model.width();
        let to_matrix = |residual: &Vec<f64>| Matrix::new(residual.len() / width, width, residual.clone());
        let mut sum = Matrix::zeros(hooks.residuals[0].len() / width, width);
        let head_matrices = |layer: usize, x: &Matrix, head: usize| {
            let projection = |role: Role| weight_matrix(&network.weights, layer, role).unwrap();
            let rows_of_head = |matrix: &Matrix| {
                Matrix::new(8, width, matrix.entries[head * 8 * width..(head + 1) * 8 * width].to_vec())
            };
            let queries = x.matmul(&rows_of_head(&projection(Role::Query)).transposed());
            let scores = queries.matmul(&rows_of_head(&projection(Role::Key)).matmul(&x.transposed()));
            let mut attention = scores.clone();
            for row in attention.entries.chunks_exact_mut(scores.columns) {
                let sum: f64 = row.iter().map(|score| (score / 8_f64.sqrt()).exp()).sum();
                for score in row {
                    *score = (*score / 8_f64.sqrt()).exp() / sum;
                }
            }
            let value = rows_of_head(&projection(Role::Value)).transposed();
            (attention, value.matmul(&rows_of_head(&projection(Role::Output).transposed())))
        };
        for first in 0..2 {
            for second in 0..2 {
                let (attention1, value_output1) = head_matrices(0, &to_matrix(&hooks.residuals[0]), first);
                let (attention2, value_output2) = head_matrices(1, &to_matrix(&hooks.residuals[1]), second);
                sum = sum.add_scaled(
                    1.0,
                    &attention2
                        .matmul(&attention1)
                        .matmul(&to_matrix(&hooks.residuals[0]))
                        .matmul(&value_output1)
                        .matmul(&value_output2),
                );
            }
        }
        let difference = sum.add_scaled(-1.0, &to_matrix(&hooks.residuals[2]));
        assert!(difference.composite_norm() < 1e-9 * sum.composite_norm());
    }

    #[test]
    fn collapse_is_measured_for_every_mixer() {
        for name in rung_nn::mixer::NAMES {
            let network = random_network::<f64>(&format!("{name} {name}"));
            let measured = collapse(&network, &AnalysisOptions::default()).unwrap();
            let mut deviations = measured.variants.iter().flat_map(|variant| &variant.relative_deviation);
            assert!(measured.bound.is_err() && deviations.all(|deviation| deviation.is_finite()));
            let total_share: f64 = measured.paths.iter().map(|path| path.share_of_paths).sum();
            assert!((total_share - 1.0).abs() < 1e-12, "{name}");
        }
    }
}
