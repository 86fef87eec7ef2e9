//! The model that is searched for failures, and how it is run.
//!
//! A [`TargetModel`] is a network with a task, together with everything that is needed to open it again: its folder, or the config of an
//! untrained model; the precision of its states; and a fingerprint of its weights. A [`Runner`] runs it on one thread: on complete prompts,
//! or on many continuations from common states.

use std::ops::Range;
use std::path::PathBuf;

use rung_engine::{Native, Ops as _, Rounding, Tensor};
use rung_nn::hash::Hash;
use rung_nn::memory::{self, BatchShape};
use rung_nn::{ModelConfig, ModelError, ModelState, Network, SimulatedPrecision, State};
use rung_theory::task::{self, AnyTask, Prompt, seeded};
use rung_train::network::initial_network;
use serde::{Deserialize, Serialize};

use super::FalsifyError;
use rung_theory::task::splitmix64;
use rung_train::run::RunConfig;
use rung_train::run::source::IdMapping;
use rung_train::strict;

/// Tasks with longer prompts are rejected.
pub const MAX_TOKENS: usize = 1 << 16;

/// The largest memory of the weights and one prompt of an untrained model.
const MAX_BYTES: u64 = 1 << 30;

/// Number of batches that all methods together run at the same time; each gets an equal share of the memory.
pub(super) const CONCURRENT_BATCHES: u64 = 8;

/// Number of prompts that are run to find the range of states and residual streams.
const RANGE_PROMPTS: u64 = 8;

/// Where the model comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Origin {
    /// An untrained model: a run before its first step.
    #[serde(rename = "fresh")]
    Untrained(#[serde(deserialize_with = "strict::object")] Box<RunConfig>),
    /// The folder of a finished run or of a construction.
    Folder(PathBuf),
}

impl Origin {
    /// Rejects an untrained model whose weights and activations on one prompt need more than `max_bytes`, before they are allocated. For a
    /// folder, the size of the weights is checked against its files when it is opened, and that of the activations by
    /// [`TargetModel::open`].
    ///
    /// # Errors
    /// The config is invalid or needs more memory.
    pub fn check_memory(&self, max_bytes: u64) -> Result<(), FalsifyError> {
        let Self::Untrained(config) = self else { return Ok(()) };
        let run = config.resolve()?;
        let bytes = run
            .weight_count
            .saturating_mul(4)
            .saturating_add(run.model.memory_estimate(&run.plan).inference_bytes(run.max_tokens));
        Ok(memory::check(format!("one prompt of `{}`", run.plan.mixer_names()), bytes, Some(max_bytes))?)
    }
}

/// Rounding of numbers to evenly spaced values over a range. In stacks where only a bounded state passes between tokens, only the state is
/// rounded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatePrecision {
    /// Bits per element.
    pub bits: u32,
    /// States are in the range from minus this to plus this.
    #[serde(rename = "state")]
    pub state_range: f64,
    /// The same for numbers that pass between layers or are cached; `None` if those are not rounded.
    #[serde(deserialize_with = "strict::required_option")]
    #[serde(rename = "message")]
    pub message_range: Option<f64>,
}

impl StatePrecision {
    fn to_model_precision(self) -> SimulatedPrecision {
        let rounding = |range| Rounding { bits: self.bits, range };
        SimulatedPrecision { state: Some(rounding(self.state_range)), message: self.message_range.map(rounding) }
    }
}

/// The precision that a caller asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RequestedPrecision {
    /// The precision that the model was trained with.
    #[default]
    AsTrained,
    /// Bits per element, and the range; by default the smallest power of two above all numbers of a few prompts.
    Bits(u32, Option<f64>),
    /// Bits and both ranges.
    Exactly(StatePrecision),
}

/// A network, its precision and the task it is searched on.
pub struct TargetModel {
    /// How to get the model.
    pub origin: Origin,
    /// The network.
    pub network: Network<f32>,
    /// The requested rounding; `None` if the network has its own precision.
    pub precision: Option<StatePrecision>,
    /// A hash of the stack, the config and the weights.
    pub fingerprint: String,
    task: Box<dyn AnyTask>,
    id_mapping: IdMapping,
}

impl TargetModel {
    /// Opens a model for a task (by default its own) in the requested precision.
    ///
    /// # Errors
    /// The model cannot be opened, emits a chain of thought, or does not fit the task.
    pub fn open(origin: Origin, task: Option<&str>, requested: RequestedPrecision) -> Result<Self, FalsifyError> {
        let network = match &origin {
            Origin::Untrained(config) => {
                origin.check_memory(MAX_BYTES)?;
                initial_network(&config.resolve()?)?
            }
            Origin::Folder(path) => Network::open(path).map_err(Box::new)?,
        };
        Self::from_network(network, origin, task, requested)
    }

    /// A target from a network that is open already, and how to get it again.
    ///
    /// # Errors
    /// As [`TargetModel::open`].
    pub fn from_network(
        network: Network<f32>,
        origin: Origin,
        task: Option<&str>,
        requested: RequestedPrecision,
    ) -> Result<Self, FalsifyError> {
        if network.chain_of_thought().is_some() {
            return Err(FalsifyError::ChainOfThought { name: network.name.clone() });
        }
        let task = match task {
            Some(text) => task::parse(text)?,
            None => task::parse(&network.task()?.spec())?,
        };
        let found = task.length();
        if found > MAX_TOKENS {
            return Err(FalsifyError::TooLong { task: task.spec(), found, max: MAX_TOKENS });
        }
        // The size of the weights was checked against the files when the network was opened.
        network.check_inference_memory("the search", BatchShape { prompts: 1, tokens: found })?;
        let id_mapping = IdMapping::new("--task", &*task, &network.task()?.fields(), network.config.classes as u32)?;
        let fingerprint = fingerprint(&network);
        let mut target = Self { origin, network, precision: None, fingerprint, task, id_mapping };
        target.precision = match requested {
            RequestedPrecision::AsTrained => None,
            RequestedPrecision::Bits(bits, Some(range)) => Some(target.state_precision(bits, range, range)),
            RequestedPrecision::Bits(bits, None) => {
                let (state_range, message_range) = target.ranges()?;
                Some(target.state_precision(bits, state_range, message_range))
            }
            RequestedPrecision::Exactly(precision) => Some(precision),
        };
        if let Some(precision) = target.precision {
            target.network.set_precision(precision.to_model_precision())?;
        }
        // Run one prompt, so that a model that cannot run on this task (too few learned positions, say) fails here.
        let mut prompt = Prompt::new();
        target.task().sample_prompt(&mut seeded(0), &mut prompt);
        Runner::new(&target).outputs(prompt.tokens(), 1, None)?;
        Ok(target)
    }

    /// Bytes of memory per prompt of a batch.
    pub fn bytes_per_prompt(&self) -> u128 {
        self.network.config.memory_estimate(&self.network.plan).inference_bytes(self.task().length())
    }

    /// Prompts per batch in one batch's share of the memory: at least one, at most `max`. It does not depend on the machine, so that a
    /// search gives the same result everywhere.
    pub(super) fn batch_size(&self, memory_bytes: u64, max: u64) -> u64 {
        let share = u128::from(memory_bytes / CONCURRENT_BATCHES);
        u64::try_from(share / self.bytes_per_prompt().max(1)).unwrap_or(max).clamp(1, max)
    }

    /// The task that is searched.
    pub fn task(&self) -> &dyn AnyTask {
        &*self.task
    }

    /// Number of ids per token.
    pub fn ids_per_token(&self) -> usize {
        self.task().fields().len()
    }

    /// Bits per element of the state: as requested, as the network was trained with, or 32.
    pub fn state_bits(&self) -> u32 {
        self.network.config.precision.state.map_or(32, |rounding| rounding.bits)
    }

    /// Whether states are rounded.
    pub fn is_rounded(&self) -> bool {
        self.network.config.precision.state.is_some()
    }

    /// Whether nothing but a bounded state passes from token to token.
    pub fn has_only_bounded_state(&self) -> bool {
        self.network.config.causal && self.network.plan.full_layers() == 0
    }

    /// The right answer at a position, by the task's oracle; `None` if the tokens are not a prompt or the position has no question.
    pub fn answer(&self, tokens: &[u32], question: usize) -> Option<u32> {
        let targets = self.task().oracle(tokens).ok()?;
        targets.get(question).copied().filter(|label| *label != task::NO_TARGET)
    }

    /// The position of the last question.
    pub fn question(&self) -> usize {
        let mut prompt = Prompt::new();
        self.task().sample_prompt(&mut seeded(0), &mut prompt);
        prompt.questions().map(|(position, _, _)| position).last().unwrap_or(prompt.len() - 1)
    }

    fn state_precision(&self, bits: u32, state_range: f64, message_range: f64) -> StatePrecision {
        StatePrecision { bits, state_range, message_range: (!self.has_only_bounded_state()).then_some(message_range) }
    }

    /// The smallest powers of two above every absolute value in the states, and in the residual streams, of a few prompts.
    fn ranges(&self) -> Result<(f64, f64), ModelError> {
        let (runner, mut prompt) = (Runner::new(self), Prompt::new());
        let largest = |largest: f32, numbers: &[f32]| numbers.iter().fold(largest, |max, number| max.max(number.abs()));
        let (mut state_max, mut residual_max) = (0.0, 0.0);
        for seed in 0..RANGE_PROMPTS {
            self.task().sample_prompt(&mut seeded(seed), &mut prompt);
            state_max = largest(state_max, &runner.state_values(&runner.state(prompt.tokens(), 1, None)?));
            let outputs = runner.outputs(prompt.tokens(), 1, None)?;
            residual_max = outputs.residuals.iter().fold(residual_max, |max, layer| largest(max, layer));
        }
        // The factor keeps a number just below a power of two from being rounded up to it.
        let power_above = |largest: f32| (f64::from(largest) * 1.001).max(1e-6).log2().floor().exp2() * 2.0;
        Ok((power_above(state_max), power_above(residual_max.max(state_max))))
    }
}

/// A hash of a network's stack, its config and its weights.
pub fn fingerprint(network: &Network<f32>) -> String {
    let mut hash = Hash::new().with(network.plan.to_stack().to_string().as_bytes());
    // The same weights with another norm, position encoding or rounding are another model.
    hash = hash.with(config_text(&network.config).as_bytes());
    for (id, entry) in network.weights.entries() {
        hash = hash.with(entry.name.as_bytes()).with(&[0]);
        for weight in network.weights.get(id) {
            hash = hash.with(&weight.to_bits().to_le_bytes());
        }
    }
    hash.to_hex()
}

/// The part of a fingerprint that describes the config. Its names of fields and types never change, so that a renamed field of [`ModelConfig`] or a renamed
/// type leaves the fingerprints of stored witnesses valid.
fn config_text(config: &ModelConfig) -> String {
    let ModelConfig {
        input,
        classes,
        norm,
        placement,
        feed_forward,
        gelu,
        positions,
        causal,
        init_key_from_query,
        tied_unembedding,
        unembedding_field,
        init_std,
        chunk,
        precision,
    } = config;
    let precision = format!("{precision:?}").replacen("SimulatedPrecision", "Precision", 1);
    let fields: [(&str, &dyn std::fmt::Debug); 14] = [
        ("input", input),
        ("classes", classes),
        ("norm", norm),
        ("placement", placement),
        ("feed_forward", feed_forward),
        ("gelu", gelu),
        ("positions", positions),
        ("causal", causal),
        ("init_key_from_query", init_key_from_query),
        ("tied_unembedding", tied_unembedding),
        ("read_out", unembedding_field),
        ("deviation", init_std),
        ("chunk", chunk),
        ("precision", &format_args!("{precision}")),
    ];
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
    format!("ModelConfig {{ {} }}", fields.join(", "))
}

/// The residual streams and logits of a batch, with the shape `[rows, sequence_length, ..]`.
pub struct BatchOutputs {
    /// The embedding, then the residual stream after every layer.
    pub residuals: Vec<Vec<f32>>,
    /// Logits of all classes.
    pub logits: Vec<f32>,
    /// Tokens per row.
    pub sequence_length: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Number of classes.
    pub classes: usize,
}

impl BatchOutputs {
    /// The residual stream of one token after one layer.
    pub fn residual(&self, layer: usize, row: usize, position: usize) -> &[f32] {
        &self.residuals[layer][(row * self.sequence_length + position) * self.width..][..self.width]
    }

    /// The logits of one token.
    pub fn logits(&self, row: usize, position: usize) -> &[f32] {
        &self.logits[(row * self.sequence_length + position) * self.classes..][..self.classes]
    }

    /// A hash of the residual streams of some tokens of a row at all layers.
    pub fn signature(&self, row: usize, positions: &Range<usize>) -> u64 {
        let layers =
            (0..self.residuals.len()).flat_map(|layer| positions.clone().map(move |position| (layer, position)));
        hash_values(layers.flat_map(|(layer, position)| self.residual(layer, row, position)))
    }
}

/// A hash of numbers, the same for 0.0 and -0.0.
fn hash_values<'a>(numbers: impl Iterator<Item = &'a f32>) -> u64 {
    let step = |hash: u64, number: &f32| {
        (hash ^ u64::from((number + 0.0).to_bits())).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    };
    splitmix64(numbers.fold(0, step))
}

/// The class of the largest logit; the first of equal ones.
pub fn argmax(logits: &[f32]) -> u32 {
    (0..logits.len()).fold(0, |best, class| if logits[class] > logits[best] { class } else { best }) as u32
}

/// Runs a target on one thread.
pub struct Runner<'a> {
    target: &'a TargetModel,
    ops: Native<f32>,
}

impl<'a> Runner<'a> {
    /// A runner for the current thread.
    pub fn new(target: &'a TargetModel) -> Self {
        Self { target, ops: target.network.executor() }
    }

    /// Maps the task's ids to the model's.
    fn to_model_ids(&self, tokens: &[u32]) -> Vec<u32> {
        let mut tokens = tokens.to_vec();
        self.target.id_mapping.translate(&mut tokens);
        tokens
    }

    /// The state after some rows of tokens, continuing from the state `start`.
    ///
    /// # Errors
    /// The model cannot run on the tokens.
    pub fn state(
        &self,
        tokens: &[u32],
        rows: usize,
        start: Option<&ModelState<Tensor<f32>>>,
    ) -> Result<ModelState<Tensor<f32>>, ModelError> {
        Ok(self.target.network.model.forward(&self.ops, &self.to_model_ids(tokens), rows, start)?.1)
    }

    /// Residual streams and logits of some rows of tokens, continuing from the state `start`.
    ///
    /// # Errors
    /// The model cannot run on the tokens.
    pub fn outputs(
        &self,
        tokens: &[u32],
        rows: usize,
        start: Option<&ModelState<Tensor<f32>>>,
    ) -> Result<BatchOutputs, ModelError> {
        let (ops, model) = (&self.ops, &self.target.network.model);
        let residuals = model.residuals_from_state(ops, &self.to_model_ids(tokens), rows, start)?;
        let logits =
            residuals.last().map(|last| ops.values(&model.logits_from_residual(ops, last))).unwrap_or_default();
        Ok(BatchOutputs {
            residuals: residuals.iter().map(|residual| ops.values(residual)).collect(),
            logits,
            sequence_length: tokens.len() / rows / self.target.ids_per_token(),
            width: model.width(),
            classes: model.classes(),
        })
    }

    /// A state whose row i is row `rows[i]` of the given state. Rows may repeat.
    pub fn select_rows(&self, state: &ModelState<Tensor<f32>>, rows: &[usize]) -> ModelState<Tensor<f32>> {
        let select = |tensor: &Tensor<f32>| {
            let mut shape = self.ops.shape(tensor).to_vec();
            let width = shape[1..].iter().product();
            let flat = self.ops.gather_rows(&self.ops.reshape(tensor, &[shape[0], width]), rows);
            shape[0] = rows.len();
            self.ops.reshape(&flat, &shape)
        };
        let select_state = |state: &State<Tensor<f32>>| State {
            past_len: state.past_len,
            tensors: std::array::from_fn(|index| state.tensors[index].as_ref().map(select)),
            shared: None,
        };
        ModelState {
            past_len: state.past_len,
            batch: rows.len(),
            states: state.states.iter().map(select_state).collect(),
        }
    }

    /// A hash of each row of a state.
    pub fn signatures(&self, state: &ModelState<Tensor<f32>>) -> Vec<u64> {
        let tensors: Vec<Vec<f32>> = self.tensors(state).collect();
        let row = |row: usize| {
            hash_values(tensors.iter().flat_map(|values| {
                let width = values.len() / state.batch;
                &values[row * width..][..width]
            }))
        };
        (0..state.batch).map(row).collect()
    }

    /// All numbers of a state, in the order of layers.
    pub fn state_values(&self, state: &ModelState<Tensor<f32>>) -> Vec<f32> {
        self.tensors(state).flatten().map(|number| number + 0.0).collect()
    }

    fn tensors<'b>(&'b self, state: &'b ModelState<Tensor<f32>>) -> impl Iterator<Item = Vec<f32>> + 'b {
        let tensors = state.states.iter().flat_map(|state| state.tensors.iter().flatten());
        tensors.map(|tensor| self.ops.values(tensor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_text_of_fingerprints_keeps_its_field_names() {
        let text = "ModelConfig { input: Vocabulary(256), classes: 256, norm: Rms, placement: Pre, feed_forward: Mlp { hidden: None }, gelu: Tanh, \
                    positions: None, causal: true, init_key_from_query: false, tied_unembedding: false, read_out: None, deviation: 0.02, chunk: 64, \
                    precision: Precision { state: None, message: None } }";
        assert_eq!(config_text(&ModelConfig::default()), text);
    }
}
