//! Which layer climbs which rung: linear probes of the numbers on the way to an answer, at every layer.
//!
//! A question of L hops has L numbers on its way, `i_1 .. i_L`. At the token that answers, and at every level of the stream (as
//! embedded, then after each layer), a linear classifier is fitted for each of them on some prompts and tried on others. The first
//! level at which it is right is where the stack has climbed that rung.
//!
//! # What it shows
//!
//! The share of right answers of each probe on prompts it was not fitted on, beside the share that a guess would have. A frame marks
//! the first level that reaches 90%. Tasks other than function composition have one number, the answer.
//!
//! # How
//!
//! Linear discriminants, in closed form and in double precision: the mean of every class, the spread within classes common to all, with
//! a ridge. Features are centred and scaled. Half of the questions fit, half test. Questions that ask for fewer hops are left out for the numbers beyond.
//!
//! # Known answer
//!
//! In construction U1 layer 0 reads z_0 and layer l looks up z_l: `i_l` appears after layer l and not before.
//!
//! # What it does not show
//!
//! A probe reads off what is linearly there; it does not show that the network uses it. A probe that fails has not shown that
//! nothing is there: it may be there in another form, or at another token.

use std::fmt::Write as _;

use rung_engine::{Native, Ops, Scalar};
use rung_nn::{Hooks, ModelError};
use serde::Serialize;

use super::matrix::{Matrix, dot, solve};
use super::questions::{QuestionBatch, Questions, best};
use super::{AnalysisError, Finding, InstrumentOptions, layer_names, require_one_pass};
use rung_figure::Evidence;
use rung_figure::figure::{HeatCell, HeatMap};
use rung_nn::Network;
use rung_train::parallel;
use rung_train::run::accuracy::AnswerCount;

/// A probe that is this often right has found it.
pub const RESOLVED: f64 = 0.9;

/// Added to the spread within classes, features having a spread of one.
const RIDGE: f64 = 1e-3;

/// Questions that are enough, and tokens that are too many.
const AMOUNT: (usize, usize) = (3000, 1 << 16);

/// What probes found.
#[derive(Clone, Debug, Serialize)]
pub struct Probes {
    /// The network.
    pub name: String,
    /// The task.
    pub task: String,
    /// The levels of the stream.
    pub levels: Vec<String>,
    /// The numbers on the way.
    pub registers: Vec<ProbedRegister>,
}

/// One number on the way.
#[derive(Clone, Debug, Serialize)]
pub struct ProbedRegister {
    /// What it is called.
    pub name: String,
    /// The share that a guess has.
    pub guess: f64,
    /// Questions that the probes were fitted on.
    pub fitted_on: usize,
    /// Right answers at every level.
    pub levels: Vec<AnswerCount>,
    /// The first level with [`RESOLVED`] of them right.
    pub resolved: Option<usize>,
}

/// Fits and tries the probes.
///
/// # Errors
/// The network or the task does not fit.
pub fn probe<S: Scalar>(network: &Network<S>, options: &InstrumentOptions) -> Result<Probes, AnalysisError> {
    require_one_pass("probe", network)?;
    let questions = Questions::draw(network, options, AMOUNT)?;
    if questions.registers.is_empty() {
        let (found, expected) = (questions.task, "a task as text, whose answers are known: give --task".to_owned());
        return Err(AnalysisError::Unfit { instrument: "probe", found, expected });
    }
    let streams = parallel::map(&questions.batches, |asked| answering(network, asked));
    let streams = streams.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut levels = vec!["embedding".to_owned()];
    levels.extend(layer_names(&network.plan));
    let rows: Vec<(&Vec<Vec<f64>>, &[u32])> = streams
        .iter()
        .zip(&questions.batches)
        .flat_map(|(rows, asked)| rows.iter().zip(asked.questions.iter().map(|one| &one.registers[..])))
        .collect();
    let jobs: Vec<(usize, usize)> =
        (0..questions.registers.len()).flat_map(|at| (0..levels.len()).map(move |level| (at, level))).collect();
    let counts = parallel::map(&jobs, |&(at, level)| {
        let known: Vec<(&[f64], usize)> = rows
            .iter()
            .filter_map(|(streams, registers)| Some((&streams[level][..], *registers.get(at)? as usize)))
            .collect();
        let (fit, test) = known.split_at(known.len() / 2);
        (fit.len(), tried(fit, test, questions.registers[at].values))
    });
    let registers =
        questions.registers.iter().zip(counts.chunks(levels.len())).map(|(register, counts)| ProbedRegister {
            name: register.name.clone(),
            guess: 1.0 / register.values as f64,
            fitted_on: counts[0].0,
            levels: counts.iter().map(|(_, tally)| *tally).collect(),
            resolved: counts.iter().position(|(_, tally)| tally.count > 0 && tally.mean() >= RESOLVED),
        });
    Ok(Probes { name: network.name.clone(), task: questions.task.clone(), levels, registers: registers.collect() })
}

/// Keeps the stream of some tokens at every level.
struct TokenStreams<'a> {
    positions: &'a [usize],
    /// For every token, its stream at every level.
    streams: Vec<Vec<Vec<f64>>>,
}

impl<S: Scalar> Hooks<Native<S>> for TokenStreams<'_> {
    fn stream(&mut self, ops: &Native<S>, _: usize, x: rung_engine::Tensor<S>) -> rung_engine::Tensor<S> {
        let shape = ops.shape(&x);
        let flat = ops.reshape(&x, &[shape.rows(), shape.width()]);
        let rows = ops.values(&ops.gather_rows(&flat, self.positions));
        for (streams, row) in self.streams.iter_mut().zip(rows.chunks_exact(shape.width())) {
            streams.push(row.iter().map(|value| value.to_f64()).collect());
        }
        x
    }
}

/// The streams of all answering tokens of a batch.
fn answering<S: Scalar>(network: &Network<S>, asked: &QuestionBatch) -> Result<Vec<Vec<Vec<f64>>>, ModelError> {
    let ops = Native::new();
    ops.bind_frozen(&network.weights);
    let positions: Vec<usize> = asked.questions.iter().map(|one| one.row * asked.batch.length + one.position).collect();
    let mut keep = TokenStreams { positions: &positions, streams: vec![Vec::new(); positions.len()] };
    if !positions.is_empty() {
        network.model.forward_with_hooks(&ops, &asked.batch.tokens, asked.rows(), &mut keep)?;
    }
    Ok(keep.streams)
}

/// Fits a classifier on some rows and counts its right answers on others.
fn tried(fit: &[(&[f64], usize)], test: &[(&[f64], usize)], classes: usize) -> AnswerCount {
    let mut tally = AnswerCount::default();
    let Some((first, _)) = fit.first() else { return tally };
    let width = first.len();
    let count = fit.len() as f64;
    let mut mean = vec![0.0; width];
    let mut spread = vec![0.0; width];
    for (row, _) in fit {
        mean.iter_mut().zip(*row).for_each(|(sum, value)| *sum += value / count);
    }
    for (row, _) in fit {
        for ((sum, value), mean) in spread.iter_mut().zip(*row).zip(&mean) {
            *sum += (value - mean).powi(2) / count;
        }
    }
    // A column that never changes says nothing, whatever its scale.
    let scale: Vec<f64> =
        spread.iter().map(|square| if *square > 1e-20 { square.sqrt().recip() } else { 0.0 }).collect();
    let feature = |row: &[f64]| -> Vec<f64> {
        row.iter().zip(&mean).zip(&scale).map(|((value, mean), scale)| (value - mean) * scale).collect()
    };
    let (mut means, mut counts) = (Matrix::zeros(classes, width), vec![0.0; classes]);
    for (row, class) in fit {
        counts[*class] += 1.0;
        let target = &mut means.numbers[class * width..(class + 1) * width];
        target.iter_mut().zip(feature(row)).for_each(|(sum, value)| *sum += value);
    }
    for (target, count) in means.numbers.chunks_exact_mut(width).zip(&counts) {
        for sum in target {
            *sum /= f64::max(*count, 1.0);
        }
    }
    // What rows of one class differ by. A direction that tells classes apart and varies in none of them decides by itself.
    let mut within = Matrix::identity(width);
    within.numbers.iter_mut().for_each(|value| *value *= RIDGE * count);
    for (row, class) in fit {
        let apart: Vec<f64> = feature(row).iter().zip(means.row(*class)).map(|(value, mean)| value - mean).collect();
        for (at, factor) in apart.iter().enumerate().filter(|(_, factor)| **factor != 0.0) {
            let target = &mut within.numbers[at * width..(at + 1) * width];
            target.iter_mut().zip(&apart).for_each(|(sum, value)| *sum += factor * value);
        }
    }
    let Some(weights) = solve(&within, &means.flipped()) else { return tally };
    let weights = weights.flipped();
    let half = |class: usize| dot(weights.row(class), means.row(class)) / 2.0;
    let known: Vec<(usize, f64)> = (0..classes).filter(|at| counts[*at] > 0.0).map(|at| (at, half(at))).collect();
    for (row, class) in test {
        let row = feature(row);
        let scores: Vec<f64> = known.iter().map(|(at, half)| dot(weights.row(*at), &row) - half).collect();
        tally.add(known[best(&scores)].0 == *class);
    }
    tally
}

impl Probes {
    /// For a terminal.
    fn text(&self) -> String {
        let mut text = format!("{} on {}: linear probes at the answering token (measured)\n\n", self.name, self.task);
        let widest = self.levels.iter().map(String::len).max().unwrap_or(0).max(9);
        let _ = write!(text, "  {:widest$}", "level");
        for register in &self.registers {
            let _ = write!(text, "{:>9}", register.name);
        }
        text += "\n";
        for (level, name) in self.levels.iter().enumerate() {
            let _ = write!(text, "  {name:widest$}");
            for register in &self.registers {
                let mark = if register.resolved == Some(level) { "*" } else { " " };
                let _ = write!(text, "{:>8}{mark}", share(&register.levels[level]));
            }
            text += "\n";
        }
        let _ = write!(text, "  {:widest$}", "a guess");
        for register in &self.registers {
            let _ = write!(text, "{:>7.1}% ", 100.0 * register.guess);
        }
        let _ = writeln!(
            text,
            "\n\n  * the first level with {:.0}% right on prompts that no probe was fitted on",
            100.0 * RESOLVED
        );
        text
    }

    /// The picture.
    pub fn chart(&self) -> HeatMap {
        let cell = |level: usize, register: &ProbedRegister| {
            let cell = HeatCell::new(register.levels[level].mean());
            if register.resolved == Some(level) { cell.framed() } else { cell }
        };
        let cells = (0..self.levels.len())
            .map(|level| self.registers.iter().map(|register| cell(level, register)).collect())
            .collect();
        let columns: Vec<String> = self.registers.iter().map(|register| register.name.clone()).collect();
        let guesses = self.registers.iter().map(|register| format!("{} {:.0}%", register.name, 100.0 * register.guess));
        let guesses = guesses.collect::<Vec<_>>().join(", ");
        HeatMap::new(
            format!("Which layer climbs which rung: {}", self.name),
            ("stream after layer", &self.levels),
            ("number on the way to the answer", &columns),
            cells,
        )
        .known(Evidence::Measured)
        .noted(format!(
            "Right answers of linear probes on new prompts of {}; framed: the first level with {:.0}%. A guess has: {guesses}.",
            self.task,
            100.0 * RESOLVED
        ))
    }
}

fn share(tally: &AnswerCount) -> String {
    if tally.count == 0 { "–".to_owned() } else { format!("{:.1}%", 100.0 * tally.mean()) }
}

/// Runs it.
///
/// # Errors
/// The network or the task does not fit.
pub fn find(network: &Network<f32>, options: &InstrumentOptions) -> Result<Finding, AnalysisError> {
    let found = probe(network, options)?;
    Ok(Finding::of(&found, found.text(), vec![Box::new(found.chart())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_nn::construct::{ConstructionRequest, build};

    #[test]
    fn on_u1_hop_l_appears_after_layer_l_plus_one() {
        let request = ConstructionRequest { hops: 3, m: 4, n: vec![2, 2], ..ConstructionRequest::default() };
        let network = build::<f32>("U1", &request).unwrap();
        let options = InstrumentOptions { prompts: Some(800), ..InstrumentOptions::default() };
        let found = probe(&network, &options).unwrap();
        assert_eq!(found.levels.len(), 5);
        for (at, register) in found.registers.iter().enumerate() {
            assert_eq!(register.resolved, Some(at + 2), "{}: {:?}", register.name, register.levels);
            for (level, tally) in register.levels.iter().enumerate() {
                let expected = if level >= at + 2 { tally.mean() >= 0.99 } else { tally.mean() < 0.5 };
                assert!(expected, "{} at level {level}: {}", register.name, tally.mean());
            }
        }
    }

    #[test]
    fn a_probe_finds_what_is_linearly_there_and_nothing_else() {
        let numbers: Vec<(Vec<f64>, usize)> = (0..200)
            .map(|at: usize| (vec![f64::from((at % 2) as u8), f64::from((at / 2 % 2) as u8), 1.0], at))
            .collect();
        let rows =
            |class: fn(usize) -> usize| numbers.iter().map(|(row, at)| (&row[..], class(*at))).collect::<Vec<_>>();
        let bits = rows(|at| at % 4);
        assert_eq!(tried(&bits[..100], &bits[100..], 4).right, 100);
        let parity = rows(|at| (at % 2) ^ (at / 2 % 2));
        assert!(tried(&parity[..100], &parity[100..], 2).mean() < 0.8, "parity is not linear");
    }
}
