//! How few bits the state can have: right answers with the recurrent state rounded to 16, 8, 4 bits.
//!
//! The theory counts the bits that cross from token to token. Here the state of every bounded mixer is rounded after every token, as
//! a machine of so few bits would keep it, and the same questions are asked again.
//!
//! # What it shows
//!
//! Right answers for each number of hops, at 32, 16, 8, 4, 2, 1 bits per number, and the bits of all states together. Numbers
//! are evenly spaced over a range that holds the largest one seen in any state.
//!
//! # Known answer
//!
//! Constructions that carry one number of a few bits lose nothing at 8 bits. A network without bounded state does not change.
//!
//! Checkpoints of other programs are read token by token, and everything that they carry is rounded: keys and values of attention as well as states,
//! each tensor over a range of its own.
//!
//! # What it does not show
//!
//! Rounding is to nearest on one range for all layers; a better code might need fewer bits.

use std::fmt::Write as _;

use rung_engine::{Native, Ops, Parameters, Rounding, Scalar};
use rung_nn::{ModelConfig, ModelError, NoHooks, Precision};
use rung_theory::stack::Mixer;
use rung_theory::task::seeded;
use serde::Serialize;

use super::ablate::{is_full, places};
use super::carried_precision;
use super::questions::{Questions, accuracy_of, shares, total};
use super::{AnalysisError, Finding, InstrumentOptions, require_one_pass};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_nn::{Network, Provenance};
use rung_train::parallel;
use rung_train::run::accuracy::Accuracy;

/// Bits per number that are tried.
const BITS: [u32; 5] = [16, 8, 4, 2, 1];

/// Questions that are enough, and tokens that are too many: rounding goes token by token and is slow.
const AMOUNT: (usize, usize) = (400, 1 << 12);

/// What is left at few bits.
#[derive(Clone, Debug, Serialize)]
pub struct PrecisionSweep {
    /// The network.
    pub name: String,
    /// The task.
    pub task: String,
    /// Rounded numbers lie between minus this and this.
    pub range: f64,
    /// Numbers of all states of bounded mixers.
    pub numbers: u128,
    /// Every precision, the machine's own first.
    pub steps: Vec<PrecisionLevel>,
}

/// One precision.
#[derive(Clone, Debug, Serialize)]
pub struct PrecisionLevel {
    /// Bits per number; 32 is the machine's own.
    pub bits: u32,
    /// Right answers for each number of hops.
    pub accuracy: Accuracy,
    /// Mean negative log-probability of the right answer, on prompts as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
}

/// Asks at every precision.
///
/// # Errors
/// The network or the task does not fit.
pub fn sweep<S: Scalar>(network: &Network<S>, options: &InstrumentOptions) -> Result<PrecisionSweep, AnalysisError> {
    require_one_pass("precision", network)?;
    let questions = Questions::draw(network, options, AMOUNT)?;
    if matches!(network.provenance, Provenance::Checkpoint { .. }) {
        return sweep_carried(network, questions);
    }
    let range = largest(network, &questions)?.max(1e-6);
    let mut steps = Vec::new();
    let own = questions.accuracy(&network.model, &network.weights, || NoHooks)?;
    steps.push(PrecisionLevel { bits: 32, accuracy: own, loss: None });
    for bits in BITS {
        let state = Some(Rounding { bits, range });
        let config =
            ModelConfig { precision: Precision { state, ..network.config.precision }, ..network.config.clone() };
        let mut weights = Parameters::new();
        let model = config.init(&network.plan, &mut weights, &mut seeded(0))?;
        weights.flat_mut().copy_from_slice(network.weights.flat());
        let accuracy = questions.accuracy(&model, &weights, || NoHooks)?;
        steps.push(PrecisionLevel { bits, accuracy, loss: None });
    }
    let bounded = places(&network.plan).into_iter().filter(|(_, mixer)| !is_full(mixer));
    let numbers = bounded.map(|(_, mixer)| mixer.state_bits() / u128::from(mixer.bits())).sum();
    Ok(PrecisionSweep { name: network.name.clone(), task: questions.task, range, numbers, steps })
}

/// The same for a checkpoint of another program: keys and values of attention are rounded too.
fn sweep_carried<S: Scalar>(network: &Network<S>, questions: Questions) -> Result<PrecisionSweep, AnalysisError> {
    let (own, ranges) = carried_precision::measure(network, &questions, None)?;
    let mut steps = vec![PrecisionLevel { bits: 32, accuracy: accuracy_of(&own), loss: Some(total(&own).mean_loss()) }];
    for bits in BITS {
        let (scores, _) = carried_precision::measure(network, &questions, Some((bits, &ranges)))?;
        steps.push(PrecisionLevel { bits, accuracy: accuracy_of(&scores), loss: Some(total(&scores).mean_loss()) });
    }
    let range = ranges.iter().flatten().copied().fold(0.0, f64::max);
    let longest = questions.batches.iter().map(|asked| asked.batch.length).max().unwrap_or(0);
    let numbers = network.plan.layers.iter().flat_map(|layer| layer.mixers.iter());
    let numbers = numbers.map(|mixer| carried(mixer, longest)).sum();
    Ok(PrecisionSweep { name: network.name.clone(), task: questions.task, range, numbers, steps })
}

/// Numbers that a mixer carries after so many tokens.
fn carried(mixer: &Mixer, tokens: usize) -> u128 {
    match mixer.facts().attention {
        Some(heads) if is_full(mixer) => tokens as u128 * u128::from(heads.kv) * u128::from(heads.key + heads.value),
        _ => mixer.state_bits() / u128::from(mixer.bits()),
    }
}

/// The largest number in a state of a bounded mixer, measured eight times on the way through some prompts.
fn largest<S: Scalar>(network: &Network<S>, questions: &Questions) -> Result<f64, ModelError> {
    let fields = network.config.input.fields();
    let bounded: Vec<bool> = places(&network.plan).iter().map(|(_, mixer)| !is_full(mixer)).collect();
    let some = &questions.batches[..questions.batches.len().min(4)];
    let found = parallel::map(some, |asked| {
        let ops = Native::new();
        ops.bind_frozen(&network.weights);
        let (length, rows) = (asked.batch.length, asked.rows());
        let (mut state, mut most, step) = (None, 0.0_f64, length.div_ceil(8).max(1));
        for start in (0..length).step_by(step).take_while(|_| network.config.causal) {
            let end = (start + step).min(length);
            let row = |row: usize| &asked.batch.tokens[(row * length + start) * fields..(row * length + end) * fields];
            let tokens: Vec<u32> = (0..rows).flat_map(row).copied().collect();
            let (_, next) = network.model.forward(&ops, &tokens, rows, state.as_ref())?;
            let states = next.states.iter().zip(&bounded).filter(|(_, bounded)| **bounded);
            for tensor in states.flat_map(|(state, _)| state.tensors.iter().flatten()) {
                most = ops.values(tensor).iter().map(|value| value.to_f64().abs()).fold(most, f64::max);
            }
            state = Some(next);
        }
        Ok(most)
    });
    found.into_iter().try_fold(0.0, |most: f64, one: Result<f64, ModelError>| Ok(most.max(one?)))
}

impl PrecisionSweep {
    fn text(&self) -> String {
        let Self { name, task, range, numbers, .. } = self;
        let mut text = format!("{name} on {task}: right answers with states in few bits (measured)\n\n");
        for step in &self.steps {
            let total = numbers * u128::from(step.bits);
            let _ = write!(text, "  {:2} bits  {:>12} in all  {}", step.bits, total, shares(&step.accuracy));
            text += &step.loss.map_or_else(String::new, |loss| format!("; loss {loss:.3}"));
            text += "\n";
        }
        let _ =
            writeln!(text, "\n  {numbers} numbers of state, rounded evenly, at most from -{range:.3} to {range:.3}");
        text
    }

    /// The picture.
    pub fn chart(&self) -> LineChart {
        let mut chart = LineChart::new(
            format!("Right answers with states in few bits: {}", self.name),
            AxisSpec::new("bits per number of the state (32: the machine's own)", Scale::Log2),
            AxisSpec::new("right answers", Scale::Linear).from_to(0.0, 1.02),
        );
        for group in self.steps[0].accuracy.keys() {
            let point = |step: &PrecisionLevel| {
                let tally = step.accuracy.get(group).copied().unwrap_or_default();
                let (low, high) = tally.interval();
                Point::new(f64::from(step.bits), tally.mean()).between(low, high)
            };
            let name = if *group == 0 { "all questions".to_owned() } else { format!("{group}-hop questions") };
            let series = Series::line_and_points(name, self.steps.iter().map(point).collect());
            chart = chart.series(series.known(Evidence::Measured));
        }
        chart
    }
}

/// Runs it.
///
/// # Errors
/// The network or the task does not fit.
pub fn find(network: &Network<f32>, options: &InstrumentOptions) -> Result<Finding, AnalysisError> {
    let found = sweep(network, options)?;
    Ok(Finding::of(&found, found.text(), vec![Box::new(found.chart())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_nn::construct::{ConstructionRequest, build};

    #[test]
    fn a_carrier_of_few_bits_needs_few_and_attention_none() {
        let options = InstrumentOptions { prompts: Some(32), ..InstrumentOptions::default() };
        let share = |found: &PrecisionSweep, bits: u32| {
            found.steps.iter().find(|step| step.bits == bits).unwrap().accuracy[&2].mean()
        };
        let carried = sweep(&build::<f32>("U2", &ConstructionRequest::default()).unwrap(), &options).unwrap();
        assert_eq!((share(&carried, 32), share(&carried, 16), share(&carried, 8)), (1.0, 1.0, 1.0));
        assert!(share(&carried, 1) < 1.0 && carried.numbers > 0, "{}", share(&carried, 1));
        let attention = sweep(&build::<f32>("U1", &ConstructionRequest::default()).unwrap(), &options).unwrap();
        assert!(attention.steps.iter().all(|step| step.accuracy[&2].right == step.accuracy[&2].count));
        assert_eq!(attention.numbers, 0);
    }
}
