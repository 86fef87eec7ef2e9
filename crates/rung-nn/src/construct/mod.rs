//! Constructions: weights that provably do it, built and run.
//!
//! Where a bound says "impossible", a construction says "here are the weights". Each is an ordinary [`Network`] of this crate
//! with an ordinary safetensors file: standard attention with a finite temperature, bounded-state mixers with all their gates
//! and norms, ReLU MLPs, residuals, an unembedding. Nothing is trained and nothing happens outside of the network.
//!
//! ```text
//! registers   named slices of the stream          register.rs
//! parts       look-up, snap, move, carry          part.rs, carry.rs
//! draft       layers of parts -> plan, weights    draft.rs
//! one file per construction                       u1.rs, u2.rs, ..
//! ```
//!
//! ```
//! use rung_engine::{Native, Ops};
//! use rung_nn::construct::{self, ConstructionRequest};
//! use rung_theory::task::{Prompt, seeded};
//!
//! let request = ConstructionRequest { hops: 2, m: 3, n: vec![2], ..ConstructionRequest::default() };
//! let built = construct::build::<f32>("U1", &request)?;
//! let mut prompt = Prompt::new();
//! built.task()?.prompt(&mut seeded(1), &mut prompt);
//! let ops = Native::new();
//! ops.bind_frozen(&built.weights);
//! let (_, target, _) = prompt.questions().next().unwrap();
//! let (hidden, _) = built.model.forward(&ops, prompt.tokens(), 1, None)?;
//! let scores = ops.values(&built.model.logits(&ops, &hidden));
//! let last = &scores[scores.len() - built.model.classes()..];
//! assert!(last.iter().all(|score| *score <= last[target as usize]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To add a construction: write its file, and add a line to the registry below.

mod answer;
pub mod carry;
mod chain;
pub mod draft;
mod fast_lookup;
mod layer_columns;
mod parity;
pub mod part;
mod precision;
mod register;
mod shortcut;
mod u1;
mod u2;
mod u3;
mod u4;
mod u5;
mod verify;

#[cfg(test)]
mod tests;

pub(crate) use answer::decode;
pub use answer::{Answerer, EmittedChain};
pub use carry::CarryError;
pub use draft::Draft;
pub(crate) use layer_columns::LayerColumns;
pub use layer_columns::layers_on_all_tokens;
pub use precision::MOST_BITS;
pub use register::{Register, RegisterKind, Registers, Slice, bits};
pub use verify::{InstanceSet, MAX_EXHAUSTIVE, Verification, VerifyError, WrongAnswer, verify};

use rung_engine::Scalar;
use rung_theory::stack::{Plan, StackError};
use rung_theory::task::TaskError;
use rung_theory::task::funccomp::{FuncComp, Order};
use serde::{Deserialize, Serialize};

use crate::error::ModelError;
use crate::model::NormConfig;
use crate::network::Network;

/// What is asked of a construction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstructionRequest {
    /// Hops of function composition.
    pub hops: usize,
    /// Entries of the first table.
    pub m: u32,
    /// Growth of each further table.
    pub n: Vec<u32>,
    /// The mixer that carries, where one is needed: `linear` if not said.
    pub mixer: Option<String>,
    /// Tokens (of 2-Sum) or bits (of parity).
    pub length: usize,
    /// The modulus of 2-Sum, or how many values a retrieval has.
    pub modulus: u32,
    /// Entries of a retrieval.
    pub entries: u32,
    /// The hop e whose entries look ahead, in S3; the one with the fewest branches if not said.
    pub at: Option<usize>,
    /// Candidates of S5: a power of two.
    pub candidates: u32,
    /// The norms of the model. Constructions need none; with them, a ballast in the stream keeps its length nearly the same.
    pub norm: NormConfig,
}

impl Default for ConstructionRequest {
    fn default() -> Self {
        Self {
            hops: 2,
            m: 4,
            n: vec![2],
            mixer: None,
            length: 16,
            modulus: 64,
            entries: 8,
            at: None,
            candidates: 2,
            norm: NormConfig::None,
        }
    }
}

/// Why there is no construction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstructError {
    /// No construction has this name.
    #[error("there is no construction `{found}`; there are {known}")]
    UnknownName {
        /// What was asked for.
        found: String,
        /// What there is.
        known: String,
    },
    /// An option that does not fit.
    #[error("construction {name}: {option} is {found}; expected {expected}")]
    Option {
        /// The construction.
        name: &'static str,
        /// The option.
        option: &'static str,
        /// What was given.
        found: String,
        /// What could have been given.
        expected: String,
    },
    /// A given plan lacks a layer.
    #[error("construction {name} does not fit the stack: {lack}")]
    DoesNotFit {
        /// The construction.
        name: String,
        /// What is lacking.
        lack: String,
    },
    /// The sizes make no task.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The mixer cannot carry.
    #[error(transparent)]
    Carry(#[from] CarryError),
    /// The mixer's sizes make no sense.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The network cannot be built.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// A chain of thought: tokens that the model emits and reads again before the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainOfThought {
    /// Tokens emitted, the answer included.
    pub count: usize,
    /// For each field of a token, the first class of its ids: the highest score among them is the id emitted.
    pub fields: Vec<usize>,
    /// The field of the last token that is the answer.
    pub answer: usize,
}

/// What a construction says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConstructionInfo {
    /// Its name.
    pub name: String,
    /// The task it solves, with every option.
    pub task: String,
    /// The registers of its stream.
    pub registers: Registers,
    /// What each layer does; empty for layers that do nothing.
    pub layers: Vec<String>,
    /// Tokens that it emits before the answer.
    pub thoughts: Option<ChainOfThought>,
}

/// A construction as the registry knows it.
#[derive(Debug)]
pub struct ConstructionKind {
    /// The name users type; case does not matter.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Whether a mixer can be chosen.
    pub carries: bool,
    draft: fn(&ConstructionRequest) -> Result<Draft, ConstructError>,
}

/// Every construction.
pub static KINDS: &[ConstructionKind] = &[
    kind("U1", "L+1 full layers: w reads z_0, then looks up one table per layer", false, u1::draft),
    kind("U2", "a carrier of z_0, then L full layers", true, u2::before),
    kind("U2'", "a full layer, a carrier of i_1, then L-1 full layers", true, u2::after),
    kind("U3", "one full layer and L+1 thoughts", false, u3::alone),
    kind("U4", "floor(log2 L)+2 bidirectional full layers: pointers double", false, u4::bidirectional),
    kind("U4-causal", "the same, causal, with the query in front", false, u4::query_first),
    kind("U5", "one full layer: 2-Sum at the last token", false, u5::last),
    kind("U5-all", "one full layer: 2-Sum at every token", false, u5::everywhere),
    kind("U6", "a carrier of z_0, one full layer and L thoughts", true, u3::with_carrier),
    kind("S2", "a carrier of z_0, a state that holds z_1, then L-1 full layers", true, shortcut::table_in_state),
    kind("S3", "entries look ahead: L full layers, or a carrier and L-1", true, shortcut::prefetch),
    kind("S4", "L full layers, the first of which reads all of z_1", false, shortcut::speculation),
    kind("S5", "a state that narrows z_1 down, then L-1 full layers that try the rest", true, shortcut::candidates),
    kind("parity", "one DeltaNet layer with negative eigenvalues: parity", false, parity::parity),
    kind("parity-retrieval", "that, and one full layer: parity-conditioned retrieval", false, parity::retrieval),
];

const fn kind(
    name: &'static str,
    about: &'static str,
    carries: bool,
    draft: fn(&ConstructionRequest) -> Result<Draft, ConstructError>,
) -> ConstructionKind {
    ConstructionKind { name, about, carries, draft }
}

/// The construction of this name.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> Result<&'static ConstructionKind, ConstructError> {
    let plain = |name: &str| name.to_ascii_lowercase().replace("-prime", "'").replace("prime", "'");
    KINDS.iter().find(|kind| plain(kind.name) == plain(name)).ok_or_else(|| ConstructError::UnknownName {
        found: name.to_owned(),
        known: KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", "),
    })
}

/// Builds a construction in the smallest plan that holds it.
///
/// # Errors
/// There is none of this name, or the request does not fit it.
pub fn build<S: Scalar>(name: &str, request: &ConstructionRequest) -> Result<Network<S>, ConstructError> {
    draft(name, request)?.finish(None)
}

/// Builds a construction in the layers of a plan; the stream may become wider. Layers it does not need stay zero.
///
/// # Errors
/// As [`build`], or the plan has no layers for it.
pub fn build_on<S: Scalar>(
    name: &str,
    request: &ConstructionRequest,
    plan: &Plan,
) -> Result<Network<S>, ConstructError> {
    draft(name, request)?.finish(Some(plan))
}

fn draft(name: &str, request: &ConstructionRequest) -> Result<Draft, ConstructError> {
    let mut draft = (find(name)?.draft)(request)?;
    draft.norm(request.norm);
    Ok(draft)
}

impl ConstructionRequest {
    fn funccomp(&self) -> Result<FuncComp, ConstructError> {
        self.funccomp_in(Order::Hard)
    }

    fn funccomp_in(&self, order: Order) -> Result<FuncComp, ConstructError> {
        if self.n.len() + 1 != self.hops {
            let expected = format!("{} numbers, one less than the hops", self.hops.saturating_sub(1));
            let found = format!("{} numbers", self.n.len());
            return Err(ConstructError::Option { name: "of composition", option: "n", found, expected });
        }
        Ok(FuncComp::new(self.m, &self.n, order, 1, false)?)
    }

    fn mixer(&self) -> &str {
        self.mixer.as_deref().unwrap_or("linear")
    }
}
