//! Analyses: measurements inside of networks, one per file.
//!
//! An analysis answers a question about a network, which may be constructed, trained by this program, or a checkpoint. The result
//! ([`AnalysisOutput`]) is text for a terminal, JSON, and charts. The module doc of an analysis's file is its page in `rung explain`.
//!
//! A level is the embedding, or the residual stream after a layer; a hop is one table look-up of a question, and a mixer is a layer's
//! attention or recurrence.
//!
//! | analysis | question |
//! |---|---|
//! | [`probe`] | at which layer can a linear probe read each hop from the residual stream? |
//! | [`ablate`] | which mixers does each hop need? |
//! | [`precision`] | how few bits can the state have? |
//! | [`collapse`] | does the residual stream of all tokens become the same, and what prevents it? |
//! | [`logit_lens`] | at which layer does the unembedding give the answer? |
//! | [`lens`] | how much does each token contribute to an answer, at every layer? |
//! | [`state`] | what is the rank of a recurrent state, and how many bits does it need? |
//! | [`injective`] | can two queries give the same attention weights? |
//! | [`selection`] | which retrievals do the searches of compositional attention select? |
//! | [`diversity`] | do the heads of a layer differ? |
//! | [`convert`] | which full attention layers can become recurrent, and in what order? (the command `rung convert`) |
//!
//! All of them measure and prove nothing: a probe that fails does not show that the information is absent.
//!
//! To add an analysis: write its file, and add a line to [`ANALYSES`].

pub mod ablate;
mod cache_precision;
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

/// Reports how many prompts a pass has finished with, for a progress display.
#[derive(Clone, Default)]
pub struct ProgressReporter(Option<Arc<dyn Fn(usize) + Send + Sync>>);

impl ProgressReporter {
    /// Calls `advance` with the number of prompts after every batch of every pass.
    pub fn new(advance: impl Fn(usize) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(advance)))
    }

    pub(crate) fn advance(&self, prompts: usize) {
        if let Some(advance) = &self.0 {
            advance(prompts);
        }
    }
}

impl std::fmt::Debug for ProgressReporter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(if self.0.is_some() { "reported" } else { "not reported" })
    }
}

/// Options of an analysis.
#[derive(Clone, Debug, Default)]
pub struct AnalysisOptions {
    /// A task to use instead of the network's own; it must fit the network.
    pub task: Option<String>,
    /// Number of prompts; by default as many as take a few seconds.
    pub prompts: Option<usize>,
    /// Seed of the prompts.
    pub seed: u64,
    /// Text prompts, for an external checkpoint, which has no task.
    pub text: Option<Arc<TextPrompts>>,
    /// Where progress is reported.
    pub progress: ProgressReporter,
}

/// The result of an analysis.
pub struct AnalysisOutput {
    /// For a terminal.
    pub text: String,
    /// All numbers as JSON.
    pub data: Value,
    /// Charts, the most important first.
    pub charts: Vec<Box<dyn Chart>>,
}

impl AnalysisOutput {
    /// An output whose JSON is the serialized `result`.
    fn new(result: &impl Serialize, text: String, charts: Vec<Box<dyn Chart>>) -> Self {
        Self { text, data: serde_json::to_value(result).unwrap_or_default(), charts }
    }
}

/// Why an analysis fails.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The network cannot run on the prompts.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The task cannot be parsed or does not fit the network.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The analysis does not apply to the network or its options.
    #[error("{analysis}: found {found}, expected {expected}")]
    NotApplicable {
        /// The analysis.
        analysis: &'static str,
        /// The network or the option.
        found: String,
        /// What the analysis needs.
        expected: String,
    },
}

/// The function of an analysis: in single precision, or in double where sums must be exact.
#[derive(Clone, Copy)]
pub enum AnalysisFn {
    /// In `f32`.
    F32(fn(&Network<f32>, &AnalysisOptions) -> Result<AnalysisOutput, AnalysisError>),
    /// In `f64`, and in `f32` for checkpoints whose weights would not fit in `f64`.
    F64WithF32Fallback(
        fn(&Network<f64>, &AnalysisOptions) -> Result<AnalysisOutput, AnalysisError>,
        fn(&Network<f32>, &AnalysisOptions) -> Result<AnalysisOutput, AnalysisError>,
    ),
}

/// An entry of [`ANALYSES`].
pub struct Analysis {
    /// The name after `rung analyze`.
    pub name: &'static str,
    /// The source file, whose module doc is the analysis's page.
    pub source: &'static str,
    /// The analysis's function.
    pub run: AnalysisFn,
}

impl Analysis {
    /// The largest number of text prompts that it reads; `None` for no limit.
    pub fn max_text_prompts(&self) -> Option<usize> {
        match self.name {
            "lens" | "state" | "injective" => Some(1),
            "collapse" | "diversity" => Some(4),
            _ => None,
        }
    }

    /// The approximate number of forward passes over all prompts, in a network of `depth` layers.
    pub fn forward_passes(&self, depth: usize) -> usize {
        match self.name {
            "ablate" => depth + 4,
            // Two for each layer, and those of the token-to-token map.
            "lens" => 2 * depth + 70,
            "collapse" => 5,
            // One for each number of bits.
            "precision" => 6,
            _ => 1,
        }
    }
}

macro_rules! analyses {
    ($($file:ident: $run:ident;)*) => {
        /// Every analysis.
        pub const ANALYSES: &[Analysis] = &[$(Analysis {
            name: stringify!($file),
            source: include_str!(concat!(stringify!($file), ".rs")),
            run: analyses!(@ $run $file),
        }),*];
    };
    (@ F32 $file:ident) => { AnalysisFn::F32($file::run) };
    (@ F64WithF32Fallback $file:ident) => { AnalysisFn::F64WithF32Fallback($file::run::<f64>, $file::run::<f32>) };
}

analyses! {
    probe: F32;
    ablate: F32;
    logit_lens: F32;
    precision: F32;
    collapse: F64WithF32Fallback;
    lens: F64WithF32Fallback;
    state: F32;
    injective: F64WithF32Fallback;
    selection: F32;
    diversity: F32;
}

/// The page of every analysis.
pub fn pages() -> Vec<ExplainPage> {
    let page =
        |analysis: &Analysis| ExplainPage { name: analysis.name, subject: Subject::Analysis, source: analysis.source };
    let convert = ExplainPage { name: "convert", subject: Subject::Analysis, source: include_str!("convert/mod.rs") };
    ANALYSES.iter().map(page).chain([convert]).collect()
}

/// The analysis of this name.
pub fn find_analysis(name: &str) -> Option<&'static Analysis> {
    ANALYSES.iter().find(|analysis| analysis.name.eq_ignore_ascii_case(name))
}

/// Names of the layers: `0: full`, `1: gdn + window`, ..
pub(crate) fn layer_names(plan: &rung_theory::stack::Plan) -> Vec<String> {
    let name = |(index, layer): (usize, &rung_theory::stack::Layer)| {
        let mixers = layer.mixers.iter().map(rung_theory::stack::Mixer::name).collect::<Vec<_>>().join(" + ");
        format!("{index}: {mixers}")
    };
    plan.layers.iter().enumerate().map(name).collect()
}

/// Rejects networks that emit a chain of thought before the answer.
pub(crate) fn reject_chain_of_thought<S: rung_engine::Scalar>(
    analysis: &'static str,
    network: &Network<S>,
) -> Result<(), AnalysisError> {
    if network.chain_of_thought().is_none() {
        return Ok(());
    }
    let found = format!("{}, which emits a chain of thought before it answers", network.name);
    Err(AnalysisError::NotApplicable { analysis, found, expected: "a network that answers in one pass".to_owned() })
}

/// A small network for tests, with random weights large enough that its activations are not almost linear.
#[cfg(test)]
pub(crate) fn random_network<S: rung_engine::Scalar>(stack: &str) -> Network<S> {
    random_network_with(stack, |config| config)
}

/// As [`random_network`], with a changed config.
#[cfg(test)]
pub(crate) fn random_network_with<S: rung_engine::Scalar>(
    stack: &str,
    change: impl FnOnce(rung_nn::ModelConfig) -> rung_nn::ModelConfig,
) -> Network<S> {
    let run = rung_train::run::RunConfig::new(stack, "funccomp{hops=2,m=3,n=[2],queries=2,mixed=yes}");
    let run = run.with("model.heads=2").and_then(|run| run.with("model.head=8")).and_then(|run| run.resolve()).unwrap();
    let config = change(rung_nn::ModelConfig { init_std: 0.3, ..run.model.clone() });
    let mut weights = rung_engine::Parameters::new();
    let model = config.init(&run.plan, &mut weights, &mut rung_theory::task::seeded(5)).unwrap();
    let task = rung_theory::task::parse(&run.config.task).unwrap();
    Network::new(stack.to_owned(), task, (*run.plan).clone(), config, model, weights)
}
