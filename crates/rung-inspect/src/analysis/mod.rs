//! Looking inside of networks, one instrument per file.
//!
//! An instrument takes any network of the project — constructed, or trained here, or with weights that were saved here — and a
//! question about what happens in it. The answer is plain data ([`Finding`]): text for a terminal, JSON, and charts. The essay on
//! top of an instrument's file is its page in `rung explain`.
//!
//! | instrument | question |
//! |---|---|
//! | [`probe`] | at which layer can each hop be read off the stream? |
//! | [`ablate`] | which mixers does each hop need? |
//! | [`precision`] | how few bits can the state have? |
//! | [`collapse`] | do all tokens become the same, and what keeps them apart? |
//! | [`logit_lens`] | at which layer does the read-out find the answer? |
//! | [`lens`] | which tokens is an answer made of, at every layer? |
//! | [`state`] | how many directions does a recurrent state use, and how many bits? |
//! | [`injective`] | can two queries read the same? |
//! | [`selection`] | which search takes which retrieval? |
//! | [`diversity`] | do heads do different things? |
//! | [`convert`] | which full layers can become linear, and in what order? (a command of its own) |
//!
//! All of them measure: a probe that finds nothing has not shown that nothing is there.
//!
//! To add an instrument: write its file, and add a line to [`INSTRUMENTS`].

pub mod ablate;
mod carried_precision;
pub mod collapse;
pub mod convert;
pub mod diversity;
pub mod injective;
pub mod lens;
pub mod logit_lens;
pub mod matrix;
pub mod pass;
pub mod paths;
pub mod precision;
pub mod probe;
pub mod questions;
pub mod selection;
pub mod state;
pub mod text_prompts;

use std::sync::Arc;

use rung_nn::ModelError;
use rung_theory::page::{ExplainPage, Subject};
use serde::Serialize;
use serde_json::Value;

use rung_figure::figure::Chart;
use rung_nn::Network;
use rung_train::run::RunError;

use text_prompts::TextPrompts;

/// What is asked of an instrument.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct InstrumentOptions {
    /// Another task than the network's own, that fits it.
    pub task: Option<String>,
    /// Prompts to use, instead of as many as take a few seconds.
    pub prompts: Option<usize>,
    /// Which prompts.
    pub seed: u64,
    /// Prompts as text, for a checkpoint of another program, which has no task.
    pub text: Option<Arc<TextPrompts>>,
}

/// What an instrument found.
pub struct Finding {
    /// For a terminal.
    pub text: String,
    /// All numbers.
    pub data: Value,
    /// Pictures, the most telling first.
    pub charts: Vec<Box<dyn Chart>>,
}

impl Finding {
    /// All three views of what was found.
    fn of(found: &impl Serialize, text: String, charts: Vec<Box<dyn Chart>>) -> Self {
        Self { text, data: serde_json::to_value(found).unwrap_or_default(), charts }
    }
}

/// Why there is nothing to find.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The network refused.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The task does not fit.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The instrument does not fit the network.
    #[error("{instrument}: found {found}, expected {expected}")]
    Unfit {
        /// The instrument.
        instrument: &'static str,
        /// What the network has.
        found: String,
        /// What it would need.
        expected: String,
    },
}

/// How an instrument is run: in single precision, or in double where sums must be exact.
#[derive(Clone, Copy)]
pub enum InstrumentFn {
    /// In `f32`.
    Single(fn(&Network<f32>, &InstrumentOptions) -> Result<Finding, AnalysisError>),
    /// In `f64`; in `f32` where weights are too many for that.
    Double(
        fn(&Network<f64>, &InstrumentOptions) -> Result<Finding, AnalysisError>,
        fn(&Network<f32>, &InstrumentOptions) -> Result<Finding, AnalysisError>,
    ),
}

/// An instrument.
pub struct Instrument {
    /// What users type.
    pub name: &'static str,
    /// Its file, whose essay is its page.
    pub source: &'static str,
    /// How it is run.
    pub run: InstrumentFn,
}

impl Instrument {
    /// The most prompts as text that it reads, if it reads few.
    pub fn prompts(&self) -> Option<usize> {
        match self.name {
            "lens" | "state" | "injective" => Some(1),
            "collapse" | "diversity" => Some(4),
            _ => None,
        }
    }

    /// How many times it reads all prompts in a network of so many layers, about.
    pub fn passes(&self, depth: usize) -> usize {
        match self.name {
            "ablate" => depth + 4,
            // One for each level, forward and back, and those that map every token to every other.
            "lens" => 2 * depth + 70,
            "collapse" => 5,
            // Token by token, once for each number of bits.
            "precision" => 6,
            _ => 1,
        }
    }
}

macro_rules! instruments {
    ($($file:ident: $run:ident;)*) => {
        /// Every instrument.
        pub const INSTRUMENTS: &[Instrument] = &[$(Instrument {
            name: stringify!($file),
            source: include_str!(concat!(stringify!($file), ".rs")),
            run: instruments!(@ $run $file),
        }),*];
    };
    (@ Single $file:ident) => { InstrumentFn::Single($file::find) };
    (@ Double $file:ident) => { InstrumentFn::Double($file::find::<f64>, $file::find::<f32>) };
}

instruments! {
    probe: Single;
    ablate: Single;
    logit_lens: Single;
    precision: Single;
    collapse: Double;
    lens: Double;
    state: Single;
    injective: Double;
    selection: Single;
    diversity: Single;
}

/// The page of every instrument.
pub fn pages() -> Vec<ExplainPage> {
    let page = |one: &Instrument| ExplainPage { name: one.name, subject: Subject::Instrument, source: one.source };
    let convert = ExplainPage { name: "convert", subject: Subject::Instrument, source: include_str!("convert/mod.rs") };
    INSTRUMENTS.iter().map(page).chain([convert]).collect()
}

/// The instrument of this name.
pub fn instrument(name: &str) -> Option<&'static Instrument> {
    INSTRUMENTS.iter().find(|one| one.name.eq_ignore_ascii_case(name))
}

/// `0: full`, `1: gdn + window`, ..: the layers of a network.
pub(crate) fn layer_names(plan: &rung_theory::stack::Plan) -> Vec<String> {
    let name = |(index, layer): (usize, &rung_theory::stack::Layer)| {
        let mixers = layer.mixers.iter().map(rung_theory::stack::Mixer::name).collect::<Vec<_>>().join(" + ");
        format!("{index}: {mixers}")
    };
    plan.layers.iter().enumerate().map(name).collect()
}

/// Refuses networks that say something between question and answer.
pub(crate) fn require_one_pass<S: rung_engine::Scalar>(
    instrument: &'static str,
    network: &Network<S>,
) -> Result<(), AnalysisError> {
    if network.chain_of_thought().is_none() {
        return Ok(());
    }
    let found = format!("{}, which emits a chain of thought before it answers", network.name);
    Err(AnalysisError::Unfit { instrument, found, expected: "a network that answers in one pass".to_owned() })
}

/// A small network with fresh weights, large enough that nothing is linear, for tests.
#[cfg(test)]
pub(crate) fn sample<S: rung_engine::Scalar>(stack: &str) -> Network<S> {
    sample_with(stack, |config| config)
}

/// The same, with another config.
#[cfg(test)]
pub(crate) fn sample_with<S: rung_engine::Scalar>(
    stack: &str,
    change: impl FnOnce(rung_nn::ModelConfig) -> rung_nn::ModelConfig,
) -> Network<S> {
    let run = rung_train::run::RunConfig::new(stack, "funccomp{hops=2,m=3,n=[2],queries=2,mixed=yes}");
    let run = run.with("model.heads=2").and_then(|run| run.with("model.head=8")).and_then(|run| run.resolve()).unwrap();
    let config = change(rung_nn::ModelConfig { deviation: 0.3, ..run.model.clone() });
    let mut weights = rung_engine::Parameters::new();
    let model = config.init(&run.plan, &mut weights, &mut rung_theory::task::seeded(5)).unwrap();
    let task = rung_theory::task::parse(&run.config.task).unwrap();
    Network::new(stack.to_owned(), task, run.plan, config, model, weights)
}
