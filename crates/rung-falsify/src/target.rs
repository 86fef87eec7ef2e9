//! The model under suspicion, and how it is run.
//!
//! A [`TargetModel`] is a network with the task it is asked about, together with all that is needed to have it again: the folder it came from,
//! or the config and seed of an untrained one, the bits it is kept in, and a fingerprint of its weights. A [`Runner`] is one thread's
//! way to run it, in whatever form a search likes: whole prompts, or many of them token by token from common states.

use std::ops::Range;
use std::path::PathBuf;

use rung_engine::{Native, Ops as _, Rounding, Tensor};
use rung_nn::hash::Hash;
use rung_nn::memory::{self, Footprint, state_bytes};
use rung_nn::{ModelError, ModelState, Network, Precision, State};
use rung_theory::task::{self, AnyTask, Prompt, seeded};
use rung_train::network::initial_network;
use serde::{Deserialize, Serialize};

use super::FalsifyError;
use rung_theory::task::splitmix64;
use rung_train::run::RunConfig;
use rung_train::run::source::IdMapping;
use rung_train::strict;

/// The longest prompts that are searched.
pub const MOST_TOKENS: usize = 1 << 16;

/// More bytes than the weights and one prompt of an untrained model may take, wherever the model comes from.
const MOST_BYTES: u64 = 1 << 30;

/// Shares of the memory: batches of prompts that all methods together have under way.
pub(super) const AT_ONCE: u64 = 8;

/// Prompts that are run to find the largest number.
const LOOKED_AT: u64 = 8;

/// Where a model comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Origin {
    /// An untrained model: a run before its first step.
    Fresh(#[serde(deserialize_with = "strict::object")] Box<RunConfig>),
    /// The folder of a finished run or of a construction.
    Folder(PathBuf),
}

impl Origin {
    /// Refuses an untrained model whose weights or whose work on one prompt take more than so many bytes, before any is taken. The
    /// weights of a folder are in its files, and compared with them when it is opened.
    ///
    /// # Errors
    /// The config makes no sense, or asks for more.
    pub fn check_memory(&self, most: u64) -> Result<(), FalsifyError> {
        let Self::Fresh(config) = self else { return Ok(()) };
        let run = config.resolve()?;
        let bytes = run
            .weights
            .saturating_mul(4)
            .saturating_add(Footprint::new(&run.plan, &run.model).running_bytes(run.longest));
        Ok(memory::check(format!("one prompt of `{}`", run.plan.outline()), bytes, Some(most))?)
    }
}

/// Bits that numbers are kept in, evenly spaced over a range. Where a bounded state is all that passes between tokens, it alone is
/// rounded: what a token works with is its own affair.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatePrecision {
    /// Bits of a number.
    pub bits: u32,
    /// The largest size of a number of a state.
    pub state: f64,
    /// The largest size of a number that goes from layer to layer or is cached; none if those are left as they are.
    #[serde(deserialize_with = "strict::required")]
    pub message: Option<f64>,
}

impl StatePrecision {
    fn precision(self) -> Precision {
        let rounding = |range| Rounding { bits: self.bits, range };
        Precision { state: Some(rounding(self.state)), message: self.message.map(rounding) }
    }
}

/// The precision that a model is run in.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RequestedPrecision {
    /// Its own.
    #[default]
    Own,
    /// So many bits, over a range or over the smallest power of two above what some prompts leave behind.
    Bits(u32, Option<f64>),
    /// Exactly this.
    Exactly(StatePrecision),
}

/// A network and the task it is asked about.
pub struct TargetModel {
    /// Where it comes from.
    pub origin: Origin,
    /// The network.
    pub network: Network<f32>,
    /// Bits that were asked for here; none if the network is taken as it is.
    pub kept: Option<StatePrecision>,
    /// A hash of its stack, its config and its weights.
    pub fingerprint: String,
    task: Box<dyn AnyTask>,
    fit: IdMapping,
}

impl TargetModel {
    /// Opens a model for a task, or for its own, in the precision asked for.
    ///
    /// # Errors
    /// There is no such model, it is no single forward pass, or the task does not fit it.
    pub fn open(origin: Origin, task: Option<&str>, asked: RequestedPrecision) -> Result<Self, FalsifyError> {
        let network = match &origin {
            Origin::Fresh(config) => {
                origin.check_memory(MOST_BYTES)?;
                initial_network(&config.resolve()?)?
            }
            Origin::Folder(path) => Network::open(path).map_err(Box::new)?,
        };
        Self::of(network, origin, task, asked)
    }

    /// A network that is open already, and where it can be had again.
    ///
    /// # Errors
    /// As [`TargetModel::open`].
    pub fn of(
        network: Network<f32>,
        origin: Origin,
        task: Option<&str>,
        asked: RequestedPrecision,
    ) -> Result<Self, FalsifyError> {
        if network.chain_of_thought().is_some() {
            return Err(FalsifyError::Thinks { name: network.name.clone() });
        }
        let task = match task {
            Some(text) => task::parse(text)?,
            None => task::parse(&network.task()?.spec())?,
        };
        let found = task.length();
        if found > MOST_TOKENS {
            return Err(FalsifyError::TooLong { task: task.spec(), found, most: MOST_TOKENS });
        }
        let fit = IdMapping::new("--task", &*task, &network.task()?.fields(), network.config.classes as u32)?;
        let fingerprint = fingerprint(&network);
        let mut target = Self { origin, network, kept: None, fingerprint, task, fit };
        target.kept = match asked {
            RequestedPrecision::Own => None,
            RequestedPrecision::Bits(bits, Some(range)) => Some(target.spaced(bits, range, range)),
            RequestedPrecision::Bits(bits, None) => {
                let (state, message) = target.ranges()?;
                Some(target.spaced(bits, state, message))
            }
            RequestedPrecision::Exactly(kept) => Some(kept),
        };
        if let Some(kept) = target.kept {
            target.network.set_precision(kept.precision())?;
        }
        // Whatever refuses this task (learned positions, say) refuses it now.
        let mut prompt = Prompt::new();
        target.task().prompt(&mut seeded(0), &mut prompt);
        Runner::new(&target).views(prompt.tokens(), 1, None)?;
        Ok(target)
    }

    /// Bytes that a search takes for each prompt that it runs, of those it runs side by side.
    pub fn bytes_per_prompt(&self) -> u128 {
        state_bytes(&self.network.plan, self.task().length())
    }

    /// How many prompts a thread may run at once in its share of the memory given: at least one, at most `most`. The same on every
    /// machine, so that a search finds the same.
    pub(super) fn rows(&self, memory: u64, most: u64) -> u64 {
        let share = u128::from(memory / AT_ONCE);
        u64::try_from(share / self.bytes_per_prompt().max(1)).unwrap_or(most).clamp(1, most)
    }

    /// The task it is asked about.
    pub fn task(&self) -> &dyn AnyTask {
        &*self.task
    }

    /// Ids of a token.
    pub fn fields(&self) -> usize {
        self.task().fields().len()
    }

    /// Bits of a number of the state: as asked for here, as the network was trained with, or the machine's.
    pub fn state_bits(&self) -> u32 {
        self.network.config.precision.state.map_or(32, |rounding| rounding.bits)
    }

    /// Whether states and messages are kept in few bits.
    pub fn few_bits(&self) -> bool {
        self.network.config.precision.state.is_some()
    }

    /// Whether a bounded state is all that passes from token to token.
    pub fn bounded(&self) -> bool {
        self.network.config.causal && self.network.plan.full_layers() == 0
    }

    /// The target at a position of a prompt, by the oracle; none if the tokens are no prompt or nothing is asked there.
    pub fn answer(&self, tokens: &[u32], question: usize) -> Option<u32> {
        let targets = self.task().oracle(tokens).ok()?;
        targets.get(question).copied().filter(|label| *label != task::NO_TARGET)
    }

    /// Where a prompt asks for the last time.
    pub fn question(&self) -> usize {
        let mut prompt = Prompt::new();
        self.task().prompt(&mut seeded(0), &mut prompt);
        prompt.questions().map(|(position, _, _)| position).last().unwrap_or(prompt.len() - 1)
    }

    fn spaced(&self, bits: u32, state: f64, message: f64) -> StatePrecision {
        StatePrecision { bits, state, message: (!self.bounded()).then_some(message) }
    }

    /// Powers of two above every number that some prompts leave in a state, and in a stream.
    fn ranges(&self) -> Result<(f64, f64), ModelError> {
        let (runner, mut prompt) = (Runner::new(self), Prompt::new());
        let largest =
            |largest: f32, numbers: &[f32]| numbers.iter().fold(largest, |most, number| most.max(number.abs()));
        let (mut state, mut stream) = (0.0, 0.0);
        for seed in 0..LOOKED_AT {
            self.task().prompt(&mut seeded(seed), &mut prompt);
            state = largest(state, &runner.numbers(&runner.state(prompt.tokens(), 1, None)?));
            let views = runner.views(prompt.tokens(), 1, None)?;
            stream = views.layers.iter().fold(stream, |most, layer| largest(most, layer));
        }
        // A hair below the power of two is at it, once rounded.
        let above = |largest: f32| (f64::from(largest) * 1.001).max(1e-6).log2().floor().exp2() * 2.0;
        Ok((above(state), above(stream.max(state))))
    }
}

fn fingerprint(network: &Network<f32>) -> String {
    let mut hash = Hash::new().with(network.plan.to_stack().to_string().as_bytes());
    // Norms, positions, rounding and the like make another model of the same weights.
    hash = hash.with(format!("{:?}", network.config).as_bytes());
    for (id, entry) in network.weights.entries() {
        hash = hash.with(entry.name.as_bytes()).with(&[0]);
        for weight in network.weights.get(id) {
            hash = hash.with(&weight.to_bits().to_le_bytes());
        }
    }
    hash.text()
}

/// What a span of tokens left behind at every layer, `[rows, time, ..]` each.
pub struct SpanOutputs {
    /// The stream as embedded and after every layer.
    pub layers: Vec<Vec<f32>>,
    /// Scores of all classes.
    pub scores: Vec<f32>,
    /// Tokens of a row.
    pub time: usize,
    /// Numbers of a token's stream.
    pub width: usize,
    /// Classes.
    pub classes: usize,
}

impl SpanOutputs {
    /// The stream of one token after one layer.
    pub fn stream(&self, layer: usize, row: usize, position: usize) -> &[f32] {
        &self.layers[layer][(row * self.time + position) * self.width..][..self.width]
    }

    /// A token's scores.
    pub fn scores(&self, row: usize, position: usize) -> &[f32] {
        &self.scores[(row * self.time + position) * self.classes..][..self.classes]
    }

    /// A hash of some tokens of a row at all layers.
    pub fn signature(&self, row: usize, positions: &Range<usize>) -> u64 {
        let layers = (0..self.layers.len()).flat_map(|layer| positions.clone().map(move |position| (layer, position)));
        mixed(layers.flat_map(|(layer, position)| self.stream(layer, row, position)))
    }
}

/// A hash of numbers; minus zero is zero.
fn mixed<'a>(numbers: impl Iterator<Item = &'a f32>) -> u64 {
    let step = |hash: u64, number: &f32| {
        (hash ^ u64::from((number + 0.0).to_bits())).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
    };
    splitmix64(numbers.fold(0, step))
}

/// The first of the largest scores.
pub fn best(scores: &[f32]) -> u32 {
    (0..scores.len()).fold(0, |best, class| if scores[class] > scores[best] { class } else { best }) as u32
}

/// One thread's way to run a target.
pub struct Runner<'a> {
    target: &'a TargetModel,
    ops: Native<f32>,
}

impl<'a> Runner<'a> {
    /// For one thread.
    pub fn new(target: &'a TargetModel) -> Self {
        Self { target, ops: target.network.executor() }
    }

    fn translated(&self, tokens: &[u32]) -> Vec<u32> {
        let mut tokens = tokens.to_vec();
        self.target.fit.translate(&mut tokens);
        tokens
    }

    /// The state after some rows of tokens, going on from another.
    ///
    /// # Errors
    /// The model refuses the tokens.
    pub fn state(
        &self,
        tokens: &[u32],
        rows: usize,
        from: Option<&ModelState<Tensor<f32>>>,
    ) -> Result<ModelState<Tensor<f32>>, ModelError> {
        Ok(self.target.network.model.forward(&self.ops, &self.translated(tokens), rows, from)?.1)
    }

    /// Streams and scores of some rows of tokens, going on from a state.
    ///
    /// # Errors
    /// The model refuses the tokens.
    pub fn views(
        &self,
        tokens: &[u32],
        rows: usize,
        from: Option<&ModelState<Tensor<f32>>>,
    ) -> Result<SpanOutputs, ModelError> {
        let (ops, model) = (&self.ops, &self.target.network.model);
        let streams = model.streams_after(ops, &self.translated(tokens), rows, from)?;
        let scores = streams.last().map(|last| ops.values(&model.read_out(ops, last))).unwrap_or_default();
        Ok(SpanOutputs {
            layers: streams.iter().map(|stream| ops.values(stream)).collect(),
            scores,
            time: tokens.len() / rows / self.target.fields(),
            width: model.width(),
            classes: model.classes(),
        })
    }

    /// The same states in other rows: row `rows[i]` becomes row i.
    pub fn fork(&self, state: &ModelState<Tensor<f32>>, rows: &[usize]) -> ModelState<Tensor<f32>> {
        let pick = |tensor: &Tensor<f32>| {
            let mut shape = self.ops.shape(tensor).to_vec();
            let width = shape[1..].iter().product();
            let flat = self.ops.gather_rows(&self.ops.reshape(tensor, &[shape[0], width]), rows);
            shape[0] = rows.len();
            self.ops.reshape(&flat, &shape)
        };
        let fork = |state: &State<Tensor<f32>>| State {
            seen: state.seen,
            tensors: std::array::from_fn(|slot| state.tensors[slot].as_ref().map(pick)),
            shared: None,
        };
        ModelState { seen: state.seen, batch: rows.len(), states: state.states.iter().map(fork).collect() }
    }

    /// A hash of each row of a state.
    pub fn signatures(&self, state: &ModelState<Tensor<f32>>) -> Vec<u64> {
        let tensors: Vec<Vec<f32>> = self.tensors(state).collect();
        let row = |row: usize| {
            mixed(tensors.iter().flat_map(|values| {
                let width = values.len() / state.batch;
                &values[row * width..][..width]
            }))
        };
        (0..state.batch).map(row).collect()
    }

    /// All numbers of a state; of one row, in the order of layers.
    pub fn numbers(&self, state: &ModelState<Tensor<f32>>) -> Vec<f32> {
        self.tensors(state).flatten().map(|number| number + 0.0).collect()
    }

    fn tensors<'b>(&'b self, state: &'b ModelState<Tensor<f32>>) -> impl Iterator<Item = Vec<f32>> + 'b {
        let tensors = state.states.iter().flat_map(|state| state.tensors.iter().flatten());
        tensors.map(|tensor| self.ops.values(tensor))
    }
}
