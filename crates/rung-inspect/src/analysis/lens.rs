//! One linear operator for one input: which token, at which layer, an answer is made of, with parts that sum up to it.
//!
//! On one input a network is read as `y = T x + b` by holding still what steers it: attention weights, gates, decays, norms'
//! scales, slopes of activations. That is exact, not a derivative. The score of an answer is then a sum with one part for every
//! token, at any level of the stream: as embedded, or after any layer. The operator is never built: parts of all tokens at all
//! levels come from one pass forward and one back.
//!
//! # What it shows
//!
//! For the answer at the last question: how much of its score comes from each token, at every level; going down the levels one
//! sees the hops. Then, for every token, how much of its last stream comes from every token as embedded (both as the
//! "in + out" read-out of the source: the part's component along the output). What no token contributes, because it comes from
//! constants and biases, is listed by itself.
//!
//! # How
//!
//! The first pass records what is held still; replays feed other streams into the same operator. A replay with zeros at a level
//! gives what constants contribute from there on. The sum of all parts is compared with the score itself, and the largest
//! difference is printed.
//!
//! # Known answer
//!
//! Construction U1 snaps what it reads to bits after every look-up, so with gates held still nothing that was read has a part: all of
//! the score is at the token that answers, at every level. Networks that were trained do not snap, and show what they read.
//!
//! # What it does not show
//!
//! What steers is held still, so the tokens by which a query *found* what it reads have no part in it. Where two factors both
//! depend on the input, the left one is held still: the parts depend on this convention, their sum does not.
//!
//! # Source
//!
//! After TensorLens (arXiv 2601.17958), as far as its abstract tells; the rest is worked out here. For any mixer of the project.

use std::fmt::Write as _;

use rung_engine::Scalar;
use rung_nn::ModelError;
use rung_theory::task::NO_TARGET;
use serde::Serialize;

use super::pass::LinearizedPass;
use super::questions::{Questions, best};
use super::{AnalysisError, Finding, InstrumentOptions, layer_names, require_one_pass};
use rung_figure::Evidence;
use rung_figure::figure::{CellFormat, HeatCell, HeatMap};
use rung_nn::Network;
use rung_theory::task::TokenNames;
use rung_train::parallel;

/// The most tokens for which parts of all tokens in every token are worked out.
const MOST_MAPPED: usize = 1024;

/// The most parts of every token: longer texts are taken apart into groups of tokens.
const MOST_COLUMNS: usize = 64;

/// The most tokens that the picture of levels names.
const MOST_SHOWN: usize = 14;

/// An answer and its parts.
#[derive(Clone, Debug, Serialize)]
pub struct Lens {
    /// The network.
    pub name: String,
    /// The task.
    pub task: String,
    /// The token that answers.
    pub position: usize,
    /// The answer.
    pub answer: usize,
    /// Its score.
    pub score: f64,
    /// What tokens say.
    pub tokens: Vec<String>,
    /// The levels of the stream.
    pub levels: Vec<LensLevel>,
    /// Tokens of a group in `map`, one after another.
    pub group: usize,
    /// For every token, the share of its last stream that comes from every group of tokens as embedded.
    pub map: Vec<Vec<f64>>,
}

/// The parts of a score at one level.
#[derive(Clone, Debug, Serialize)]
pub struct LensLevel {
    /// `embedding`, or the layer that it is after.
    pub name: String,
    /// The part of every token.
    pub parts: Vec<f64>,
    /// The part of constants from here on.
    pub constants: f64,
    /// How far the sum is from the score, relative to the larger of the score and the largest part.
    pub mismatch: f64,
}

/// Takes one prompt apart.
///
/// # Errors
/// The network or the task does not fit.
pub fn lens<S: Scalar>(network: &Network<S>, options: &InstrumentOptions) -> Result<Lens, AnalysisError> {
    require_one_pass("lens", network)?;
    let questions = Questions::draw(network, &InstrumentOptions { prompts: Some(1), ..options.clone() }, (1, 1))?;
    let batch = &questions.batches[0].batch;
    let (width, classes, length) = (network.model.width(), network.model.classes(), batch.length);
    let position = batch.targets.iter().rposition(|target| *target != NO_TARGET).unwrap_or(length - 1);
    let (pass, recorded) = LinearizedPass::record(network, &batch.tokens)?;
    let scores = &recorded.values[position * classes..(position + 1) * classes];
    let (answer, score) = (best(scores), scores[best(scores)].to_f64());
    let gradients = pass.back(&recorded, position, answer);
    let mut names = vec!["embedding".to_owned()];
    names.extend(layer_names(&network.plan));
    let mut levels = Vec::new();
    for (level, ((name, stream), gradient)) in names.into_iter().zip(&recorded.streams).zip(&gradients).enumerate() {
        let rows = stream.chunks_exact(width).zip(gradient.chunks_exact(width));
        let part = |(x, g): (&[S], &[S])| x.iter().zip(g).map(|(x, g)| x.to_f64() * g.to_f64()).sum::<f64>();
        let parts: Vec<f64> = rows.map(part).collect();
        let (_, without) = pass.replay(Some((level, vec![S::ZERO; stream.len()])), None)?;
        let constants = without[position * classes + answer].to_f64();
        let largest = parts.iter().map(|part| part.abs()).fold(score.abs(), f64::max);
        let mismatch = (parts.iter().sum::<f64>() + constants - score).abs() / largest.max(f64::MIN_POSITIVE);
        levels.push(LensLevel { name, parts, constants, mismatch });
    }
    let tokens = questions.words.clone().map_or_else(|| task_words(network, &batch.tokens), Ok)?;
    let map = if length <= MOST_MAPPED { map(network, &batch.tokens, &recorded.streams)? } else { Vec::new() };
    let (name, group) = (network.name.clone(), length.div_ceil(MOST_COLUMNS));
    Ok(Lens { name, task: questions.task, position, answer, score, tokens, levels, group, map })
}

/// What the tokens of a task's prompt say.
fn task_words<S: Scalar>(network: &Network<S>, tokens: &[u32]) -> Result<Vec<String>, ModelError> {
    let words = TokenNames::new(network.task()?);
    Ok(tokens.chunks_exact(network.config.input.fields()).map(|ids| words.name(ids)).collect())
}

/// For every token, the share of its last stream that comes from every group of tokens as embedded.
fn map<S: Scalar>(network: &Network<S>, tokens: &[u32], streams: &[Vec<S>]) -> Result<Vec<Vec<f64>>, ModelError> {
    let width = network.model.width();
    let (first, last) = (&streams[0], &streams[streams.len() - 1]);
    let length = first.len() / width;
    let group = length.div_ceil(MOST_COLUMNS) * width;
    let groups = first.len().div_ceil(group);
    // One pass for each thread: a pass belongs to the thread that recorded it.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(groups);
    let shifts: Vec<usize> = (0..threads).collect();
    let columns = parallel::map(&shifts, |shift| {
        let (pass, _) = LinearizedPass::record(network, tokens)?;
        let (constants, _) = pass.replay(Some((0, vec![S::ZERO; first.len()])), None)?;
        let mut columns = Vec::new();
        for column in (*shift..groups).step_by(threads) {
            let range = column * group..((column + 1) * group).min(first.len());
            let mut alone = vec![S::ZERO; first.len()];
            alone[range.clone()].copy_from_slice(&first[range]);
            let (out, _) = pass.replay(Some((0, alone)), None)?;
            let row = |at: usize| {
                let range = at * width..(at + 1) * width;
                let whole = &last[range.clone()];
                let onto = |x: &[S]| x.iter().zip(whole).map(|(x, y)| x.to_f64() * y.to_f64()).sum::<f64>();
                (onto(&out[range.clone()]) - onto(&constants[range])) / onto(whole).max(f64::MIN_POSITIVE)
            };
            columns.push((column, (0..length).map(row).collect::<Vec<f64>>()));
        }
        Ok(columns)
    });
    let mut map = vec![vec![0.0; groups]; length];
    for columns in columns {
        for (column, shares) in columns? {
            map.iter_mut().zip(shares).for_each(|(row, share)| row[column] = share);
        }
    }
    Ok(map)
}

impl Lens {
    /// The largest difference between a sum of parts and the score.
    pub fn mismatch(&self) -> f64 {
        self.levels.iter().map(|level| level.mismatch).fold(0.0, f64::max)
    }

    /// The tokens with the largest parts at any level, in their order.
    fn shown(&self) -> Vec<usize> {
        let largest = |token: usize| self.levels.iter().map(|level| level.parts[token].abs()).fold(0.0, f64::max);
        let mut tokens: Vec<usize> = (0..self.tokens.len()).collect();
        tokens.sort_by(|a, b| largest(*b).total_cmp(&largest(*a)).then(a.cmp(b)));
        tokens.truncate(MOST_SHOWN);
        tokens.sort_unstable();
        tokens
    }

    fn text(&self) -> String {
        let Self { name, task, position, answer, score, .. } = self;
        let mut text = format!(
            "{name} on {task}: the score {score:.4} of answer {answer} at token {position}, in parts (measured)\n\n"
        );
        for level in &self.levels {
            let mut parts: Vec<(usize, f64)> = level.parts.iter().copied().enumerate().collect();
            parts.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0)));
            let largest = parts.iter().take(4).filter(|(_, part)| part.abs() > 1e-9);
            let largest = largest.map(|(token, part)| format!("{} {part:+.3}", self.tokens[*token]));
            let shown = largest.collect::<Vec<_>>().join(", ");
            let _ = writeln!(text, "  {:12} {shown}; constants {:+.3}", level.name, level.constants);
        }
        let _ = writeln!(text, "\n  parts and constants sum up to the score, to within {:.0e} of it", self.mismatch());
        text
    }

    /// The parts of the answer at every level.
    pub fn chart(&self) -> HeatMap {
        let shown = self.shown();
        let scale = self.score.abs().max(f64::MIN_POSITIVE);
        let mut columns: Vec<String> = shown.iter().map(|token| self.tokens[*token].clone()).collect();
        columns.extend(["others".to_owned(), "constants".to_owned()]);
        let row = |level: &LensLevel| {
            let others: f64 =
                level.parts.iter().enumerate().filter(|(at, _)| !shown.contains(at)).map(|(_, part)| part).sum();
            let parts = shown.iter().map(|token| level.parts[*token]).chain([others, level.constants]);
            parts.map(|part| HeatCell::new(part / scale)).collect()
        };
        let rows: Vec<&str> = self.levels.iter().map(|level| &level.name[..]).collect();
        let cells = self.levels.iter().map(row).collect();
        HeatMap::new(
            format!("Where the answer comes from: {}", self.name),
            ("stream after layer", &rows),
            ("token", &columns),
            cells,
        )
        .known(Evidence::Measured)
        .noted(format!(
            "Parts of the score of answer {} at token {}, one prompt of {}, gates held still. Each row sums up to 100%, to within {:.0e}.",
            self.answer,
            self.position,
            self.task,
            self.mismatch()
        ))
    }

    /// Every token in every token; none if there are too many.
    pub fn map_chart(&self) -> Option<HeatMap> {
        let names: Vec<String> = (0..self.map.len()).map(|at| at.to_string()).collect();
        let columns: Vec<&String> = names.iter().step_by(self.group).collect();
        let as_embedded = match self.group {
            1 => "token as embedded".to_owned(),
            group => format!("{group} tokens as embedded, from this one on"),
        };
        let cells = self.map.iter().map(|row| row.iter().map(|share| HeatCell::new(share.clamp(-1.0, 1.0))).collect());
        let map = HeatMap::new(
            format!("What every token is made of: {}", self.name),
            ("token after the last layer", &names),
            (&as_embedded, &columns),
            cells.collect(),
        );
        (!self.map.is_empty()).then(|| HeatMap { letters: CellFormat::None, ..map.known(Evidence::Measured) })
    }
}

/// Runs it.
///
/// # Errors
/// The network or the task does not fit.
pub fn find<S: Scalar>(network: &Network<S>, options: &InstrumentOptions) -> Result<Finding, AnalysisError> {
    let found = lens(network, options)?;
    let mut charts: Vec<Box<dyn rung_figure::figure::Chart>> = vec![Box::new(found.chart())];
    if let Some(map) = found.map_chart() {
        charts.push(Box::new(map));
    }
    Ok(Finding::of(&found, found.text(), charts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::sample;
    use rung_nn::construct::{ConstructionRequest, build};

    #[test]
    fn parts_sum_up_at_every_level_for_every_mixer() {
        for name in rung_nn::mixer::NAMES {
            let found = lens(&sample::<f64>(&format!("{name} full {name}")), &InstrumentOptions::default()).unwrap();
            assert!(found.mismatch() < 1e-9, "{name}: {}", found.mismatch());
            for (row, shares) in found.map.iter().enumerate() {
                assert!(
                    shares[row + 1..].iter().all(|share| *share == 0.0),
                    "{name}: token {row} is made of later ones"
                );
            }
            let single = lens(&sample::<f32>(&format!("{name} full {name}")), &InstrumentOptions::default()).unwrap();
            assert!(single.mismatch() < 1e-4, "{name} in single precision: {}", single.mismatch());
        }
    }

    #[test]
    fn going_back_finds_what_going_forward_finds() {
        let network = sample::<f64>("gdn full");
        let found = lens(&network, &InstrumentOptions::default()).unwrap();
        let questions =
            Questions::draw(&network, &InstrumentOptions { prompts: Some(1), ..InstrumentOptions::default() }, (1, 1))
                .unwrap();
        let tokens = &questions.batches[0].batch.tokens;
        let (pass, recorded) = LinearizedPass::record(&network, tokens).unwrap();
        let (width, classes) = (network.model.width(), network.model.classes());
        for (level, expected) in found.levels.iter().enumerate() {
            for token in [0, 3, found.position] {
                let mut alone = vec![0.0; recorded.streams[level].len()];
                let row = token * width..(token + 1) * width;
                alone[row.clone()].copy_from_slice(&recorded.streams[level][row]);
                let (_, scores) = pass.replay(Some((level, alone)), None).unwrap();
                let part = scores[found.position * classes + found.answer] - expected.constants;
                assert!((part - expected.parts[token]).abs() < 1e-9, "level {level}, token {token}");
            }
        }
    }

    #[test]
    fn u1_snaps_what_it_reads_so_that_nothing_else_has_a_part() {
        let network = build::<f64>("U1", &ConstructionRequest::default()).unwrap();
        let found = lens(&network, &InstrumentOptions::default()).unwrap();
        assert!(found.mismatch() < 1e-9);
        for level in &found.levels {
            let others = level.parts.iter().enumerate().filter(|(at, _)| *at != found.position);
            let largest = others.map(|(_, part)| part.abs()).fold(0.0, f64::max);
            assert!(largest < 1e-6 * found.score.abs(), "{}: {largest}", level.name);
        }
    }
}
