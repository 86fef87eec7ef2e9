//! The effective rank of a recurrent state over time, and the bits that describe it.
//!
//! The theory counts all numbers of a state. Here a prompt is read in parts, and after 1, 2, 4, .. tokens the rank of every head's state
//! matrix is measured.
//!
//! # What it shows
//!
//! For each layer with a matrix state, means over its heads:
//!
//! - the effective rank: e to the entropy of the singular values divided by their sum. It is 1 for a matrix of rank one, and the number of
//!   rows or columns (the smaller of them) if all singular values are equal.
//! - the bits: an a x b matrix of rank r is described by `r (a + b - r)` numbers. The rank is the number of singular values above the noise
//!   of rounding to 8 bits, and each number counts 8 bits. The bits of all a x b numbers are listed beside it.
//!
//! # Validation
//!
//! After one token a sum of `k v'` has rank 1, after t tokens at most t.
//!
//! # What it does not show
//!
//! A direction with a large singular value may never be read by a query.

use rung_engine::{GeneralDelta, Native, Ops, Recurrence, Scalar, Tensor};
use rung_nn::ModelError;
use rung_nn::model::names;
use rung_nn::observer::{ObservedOps, OpInterceptor};
use serde::Serialize;
use std::cell::RefCell;
use std::fmt::Write as _;

use super::matrix::Matrix;
use super::questions::{QuestionLimits, Questions};
use super::{AnalysisError, AnalysisOptions, AnalysisOutput, layer_names};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_nn::Network;
use rung_train::parallel;

/// Bits per element of a state.
const BITS: u32 = 8;

/// Ranks of the recurrent states while a prompt is read.
#[derive(Clone, Debug, Serialize)]
pub struct StateRanks {
    /// Name of the network.
    pub name: String,
    /// The task.
    pub task: String,
    /// Number of tokens read before each measurement.
    pub tokens: Vec<usize>,
    /// Layers with a matrix state.
    pub layers: Vec<LayerStates>,
}

/// The state of one layer at each measurement.
#[derive(Clone, Debug, Serialize)]
pub struct LayerStates {
    /// Name of the layer.
    pub name: String,
    /// Number of matrices, their rows and their columns.
    #[serde(rename = "matrices")]
    pub matrix_count_and_shape: (usize, usize, usize),
    /// Effective rank, mean over matrices.
    pub effective_rank: Vec<f64>,
    /// Number of singular values above the rounding noise, mean over matrices.
    pub rank: Vec<f64>,
    /// Bits of all matrices at that rank.
    pub bits: Vec<f64>,
    /// Bits of all numbers of the matrices.
    pub all_bits: usize,
}

/// Stores the final states of recurrences.
struct StateObserver {
    /// The layer that is being computed.
    layer: RefCell<Option<usize>>,
    /// For each layer, the state matrices of its heads.
    matrices: RefCell<Vec<Vec<Matrix>>>,
}

impl StateObserver {
    fn store<S: Scalar>(&self, ops: &Native<S>, state: &Tensor<S>) {
        let Some(layer) = *self.layer.borrow() else { return };
        let shape = ops.shape(state);
        let [_, heads, key, value] = shape[..] else { return };
        let values: Vec<f64> = ops.values(state).into_iter().map(Scalar::to_f64).collect();
        let matrices = &mut self.matrices.borrow_mut()[layer];
        if value == 1 || key == 1 {
            // Each head has a vector; the vectors of all heads are one matrix.
            matrices.push(Matrix::new(heads, key * value, values));
            return;
        }
        matrices.extend(values.chunks_exact(key * value).map(|numbers| Matrix::new(key, value, numbers.to_vec())));
    }
}

impl<S: Scalar> OpInterceptor<S> for StateObserver {
    fn enter(&self, name: &str) {
        *self.layer.borrow_mut() = names::layer_index(name);
    }

    fn recurrence(&self, ops: &Native<S>, inputs: &Recurrence<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        let (out, state) = ops.recurrence(inputs);
        self.store(ops, &state);
        (out, state)
    }

    fn general_delta(&self, ops: &Native<S>, inputs: &GeneralDelta<'_, Tensor<S>>) -> (Tensor<S>, Tensor<S>) {
        let (out, state) = ops.general_delta(inputs);
        self.store(ops, &state);
        (out, state)
    }
}

/// Measures the recurrent states while one prompt is read.
///
/// # Errors
/// The network has no matrix state, or the task does not fit.
pub fn measure_states<S: Scalar>(network: &Network<S>, options: &AnalysisOptions) -> Result<StateRanks, AnalysisError> {
    let not_applicable = |found: String| AnalysisError::NotApplicable {
        analysis: "state",
        found,
        expected: "a causal network with a recurrent mixer, such as linear, gdn or mamba2".to_owned(),
    };
    if !network.config.causal {
        return Err(not_applicable("a bidirectional network".to_owned()));
    }
    let questions =
        Questions::sample(network, &AnalysisOptions { prompts: Some(1), ..options.clone() }, QuestionLimits::NONE)?;
    let batch = &questions.batches[0].batch;
    let mut positions: Vec<usize> =
        (0..usize::BITS).map(|power| 1 << power).take_while(|count| *count < batch.tokens_per_row).collect();
    positions.push(batch.tokens_per_row);
    let states = states_at(network, &batch.tokens, &positions)?;
    let mut layers = Vec::new();
    for (layer, name) in layer_names(&network.plan).into_iter().enumerate() {
        // Layers may have small vectors beside their matrices; only matrices of the largest shape are measured.
        let shapes = states[0][layer].iter().map(|matrix| (matrix.rows, matrix.columns));
        let Some(shape) = shapes.max_by_key(|(rows, columns)| rows * columns) else { continue };
        let matrices_of = |states: &Vec<Vec<Matrix>>| {
            let matrices = states[layer].iter().filter(|matrix| (matrix.rows, matrix.columns) == shape);
            matrices.cloned().collect::<Vec<_>>()
        };
        let measures =
            parallel::map(&states, |states| matrices_of(states).iter().map(measure_rank).collect::<Vec<_>>());
        let count = matrices_of(&states[0]).len();
        let mean = |value: fn(&MatrixMeasure) -> f64| {
            let mean = |heads: &Vec<MatrixMeasure>| heads.iter().map(value).sum::<f64>() / heads.len().max(1) as f64;
            measures.iter().map(mean).collect::<Vec<f64>>()
        };
        layers.push(LayerStates {
            name,
            matrix_count_and_shape: (count, shape.0, shape.1),
            effective_rank: mean(|matrix| matrix.effective_rank),
            rank: mean(|matrix| matrix.rank as f64),
            bits: mean(|matrix| matrix.bits).into_iter().map(|bits| bits * count as f64).collect(),
            all_bits: count * shape.0 * shape.1 * BITS as usize,
        });
    }
    if layers.is_empty() {
        return Err(not_applicable(format!("{} without one", network.name)));
    }
    Ok(StateRanks { name: network.name.clone(), task: questions.task.clone(), tokens: positions, layers })
}

/// The state matrices of every layer after the given numbers of tokens.
fn states_at<S: Scalar>(
    network: &Network<S>,
    tokens: &[u32],
    positions: &[usize],
) -> Result<Vec<Vec<Vec<Matrix>>>, ModelError> {
    let depth = network.model.depth();
    let observer = StateObserver { layer: RefCell::new(None), matrices: RefCell::new(vec![Vec::new(); depth]) };
    let ops = ObservedOps { native: Native::new(), interceptor: &observer };
    ops.native.bind_frozen(&network.weights);
    let fields = network.config.input.field_count();
    let (mut state, mut start, mut states) = (None, 0, Vec::new());
    for end in positions {
        let (_, next) = network.model.forward(&ops, &tokens[start * fields..end * fields], 1, state.as_ref())?;
        (state, start) = (Some(next), *end);
        states.push(observer.matrices.replace(vec![Vec::new(); depth]));
    }
    Ok(states)
}

/// Rank and bits of one matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MatrixMeasure {
    effective_rank: f64,
    rank: usize,
    bits: f64,
}

fn measure_rank(matrix: &Matrix) -> MatrixMeasure {
    let (rows, columns) = (matrix.rows as f64, matrix.columns as f64);
    let tall_matrix = if matrix.columns > matrix.rows { matrix.transposed() } else { matrix.clone() };
    let values = tall_matrix.singular_values();
    let sum: f64 = values.iter().sum();
    let entropy: f64 =
        values.iter().map(|value| value / sum).filter(|share| *share > 0.0).map(|share| -share * share.ln()).sum();
    let largest = matrix.entries.iter().map(|value| value.abs()).fold(0.0, f64::max);
    // Rounding adds errors of standard deviation step / sqrt 12; the spectral norm of a matrix of such errors is about `noise`.
    let step = 2.0 * largest / f64::from(1_u32 << BITS);
    let noise = step / 12_f64.sqrt() * (rows.sqrt() + columns.sqrt());
    let rank = values.iter().filter(|value| **value > noise).count();
    let numbers = rank as f64 * (rows + columns - rank as f64);
    let effective_rank = if sum > 0.0 { entropy.exp() } else { 0.0 };
    MatrixMeasure { effective_rank, rank, bits: numbers * f64::from(BITS) }
}

impl StateRanks {
    fn text(&self) -> String {
        let mut text = format!("{} on {}: states while one prompt is read (measured)\n", self.name, self.task);
        for layer in &self.layers {
            let (count, rows, columns) = layer.matrix_count_and_shape;
            let _ = writeln!(
                text,
                "\n  {}: {count} of {rows} x {columns}, {} bits at {BITS} each",
                layer.name, layer.all_bits
            );
            text += "    tokens   effective rank   rank above rounding   bits\n";
            for (index, tokens) in self.tokens.iter().enumerate() {
                let (effective, rank, bits) = (layer.effective_rank[index], layer.rank[index], layer.bits[index]);
                let _ = writeln!(text, "    {tokens:>6}   {effective:>14.2}   {rank:>19.1}   {bits:.0}");
            }
        }
        text
    }

    fn line_chart(&self, title: &str, axis: &str, values: fn(&LayerStates) -> &[f64]) -> LineChart {
        let mut chart = LineChart::new(
            format!("{title}: {}", self.name),
            AxisSpec::new("tokens read", Scale::Log2),
            AxisSpec::new(axis, Scale::Linear),
        );
        for layer in &self.layers {
            let points = self.tokens.iter().zip(values(layer)).map(|(x, y)| Point::new(*x as f64, *y)).collect();
            chart = chart.series(Series::line_and_points(layer.name.clone(), points).with_evidence(Evidence::Measured));
        }
        chart
    }

    /// Effective rank over time.
    pub fn chart(&self) -> LineChart {
        self.line_chart("Effective rank of the state", "effective rank, mean over heads", |layer| &layer.effective_rank)
    }

    /// Bits over time.
    pub fn bits_chart(&self) -> LineChart {
        self.line_chart("Bits that describe the state", "bits, at the rank above rounding to 8 bits", |layer| {
            &layer.bits
        })
    }
}

/// Runs the analysis.
///
/// # Errors
/// The network has no matrix state, or the task does not fit.
pub fn run(network: &Network<f32>, options: &AnalysisOptions) -> Result<AnalysisOutput, AnalysisError> {
    let states = measure_states(network, options)?;
    Ok(AnalysisOutput::new(&states, states.text(), vec![Box::new(states.chart()), Box::new(states.bits_chart())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::random_network;

    #[test]
    fn the_rank_of_a_state_is_at_most_the_number_of_tokens() {
        for mixer in ["linear{normaliser=no,map=identity}", "retnet", "gla", "rwkv7", "gdn", "mamba2"] {
            let network = random_network::<f32>(&format!("{mixer} full"));
            let measured = measure_states(&network, &AnalysisOptions::default()).unwrap();
            let layer = &measured.layers[0];
            assert!((layer.effective_rank[0] - 1.0).abs() < 1e-4, "{mixer}: {:?}", layer.effective_rank);
            let full_rank = layer.matrix_count_and_shape.1.min(layer.matrix_count_and_shape.2) as f64;
            let ranks = layer.effective_rank.iter().zip(&layer.rank);
            for (tokens, (effective, rank)) in measured.tokens.iter().zip(ranks) {
                let max = (*tokens as f64).min(full_rank);
                assert!(*effective <= max + 1e-3 && *rank <= max, "{mixer} after {tokens}: {effective}, {rank}");
            }
            assert!(layer.bits.iter().all(|bits| *bits <= layer.all_bits as f64), "{mixer}");
        }
    }

    #[test]
    fn the_identity_has_full_rank_and_the_zero_matrix_none() {
        let identity = measure_rank(&Matrix::identity(4));
        assert!((identity.effective_rank - 4.0).abs() < 1e-9);
        assert!(identity.rank == 4 && (identity.bits - 128.0).abs() < 1e-9);
        assert_eq!(measure_rank(&Matrix::zeros(3, 2)), MatrixMeasure { effective_rank: 0.0, rank: 0, bits: 0.0 });
    }

    #[test]
    fn networks_without_a_recurrent_state_are_rejected() {
        let error =
            measure_states(&random_network::<f32>("full full"), &AnalysisOptions::default()).err().unwrap().to_string();
        assert!(error.contains("expected a causal network with a recurrent mixer"), "{error}");
    }
}
