//! The precision that the state needs: accuracy with the recurrent state rounded to 16, 8, 4 bits.
//!
//! The theory counts the bits of the state that pass from token to token. Here the state of every mixer with bounded state is rounded
//! after every token, as if it were stored in few bits, and the same questions are evaluated again.
//!
//! # What it shows
//!
//! Accuracy for each number of hops, at 32, 16, 8, 4, 2, 1 bits per element, and the bits of all states together. Rounded numbers
//! are evenly spaced over a range that includes the largest value of any state at the sampled positions: eight in each of the first
//! prompts.
//!
//! # Validation
//!
//! Constructions whose state stores one number of a few bits are right at 8 bits. A network without bounded state does not change.
//!
//! For external checkpoints keys and values of attention are rounded as well as states, each tensor over its own range.
//!
//! # What it does not show
//!
//! Rounding is to nearest, on one range for all layers (for external checkpoints, on one range per tensor); a better encoding might
//! need fewer bits.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rung_engine::{Native, Ops, Parameters, Rounding, Scalar};
use rung_nn::{ModelConfig, ModelError, NoHooks, SimulatedPrecision};
use rung_theory::stack::Mixer;
use rung_theory::task::seeded;
use serde::Serialize;

use super::ablate::{indexed_mixers, is_full};
use super::cache_precision;
use super::questions::{GroupScore, QuestionLimits, Questions, accuracy_of, accuracy_text, total_score};
use super::{AnalysisError, AnalysisOptions, AnalysisOutput, reject_chain_of_thought};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_nn::{Network, Provenance};
use rung_train::parallel;
use rung_train::run::accuracy::AccuracyByGroup;

/// The precisions that are measured, in bits per element.
const BITS: [u32; 5] = [16, 8, 4, 2, 1];

/// Limits of the sampled questions; few, because rounding after every token is slow.
const LIMITS: QuestionLimits = QuestionLimits { questions: 400, tokens: 1 << 12 };

/// Accuracy by the precision of the states.
#[derive(Clone, Debug, Serialize)]
pub struct PrecisionSweep {
    /// Name of the network.
    pub name: String,
    /// The task.
    pub task: String,
    /// Rounded numbers are between minus this and plus this. For external checkpoints, the largest of the ranges of the tensors.
    pub range: f64,
    /// Whether every tensor is rounded on its own range.
    #[serde(skip)]
    pub has_range_per_tensor: bool,
    /// Number of elements in all rounded states.
    #[serde(rename = "numbers")]
    pub state_elements: u128,
    /// One result per precision; first without rounding.
    #[serde(rename = "steps")]
    pub results: Vec<PrecisionResult>,
}

/// The result at one precision.
#[derive(Clone, Debug, Serialize)]
pub struct PrecisionResult {
    /// Bits per element; 32 without rounding.
    pub bits: u32,
    /// Correct answers for each number of hops.
    pub accuracy: AccuracyByGroup,
    /// Mean negative log-probability of the right answer, on text prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
}

/// Measures the accuracy at every precision.
///
/// # Errors
/// The network or the task does not fit.
pub fn sweep_precision<S: Scalar>(
    network: &Network<S>,
    options: &AnalysisOptions,
) -> Result<PrecisionSweep, AnalysisError> {
    reject_chain_of_thought("precision", network)?;
    let questions = Questions::sample(network, options, LIMITS)?;
    if matches!(network.provenance, Provenance::Checkpoint { .. }) {
        return sweep_checkpoint(network, questions);
    }
    let range = largest_state_value(network, &questions)?.max(1e-6);
    let mut results = Vec::new();
    let unrounded = questions.accuracy(&network.model, &network.weights, || NoHooks)?;
    results.push(PrecisionResult { bits: 32, accuracy: unrounded, loss: None });
    for bits in BITS {
        let state = Some(Rounding { bits, range });
        let config = ModelConfig {
            precision: SimulatedPrecision { state, ..network.config.precision },
            ..network.config.clone()
        };
        let mut weights = Parameters::new();
        let model = config.init(&network.plan, &mut weights, &mut seeded(0))?;
        weights.flat_mut().copy_from_slice(network.weights.flat());
        let accuracy = questions.accuracy(&model, &weights, || NoHooks)?;
        results.push(PrecisionResult { bits, accuracy, loss: None });
    }
    let bounded_mixers = indexed_mixers(&network.plan).into_iter().filter(|(_, mixer)| !is_full(mixer));
    let state_elements = bounded_mixers.map(|(_, mixer)| mixer.state_bits() / u128::from(mixer.bits())).sum();
    Ok(PrecisionSweep {
        name: network.name.clone(),
        task: questions.task,
        range,
        has_range_per_tensor: false,
        state_elements,
        results,
    })
}

/// As [`sweep_precision`] for an external checkpoint, whose keys and values of attention are rounded too.
fn sweep_checkpoint<S: Scalar>(network: &Network<S>, questions: Questions) -> Result<PrecisionSweep, AnalysisError> {
    let result = |bits: u32, scores: &BTreeMap<u16, GroupScore>| PrecisionResult {
        bits,
        accuracy: accuracy_of(scores),
        loss: Some(total_score(scores).mean_loss()),
    };
    let (unrounded, ranges) = cache_precision::measure(network, &questions, None)?;
    let mut results = vec![result(32, &unrounded)];
    for bits in BITS {
        let (scores, _) = cache_precision::measure(network, &questions, Some((bits, &ranges)))?;
        results.push(result(bits, &scores));
    }
    let range = ranges.iter().flatten().copied().fold(0.0, f64::max);
    let longest = questions.batches.iter().map(|question_batch| question_batch.batch.tokens_per_row).max().unwrap_or(0);
    let mixers = network.plan.layers.iter().flat_map(|layer| layer.mixers.iter());
    let state_elements = mixers.map(|mixer| cache_elements(mixer, longest)).sum();
    Ok(PrecisionSweep {
        name: network.name.clone(),
        task: questions.task,
        range,
        has_range_per_tensor: true,
        state_elements,
        results,
    })
}

/// Elements in a mixer's KV cache or state after some tokens.
fn cache_elements(mixer: &Mixer, tokens: usize) -> u128 {
    match mixer.facts().attention {
        Some(heads) if is_full(mixer) => {
            tokens as u128 * u128::from(heads.kv_heads) * u128::from(heads.key_head_dim + heads.value_head_dim)
        }
        _ => mixer.state_bits() / u128::from(mixer.bits()),
    }
}

/// The largest absolute value in the states of bounded mixers, at eight positions of the first prompts.
fn largest_state_value<S: Scalar>(network: &Network<S>, questions: &Questions) -> Result<f64, ModelError> {
    let fields = network.config.input.field_count();
    let is_bounded: Vec<bool> = indexed_mixers(&network.plan).iter().map(|(_, mixer)| !is_full(mixer)).collect();
    let first_batches = &questions.batches[..questions.batches.len().min(4)];
    let maxima = parallel::map(first_batches, |question_batch| {
        let ops = Native::new();
        ops.bind_frozen(&network.weights);
        let (length, rows) = (question_batch.batch.tokens_per_row, question_batch.rows());
        let (mut state, mut max, step) = (None, 0.0_f64, length.div_ceil(8).max(1));
        for start in (0..length).step_by(step).take_while(|_| network.config.causal) {
            let end = (start + step).min(length);
            let row = |row: usize| {
                &question_batch.batch.tokens[(row * length + start) * fields..(row * length + end) * fields]
            };
            let tokens: Vec<u32> = (0..rows).flat_map(row).copied().collect();
            let (_, next) = network.model.forward(&ops, &tokens, rows, state.as_ref())?;
            let states = next.states.iter().zip(&is_bounded).filter(|(_, bounded)| **bounded);
            for tensor in states.flat_map(|(state, _)| state.tensors.iter().flatten()) {
                max = ops.values(tensor).iter().map(|value| value.to_f64().abs()).fold(max, f64::max);
            }
            state = Some(next);
        }
        Ok(max)
    });
    maxima.into_iter().try_fold(0.0, |max: f64, batch_max: Result<f64, ModelError>| Ok(max.max(batch_max?)))
}

impl PrecisionSweep {
    fn text(&self) -> String {
        let Self { name, task, range, state_elements, .. } = self;
        let mut text = format!("{name} on {task}: accuracy with rounded states (measured)\n\n");
        for result in &self.results {
            let total_bits = state_elements * u128::from(result.bits);
            let _ = write!(
                text,
                "  {:2} bits  {:>12} bits in total  {}",
                result.bits,
                total_bits,
                accuracy_text(&result.accuracy)
            );
            text += &result.loss.map_or_else(String::new, |loss| format!("; loss {loss:.3}"));
            text += "\n";
        }
        let _ = writeln!(
            text,
            "\n  {state_elements} elements of state, rounded to evenly spaced values from -{range:.3} to {range:.3}{}",
            if self.has_range_per_tensor { " at most: each tensor has its own range" } else { "" }
        );
        text
    }

    /// Accuracy by bits per element, a series for each number of hops.
    pub fn chart(&self) -> LineChart {
        let mut chart = LineChart::new(
            format!("Accuracy with rounded states: {}", self.name),
            AxisSpec::new("bits per number of the state (32: not rounded)", Scale::Log2),
            AxisSpec::new("accuracy", Scale::Linear).with_range(0.0, 1.02),
        );
        for group in self.results[0].accuracy.keys() {
            let point = |result: &PrecisionResult| {
                let answers = result.accuracy.get(group).copied().unwrap_or_default();
                let (low, high) = answers.interval();
                Point::new(f64::from(result.bits), answers.accuracy()).with_spread(low, high)
            };
            let name = if *group == 0 { "all questions".to_owned() } else { format!("{group}-hop questions") };
            let series = Series::line_and_points(name, self.results.iter().map(point).collect());
            chart = chart.series(series.with_evidence(Evidence::Measured));
        }
        chart
    }
}

/// Runs the analysis.
///
/// # Errors
/// The network or the task does not fit.
pub fn run(network: &Network<f32>, options: &AnalysisOptions) -> Result<AnalysisOutput, AnalysisError> {
    let sweep = sweep_precision(network, options)?;
    Ok(AnalysisOutput::new(&sweep, sweep.text(), vec![Box::new(sweep.chart())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_nn::construct::{ConstructionRequest, build};

    #[test]
    fn rounding_to_8_bits_keeps_u2_right_and_does_not_change_attention() {
        let options = AnalysisOptions { prompts: Some(32), ..AnalysisOptions::default() };
        let accuracy = |sweep: &PrecisionSweep, bits: u32| {
            sweep.results.iter().find(|result| result.bits == bits).unwrap().accuracy[&2].accuracy()
        };
        let with_state =
            sweep_precision(&build::<f32>("U2", &ConstructionRequest::default()).unwrap(), &options).unwrap();
        assert!([32, 16, 8].into_iter().all(|bits| accuracy(&with_state, bits) >= 1.0));
        assert!(accuracy(&with_state, 1) < 1.0 && with_state.state_elements > 0, "{}", accuracy(&with_state, 1));
        let attention =
            sweep_precision(&build::<f32>("U1", &ConstructionRequest::default()).unwrap(), &options).unwrap();
        assert!(attention.results.iter().all(|result| result.accuracy[&2].correct == result.accuracy[&2].count));
        assert_eq!(attention.state_elements, 0);
    }
}
