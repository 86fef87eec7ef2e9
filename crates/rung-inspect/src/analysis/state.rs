//! What a recurrent state holds over time: its effective rank, and the bits that its numbers take.
//!
//! The theory counts a state by its numbers. Here a prompt is read token by token, and after 1, 2, 4, .. tokens the matrix of every
//! head is measured: how many directions it really uses.
//!
//! # What it shows
//!
//! For each layer with a matrix state, means over its heads:
//!
//! - the effective rank: e to the entropy of the singular values, taken as shares. It is 1 for a state with one direction and the
//!   smaller side of the matrix if all directions are equally strong.
//! - the bits: a matrix of rank r with sides a and b is `r (a + b - r)` numbers. The rank is the number of singular values that stand
//!   out of what rounding to 8 bits would add at random, and each number is counted with 8 bits. Beside it stand the bits of all its
//!   numbers.
//!
//! # Known answer
//!
//! After one token a sum of `k v'` has rank 1, after t tokens at most t.
//!
//! # What it does not show
//!
//! Rank is not use: a direction that is strong in the state may never be read.

use rung_engine::{GeneralDelta, Native, Ops, Recurrence, Scalar, Tensor};
use rung_nn::ModelError;
use rung_nn::model::names;
use rung_nn::observer::{ObservedOps, OpObserver};
use serde::Serialize;
use std::cell::RefCell;
use std::fmt::Write as _;

use super::matrix::Matrix;
use super::questions::Questions;
use super::{AnalysisError, Finding, InstrumentOptions, layer_names};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_nn::Network;
use rung_train::parallel;

/// Bits that a number of the state is counted with.
const BITS: u32 = 8;

/// States over time.
#[derive(Clone, Debug, Serialize)]
pub struct States {
    /// The network.
    pub name: String,
    /// The task.
    pub task: String,
    /// Tokens read at each look.
    pub tokens: Vec<usize>,
    /// Layers with a matrix state.
    pub layers: Vec<LayerStates>,
}

/// The state of one layer.
#[derive(Clone, Debug, Serialize)]
pub struct LayerStates {
    /// The layer.
    pub name: String,
    /// Its matrices: how many, and their sides.
    pub matrices: (usize, usize, usize),
    /// Mean effective rank at each look.
    pub effective_rank: Vec<f64>,
    /// Mean number of singular values above rounding, at each look.
    pub rank: Vec<f64>,
    /// Bits of all matrices at that rank, at each look.
    pub bits: Vec<f64>,
    /// Bits of all their numbers.
    pub all_bits: usize,
}

/// Keeps the states that recurrences leave.
struct StateObserver {
    at: RefCell<Option<usize>>,
    /// For each layer, matrices with their sides.
    found: RefCell<Vec<Vec<Matrix>>>,
}

impl StateObserver {
    fn keep<S: Scalar>(&self, ops: &Native<S>, state: &Tensor<S>) {
        let Some(layer) = *self.at.borrow() else { return };
        let shape = ops.shape(state);
        let [_, heads, key, value] = shape[..] else { return };
        let values: Vec<f64> = ops.values(state).into_iter().map(Scalar::to_f64).collect();
        let found = &mut self.found.borrow_mut()[layer];
        if value == 1 || key == 1 {
            // One number wide: the heads together are the matrix.
            found.push(Matrix::new(heads, key * value, values));
            return;
        }
        found.extend(values.chunks_exact(key * value).map(|numbers| Matrix::new(key, value, numbers.to_vec())));
    }
}

impl<S: Scalar> OpObserver<S> for StateObserver {
    fn enter(&self, name: &str) {
        *self.at.borrow_mut() = names::layer_index(name);
    }

    fn recurrence(&self, ops: &Native<S>, inputs: &Recurrence<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        let (out, state) = ops.recurrence(inputs);
        self.keep(ops, &state);
        (out, state)
    }

    fn general_delta(&self, ops: &Native<S>, inputs: &GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        let (out, state) = ops.general_delta(inputs);
        self.keep(ops, &state);
        (out, state)
    }
}

/// Looks at a state while a prompt is read.
///
/// # Errors
/// The network has no such state, or the task does not fit.
pub fn states<S: Scalar>(network: &Network<S>, options: &InstrumentOptions) -> Result<States, AnalysisError> {
    let unfit = |found: String| AnalysisError::Unfit {
        instrument: "state",
        found,
        expected: "a causal network with a recurrent mixer, such as linear, gdn or mamba2".to_owned(),
    };
    if !network.config.causal {
        return Err(unfit("a bidirectional network".to_owned()));
    }
    let questions = Questions::draw(network, &InstrumentOptions { prompts: Some(1), ..options.clone() }, (1, 1))?;
    let batch = &questions.batches[0].batch;
    let mut positions: Vec<usize> =
        (0..usize::BITS).map(|power| 1 << power).take_while(|at| *at < batch.length).collect();
    positions.push(batch.length);
    let seen = read(network, &batch.tokens, &positions)?;
    let mut layers = Vec::new();
    for (layer, name) in layer_names(&network.plan).into_iter().enumerate() {
        let Some(first) = seen[0][layer].first() else { continue };
        let sides = (first.rows, first.columns);
        // Layers may keep small vectors beside their matrices; those of the first shape that is largest are shown.
        let largest =
            seen[0][layer].iter().map(|one| (one.rows, one.columns)).max_by_key(|(a, b)| a * b).unwrap_or(sides);
        let of = |states_there: &Vec<Vec<Matrix>>| {
            states_there[layer].iter().filter(|one| (one.rows, one.columns) == largest).cloned().collect::<Vec<_>>()
        };
        let measured = parallel::map(&seen, |states_there| of(states_there).iter().map(measure).collect::<Vec<_>>());
        let count = of(&seen[0]).len();
        let mean = |value: fn(&MatrixMeasure) -> f64| {
            let one = |all: &Vec<MatrixMeasure>| all.iter().map(value).sum::<f64>() / all.len().max(1) as f64;
            measured.iter().map(one).collect::<Vec<f64>>()
        };
        layers.push(LayerStates {
            name,
            matrices: (count, largest.0, largest.1),
            effective_rank: mean(|one| one.effective),
            rank: mean(|one| one.rank as f64),
            bits: mean(|one| one.bits).into_iter().map(|bits| bits * count as f64).collect(),
            all_bits: count * largest.0 * largest.1 * BITS as usize,
        });
    }
    if layers.is_empty() {
        return Err(unfit(format!("{} without one", network.name)));
    }
    Ok(States { name: network.name.clone(), task: questions.task.clone(), tokens: positions, layers })
}

/// For every look, the matrices of every layer.
fn read<S: Scalar>(
    network: &Network<S>,
    tokens: &[u32],
    positions: &[usize],
) -> Result<Vec<Vec<Vec<Matrix>>>, ModelError> {
    let depth = network.model.depth();
    let keeper = StateObserver { at: RefCell::new(None), found: RefCell::new(vec![Vec::new(); depth]) };
    let ops = ObservedOps { native: Native::new(), watch: &keeper };
    ops.native.bind_frozen(&network.weights);
    let fields = network.config.input.fields();
    let (mut state, mut start, mut seen) = (None, 0, Vec::new());
    for end in positions {
        let (_, next) = network.model.forward(&ops, &tokens[start * fields..end * fields], 1, state.as_ref())?;
        (state, start) = (Some(next), *end);
        seen.push(keeper.found.replace(vec![Vec::new(); depth]));
    }
    Ok(seen)
}

/// What one matrix holds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MatrixMeasure {
    effective: f64,
    rank: usize,
    bits: f64,
}

fn measure(matrix: &Matrix) -> MatrixMeasure {
    let (rows, columns) = (matrix.rows as f64, matrix.columns as f64);
    let narrow = if matrix.columns > matrix.rows { matrix.flipped() } else { matrix.clone() };
    let values = narrow.singular_values();
    let sum: f64 = values.iter().sum();
    let entropy: f64 =
        values.iter().map(|value| value / sum).filter(|share| *share > 0.0).map(|share| -share * share.ln()).sum();
    let largest = matrix.numbers.iter().map(|value| value.abs()).fold(0.0, f64::max);
    // Rounding adds errors of step / sqrt 12, whose matrix has about this norm.
    let step = 2.0 * largest / f64::from(1_u32 << BITS);
    let noise = step / 12_f64.sqrt() * (rows.sqrt() + columns.sqrt());
    let rank = values.iter().filter(|value| **value > noise).count();
    let numbers = rank as f64 * (rows + columns - rank as f64);
    MatrixMeasure { effective: if sum > 0.0 { entropy.exp() } else { 0.0 }, rank, bits: numbers * f64::from(BITS) }
}

impl States {
    fn text(&self) -> String {
        let mut text = format!("{} on {}: states while one prompt is read (measured)\n", self.name, self.task);
        for layer in &self.layers {
            let (count, rows, columns) = layer.matrices;
            let _ = writeln!(
                text,
                "\n  {}: {count} of {rows} x {columns}, {} bits at {BITS} each",
                layer.name, layer.all_bits
            );
            text += "    tokens   effective rank   rank above rounding   bits\n";
            for (at, tokens) in self.tokens.iter().enumerate() {
                let (effective, rank, bits) = (layer.effective_rank[at], layer.rank[at], layer.bits[at]);
                let _ = writeln!(text, "    {tokens:>6}   {effective:>14.2}   {rank:>19.1}   {bits:.0}");
            }
        }
        text
    }

    fn lines(&self, title: &str, axis: &str, values: fn(&LayerStates) -> &[f64]) -> LineChart {
        let mut chart = LineChart::new(
            format!("{title}: {}", self.name),
            AxisSpec::new("tokens read", Scale::Log2),
            AxisSpec::new(axis, Scale::Linear),
        );
        for layer in &self.layers {
            let points = self.tokens.iter().zip(values(layer)).map(|(x, y)| Point::new(*x as f64, *y)).collect();
            chart = chart.series(Series::line_and_points(layer.name.clone(), points).known(Evidence::Measured));
        }
        chart
    }

    /// Effective rank over time.
    pub fn chart(&self) -> LineChart {
        self.lines("Effective rank of the state", "effective rank, mean over heads", |layer| &layer.effective_rank)
    }

    /// Bits over time.
    pub fn bits_chart(&self) -> LineChart {
        self.lines("Bits that the state takes", "bits, at the rank above rounding to 8 bits", |layer| &layer.bits)
    }
}

/// Runs it.
///
/// # Errors
/// The network has no such state, or the task does not fit.
pub fn find(network: &Network<f32>, options: &InstrumentOptions) -> Result<Finding, AnalysisError> {
    let found = states(network, options)?;
    Ok(Finding::of(&found, found.text(), vec![Box::new(found.chart()), Box::new(found.bits_chart())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::sample;

    #[test]
    fn a_sum_of_products_has_at_most_as_many_directions_as_tokens() {
        for mixer in ["linear{normaliser=no,map=identity}", "retnet", "gla", "rwkv7", "gdn", "mamba2"] {
            let found = states(&sample::<f32>(&format!("{mixer} full")), &InstrumentOptions::default()).unwrap();
            let layer = &found.layers[0];
            assert!((layer.effective_rank[0] - 1.0).abs() < 1e-4, "{mixer}: {:?}", layer.effective_rank);
            let side = layer.matrices.1.min(layer.matrices.2) as f64;
            for (tokens, (effective, rank)) in found.tokens.iter().zip(layer.effective_rank.iter().zip(&layer.rank)) {
                let most = (*tokens as f64).min(side);
                assert!(*effective <= most + 1e-3 && *rank <= most, "{mixer} after {tokens}: {effective}, {rank}");
            }
            assert!(layer.bits.iter().all(|bits| *bits <= layer.all_bits as f64), "{mixer}");
        }
    }

    #[test]
    fn equal_directions_count_fully_and_nothing_counts_nothing() {
        let even = measure(&Matrix::identity(4));
        assert!((even.effective - 4.0).abs() < 1e-9 && even.rank == 4 && (even.bits - 128.0).abs() < 1e-9);
        assert_eq!(measure(&Matrix::zeros(3, 2)), MatrixMeasure { effective: 0.0, rank: 0, bits: 0.0 });
    }

    #[test]
    fn networks_without_a_state_are_told_so() {
        let error = states(&sample::<f32>("full full"), &InstrumentOptions::default()).err().unwrap().to_string();
        assert!(error.contains("expected a causal network with a recurrent mixer"), "{error}");
    }
}
