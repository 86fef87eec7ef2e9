//! One linear operator for one input: the contribution of every token at every layer to an answer; contributions sum up to its logit.
//!
//! On one input a network is the linear map `y = T x + b` if attention weights, gates, decays, norms' scales and slopes of activations are
//! frozen at their values. That is exact, not a derivative. The logit of an answer is then a sum of one contribution per token, at any
//! level of the residual stream: the embedding, or after any layer. T is never built: the contributions of all tokens at all levels come
//! from one forward and one backward pass.
//!
//! # What it shows
//!
//! For the answer at the last question: how much of its logit comes from each token, at every level. From level to level the hops are
//! visible. Then, for every token, how much of its last residual stream comes from the embedding of every token (as in the "in + out"
//! read-out of the source: the contribution's component along the output). The contribution of constants and biases is listed separately.
//!
//! # How
//!
//! The first pass records the frozen values; replays apply the same operator to other residual streams. A replay with zeros at a level gives the
//! contribution of the constants after that level. The sum of all contributions is compared with the logit, and the largest difference is
//! printed.
//!
//! # Validation
//!
//! Construction U1 rounds what it reads to bits after every look-up. With frozen slopes the rounded values do not depend on the tokens that
//! were read: all of the logit is at the token that answers, at every level. Trained networks do not round, and the tokens that they read
//! contribute.
//!
//! # What it does not show
//!
//! Attention weights are frozen, so tokens that only decided *where* a query attends contribute nothing. In a product of two factors that
//! both depend on the input, the left one is frozen: the contributions depend on this convention, their sum does not.
//!
//! # Source
//!
//! After the abstract of TensorLens (arXiv 2601.17958); the details were worked out for this project and hold for all its mixers.

use std::fmt::Write as _;

use rung_engine::Scalar;
use rung_nn::ModelError;
use rung_theory::task::NO_TARGET;
use serde::Serialize;

use super::pass::LinearizedPass;
use super::questions::{QuestionLimits, Questions, argmax};
use super::{AnalysisError, AnalysisOptions, AnalysisOutput, layer_names, reject_chain_of_thought};
use rung_figure::Evidence;
use rung_figure::figure::{CellFormat, HeatCell, HeatMap};
use rung_nn::Network;
use rung_theory::task::TokenNames;
use rung_train::parallel;

/// For longer prompts the token-to-token map is not computed.
const MAX_MAP_TOKENS: usize = 1024;

/// The token-to-token map of a longer prompt has a column for each group of tokens instead of each token.
const MAX_MAP_COLUMNS: usize = 64;

/// The chart of levels has at most this many tokens as columns.
const MAX_CHART_TOKENS: usize = 14;

/// The contributions of all tokens to an answer.
#[derive(Clone, Debug, Serialize)]
pub struct Lens {
    /// Name of the network.
    pub name: String,
    /// The task.
    pub task: String,
    /// Position of the token that answers.
    pub position: usize,
    /// The answer's class.
    pub answer: usize,
    /// The answer's logit.
    #[serde(rename = "score")]
    pub logit: f64,
    /// The tokens as text.
    pub tokens: Vec<String>,
    /// Contributions at every level of the residual stream.
    pub levels: Vec<LensLevel>,
    /// Number of consecutive tokens in a column of `token_map`.
    #[serde(rename = "group")]
    pub tokens_per_column: usize,
    /// For every token, the share of its last residual stream that comes from the embeddings of each group of tokens.
    #[serde(rename = "map")]
    pub token_map: Vec<Vec<f64>>,
}

/// The contributions to a logit at one level.
#[derive(Clone, Debug, Serialize)]
pub struct LensLevel {
    /// `embedding`, or the layer before this level.
    pub name: String,
    /// The contribution of every token.
    #[serde(rename = "parts")]
    pub contributions: Vec<f64>,
    /// The contribution of constants and biases after this level.
    pub constants: f64,
    /// Difference between the sum and the logit, relative to the larger of the logit and the largest contribution.
    pub mismatch: f64,
}

/// Computes the contributions on one prompt.
///
/// # Errors
/// The network or the task does not fit.
pub fn lens<S: Scalar>(network: &Network<S>, options: &AnalysisOptions) -> Result<Lens, AnalysisError> {
    reject_chain_of_thought("lens", network)?;
    let questions =
        Questions::sample(network, &AnalysisOptions { prompts: Some(1), ..options.clone() }, QuestionLimits::NONE)?;
    let batch = &questions.batches[0].batch;
    let (width, classes, length) = (network.model.width(), network.model.classes(), batch.tokens_per_row);
    let position = batch.targets.iter().rposition(|target| *target != NO_TARGET).unwrap_or(length - 1);
    let (pass, recorded) = LinearizedPass::record(network, &batch.tokens)?;
    let logits = &recorded.logits[position * classes..(position + 1) * classes];
    let (answer, logit) = (argmax(logits), logits[argmax(logits)].to_f64());
    let gradients = pass.gradients(&recorded, position, answer);
    let mut names = vec!["embedding".to_owned()];
    names.extend(layer_names(&network.plan));
    let mut levels = Vec::new();
    for (level, ((name, residual), gradient)) in names.into_iter().zip(&recorded.residuals).zip(&gradients).enumerate()
    {
        let rows = residual.chunks_exact(width).zip(gradient.chunks_exact(width));
        let contribution = |(x, g): (&[S], &[S])| x.iter().zip(g).map(|(x, g)| x.to_f64() * g.to_f64()).sum::<f64>();
        let contributions: Vec<f64> = rows.map(contribution).collect();
        let (_, logits_of_zeros) = pass.replay(Some((level, vec![S::ZERO; residual.len()])), None)?;
        let constants = logits_of_zeros[position * classes + answer].to_f64();
        let largest = contributions.iter().map(|contribution| contribution.abs()).fold(logit.abs(), f64::max);
        let mismatch = (contributions.iter().sum::<f64>() + constants - logit).abs() / largest.max(f64::MIN_POSITIVE);
        levels.push(LensLevel { name, contributions, constants, mismatch });
    }
    let tokens = questions.token_texts.clone().map_or_else(|| task_token_texts(network, &batch.tokens), Ok)?;
    let token_map =
        if length <= MAX_MAP_TOKENS { token_map(network, &batch.tokens, &recorded.residuals)? } else { Vec::new() };
    let (name, tokens_per_column) = (network.name.clone(), length.div_ceil(MAX_MAP_COLUMNS));
    Ok(Lens { name, task: questions.task, position, answer, logit, tokens, levels, tokens_per_column, token_map })
}

/// The tokens of a task's prompt as text.
fn task_token_texts<S: Scalar>(network: &Network<S>, tokens: &[u32]) -> Result<Vec<String>, ModelError> {
    let words = TokenNames::new(network.task()?);
    Ok(tokens.chunks_exact(network.config.input.field_count()).map(|ids| words.name(ids)).collect())
}

/// For every token, the share of its last residual stream that comes from the embeddings of each group of tokens.
fn token_map<S: Scalar>(
    network: &Network<S>,
    tokens: &[u32],
    residuals: &[Vec<S>],
) -> Result<Vec<Vec<f64>>, ModelError> {
    let width = network.model.width();
    let (first, last) = (&residuals[0], &residuals[residuals.len() - 1]);
    let length = first.len() / width;
    let column_size = length.div_ceil(MAX_MAP_COLUMNS) * width;
    let column_count = first.len().div_ceil(column_size);
    // A recorded pass cannot be sent to another thread, so every thread records its own.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(column_count);
    let thread_indices: Vec<usize> = (0..threads).collect();
    let columns = parallel::map(&thread_indices, |thread| {
        let (pass, _) = LinearizedPass::record(network, tokens)?;
        let (constants, _) = pass.replay(Some((0, vec![S::ZERO; first.len()])), None)?;
        let mut columns = Vec::new();
        for column in (*thread..column_count).step_by(threads) {
            let range = column * column_size..((column + 1) * column_size).min(first.len());
            let mut only_column = vec![S::ZERO; first.len()];
            only_column[range.clone()].copy_from_slice(&first[range]);
            let (output, _) = pass.replay(Some((0, only_column)), None)?;
            let share = |token: usize| {
                let range = token * width..(token + 1) * width;
                let residual = &last[range.clone()];
                let along_residual =
                    |x: &[S]| x.iter().zip(residual).map(|(x, y)| x.to_f64() * y.to_f64()).sum::<f64>();
                let contribution = along_residual(&output[range.clone()]) - along_residual(&constants[range]);
                contribution / along_residual(residual).max(f64::MIN_POSITIVE)
            };
            columns.push((column, (0..length).map(share).collect::<Vec<f64>>()));
        }
        Ok(columns)
    });
    let mut map = vec![vec![0.0; column_count]; length];
    for columns in columns {
        for (column, shares) in columns? {
            map.iter_mut().zip(shares).for_each(|(row, share)| row[column] = share);
        }
    }
    Ok(map)
}

impl Lens {
    /// The largest relative difference between a sum of contributions and the logit.
    pub fn mismatch(&self) -> f64 {
        self.levels.iter().map(|level| level.mismatch).fold(0.0, f64::max)
    }

    /// The tokens with the largest contributions at any level, sorted by position.
    fn chart_tokens(&self) -> Vec<usize> {
        let largest =
            |token: usize| self.levels.iter().map(|level| level.contributions[token].abs()).fold(0.0, f64::max);
        let mut tokens: Vec<usize> = (0..self.tokens.len()).collect();
        tokens.sort_by(|a, b| largest(*b).total_cmp(&largest(*a)).then(a.cmp(b)));
        tokens.truncate(MAX_CHART_TOKENS);
        tokens.sort_unstable();
        tokens
    }

    fn text(&self) -> String {
        let Self { name, task, position, answer, logit, .. } = self;
        let mut text = format!(
            "{name} on {task}: contributions to the logit {logit:.4} of answer {answer} at token {position} (measured)\n\n"
        );
        for level in &self.levels {
            let mut sorted: Vec<(usize, f64)> = level.contributions.iter().copied().enumerate().collect();
            sorted.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0)));
            let largest = sorted.iter().take(4).filter(|(_, contribution)| contribution.abs() > 1e-9);
            let largest = largest.map(|(token, contribution)| format!("{} {contribution:+.3}", self.tokens[*token]));
            let largest = largest.collect::<Vec<_>>().join(", ");
            let _ = writeln!(text, "  {:12} {largest}; constants {:+.3}", level.name, level.constants);
        }
        let _ = writeln!(
            text,
            "\n  contributions and constants sum up to the logit, to within {:.0e} of it",
            self.mismatch()
        );
        text
    }

    /// A heat map of the contributions, a row for each level and a column for each token.
    pub fn chart(&self) -> HeatMap {
        let chart_tokens = self.chart_tokens();
        let scale = self.logit.abs().max(f64::MIN_POSITIVE);
        let mut columns: Vec<String> = chart_tokens.iter().map(|token| self.tokens[*token].clone()).collect();
        columns.extend(["others".to_owned(), "constants".to_owned()]);
        let row = |level: &LensLevel| {
            let others: f64 = level
                .contributions
                .iter()
                .enumerate()
                .filter(|(token, _)| !chart_tokens.contains(token))
                .map(|(_, contribution)| contribution)
                .sum();
            let contributions =
                chart_tokens.iter().map(|token| level.contributions[*token]).chain([others, level.constants]);
            contributions.map(|contribution| HeatCell::new(contribution / scale)).collect()
        };
        let rows: Vec<&str> = self.levels.iter().map(|level| &level.name[..]).collect();
        let cells = self.levels.iter().map(row).collect();
        HeatMap::new(
            format!("Where the answer comes from: {}", self.name),
            ("residual stream after layer", &rows),
            ("token", &columns),
            cells,
        )
        .with_evidence(Evidence::Measured)
        .with_note(format!(
            "Contributions to the logit of answer {} at token {}, one prompt of {}, with frozen gates. Each row sums up to 100%, to within {:.0e}.",
            self.answer,
            self.position,
            self.task,
            self.mismatch()
        ))
    }

    /// A heat map of the token-to-token map; `None` if the prompt is too long.
    pub fn map_chart(&self) -> Option<HeatMap> {
        let names: Vec<String> = (0..self.token_map.len()).map(|position| position.to_string()).collect();
        let columns: Vec<&String> = names.iter().step_by(self.tokens_per_column).collect();
        let as_embedded = match self.tokens_per_column {
            1 => "token as embedded".to_owned(),
            group => format!("{group} tokens as embedded, from this one on"),
        };
        let cells =
            self.token_map.iter().map(|row| row.iter().map(|share| HeatCell::new(share.clamp(-1.0, 1.0))).collect());
        let map = HeatMap::new(
            format!("Contributions of tokens to tokens: {}", self.name),
            ("token after the last layer", &names),
            (&as_embedded, &columns),
            cells.collect(),
        );
        (!self.token_map.is_empty())
            .then(|| HeatMap { format: CellFormat::None, ..map.with_evidence(Evidence::Measured) })
    }
}

/// Runs the analysis.
///
/// # Errors
/// The network or the task does not fit.
pub fn run<S: Scalar>(network: &Network<S>, options: &AnalysisOptions) -> Result<AnalysisOutput, AnalysisError> {
    let lens = lens(network, options)?;
    let mut charts: Vec<Box<dyn rung_figure::figure::Chart>> = vec![Box::new(lens.chart())];
    if let Some(map) = lens.map_chart() {
        charts.push(Box::new(map));
    }
    Ok(AnalysisOutput::new(&lens, lens.text(), charts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::random_network;
    use rung_nn::construct::{ConstructionRequest, build};

    #[test]
    fn contributions_sum_to_the_logit_for_every_mixer_and_later_tokens_contribute_nothing() {
        for name in rung_nn::mixer::NAMES {
            let measured =
                lens(&random_network::<f64>(&format!("{name} full {name}")), &AnalysisOptions::default()).unwrap();
            assert!(measured.mismatch() < 1e-9, "{name}: {}", measured.mismatch());
            for (row, shares) in measured.token_map.iter().enumerate() {
                assert!(
                    shares[row + 1..].iter().all(|share| *share == 0.0),
                    "{name}: token {row} is made of later ones"
                );
            }
            let in_f32 =
                lens(&random_network::<f32>(&format!("{name} full {name}")), &AnalysisOptions::default()).unwrap();
            assert!(in_f32.mismatch() < 1e-4, "{name} in single precision: {}", in_f32.mismatch());
        }
    }

    #[test]
    fn contributions_from_gradients_agree_with_those_from_replays() {
        let network = random_network::<f64>("gdn full");
        let measured = lens(&network, &AnalysisOptions::default()).unwrap();
        let questions = Questions::sample(
            &network,
            &AnalysisOptions { prompts: Some(1), ..AnalysisOptions::default() },
            QuestionLimits::NONE,
        )
        .unwrap();
        let tokens = &questions.batches[0].batch.tokens;
        let (pass, recorded) = LinearizedPass::record(&network, tokens).unwrap();
        let (width, classes) = (network.model.width(), network.model.classes());
        for (level, expected) in measured.levels.iter().enumerate() {
            for token in [0, 3, measured.position] {
                let mut only_token = vec![0.0; recorded.residuals[level].len()];
                let row = token * width..(token + 1) * width;
                only_token[row.clone()].copy_from_slice(&recorded.residuals[level][row]);
                let (_, logits) = pass.replay(Some((level, only_token)), None).unwrap();
                let contribution = logits[measured.position * classes + measured.answer] - expected.constants;
                assert!((contribution - expected.contributions[token]).abs() < 1e-9, "level {level}, token {token}");
            }
        }
    }

    #[test]
    fn in_u1_only_the_answering_token_contributes() {
        let network = build::<f64>("U1", &ConstructionRequest::default()).unwrap();
        let measured = lens(&network, &AnalysisOptions::default()).unwrap();
        assert!(measured.mismatch() < 1e-9);
        for level in &measured.levels {
            let others = level.contributions.iter().enumerate().filter(|(token, _)| *token != measured.position);
            let largest = others.map(|(_, contribution)| contribution.abs()).fold(0.0, f64::max);
            assert!(largest < 1e-6 * measured.logit.abs(), "{}: {largest}", level.name);
        }
    }
}
