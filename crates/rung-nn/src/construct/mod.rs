//! Constructions: explicit weights that provably solve a task, built and run.
//!
//! A lower bound proves that a stack cannot solve a task; a construction proves that a stack can, by its weights. Each is an ordinary
//! [`Network`] of this crate with an ordinary safetensors file: standard attention with a finite temperature, bounded-state mixers with
//! all their gates and norms, ReLU MLPs, residuals, an unembedding. Nothing is trained, and the network computes the whole answer.
//!
//! ```text
//! registers         named columns of the residual stream      register.rs
//! building blocks   lookup heads, rounding neurons            blocks.rs, forwarding.rs
//! builder           layers of blocks -> plan, weights         builder.rs, weight_writer.rs
//! one file per construction                                   u1.rs, u2.rs, ..
//! ```
//!
//! ```
//! use rung_engine::{Native, Ops};
//! use rung_nn::construct::{self, ConstructionRequest};
//! use rung_theory::task::{Prompt, seeded};
//!
//! let request = ConstructionRequest { hops: 2, first_table_entries: 3, growth_factors: vec![2], ..ConstructionRequest::default() };
//! let network = construct::build::<f32>("U1", &request)?;
//! let mut prompt = Prompt::new();
//! network.task()?.sample_prompt(&mut seeded(1), &mut prompt);
//! let ops = Native::new();
//! ops.bind_frozen(&network.weights);
//! let (_, target, _) = prompt.questions().next().unwrap();
//! let (hidden, _) = network.model.forward(&ops, prompt.tokens(), 1, None)?;
//! let logits = ops.values(&network.model.logits(&ops, &hidden));
//! let last = &logits[logits.len() - network.model.classes()..];
//! assert!(last.iter().all(|logit| *logit <= last[target as usize]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To add a construction: write its file, and add a line to the registry below.

mod answer;
pub mod blocks;
pub mod builder;
mod composition;
mod fast_lookup;
pub mod forwarding;
mod layer_columns;
mod parity;
mod precision;
mod shortcut;
mod u1;
mod u2;
mod u3;
mod u4;
mod u5;
mod verify;
mod weight_writer;

#[cfg(test)]
mod tests;

pub use crate::network::{ChainOfThought, ConstructionInfo};
pub use crate::register::{ColumnRange, Register, RegisterKind, Registers, bits_for};
pub(crate) use answer::decode_chains;
pub use answer::{Answerer, EmittedChain};
pub use builder::ConstructionBuilder;
pub use forwarding::ForwardingError;
pub(crate) use layer_columns::LayerColumns;
pub use layer_columns::layers_on_all_tokens;
pub use precision::MAX_BITS;
pub use verify::{InstanceSet, MAX_EXHAUSTIVE, Verification, VerifyError, WrongAnswer, verify};

use rung_engine::Scalar;
use rung_theory::stack::{Plan, StackError};
use rung_theory::task::TaskError;
use rung_theory::task::funccomp::{FuncComp, Order};

use crate::error::ModelError;
use crate::model::NormConfig;
use crate::network::Network;

/// Options of a construction. Each construction uses only some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConstructionRequest {
    /// Hops of function composition, L.
    pub hops: usize,
    /// Entries of the first table.
    pub first_table_entries: u32,
    /// How many times larger each further table is.
    pub growth_factors: Vec<u32>,
    /// The mixer of the forwarding layers, if the construction has any: `linear` by default.
    pub mixer: Option<String>,
    /// Tokens of 2-Sum, or bits of parity.
    pub length: usize,
    /// Modulus of 2-Sum and Match2.
    pub modulus: u32,
    /// Number of values of `parity-retrieval`.
    pub value_count: u32,
    /// Entries of a retrieval.
    pub entries: u32,
    /// The hop whose entries prefetch from the next table, in S3; by default the one whose next table has the fewest row groups.
    pub prefetch_hop: Option<usize>,
    /// Candidates of S5: a power of two.
    pub candidates: u32,
    /// The norms of the model. Constructions need none; with norms, large constant columns keep the length of all vectors nearly equal.
    pub norm: NormConfig,
}

impl Default for ConstructionRequest {
    fn default() -> Self {
        Self {
            hops: 2,
            first_table_entries: 4,
            growth_factors: vec![2],
            mixer: None,
            length: 16,
            modulus: 64,
            value_count: 64,
            entries: 8,
            prefetch_hop: None,
            candidates: 2,
            norm: NormConfig::None,
        }
    }
}

/// Why a construction cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstructError {
    /// No construction has this name.
    #[error("there is no construction `{found}`; there are {known}")]
    UnknownName {
        /// The name in the request.
        found: String,
        /// Every known name, separated by commas.
        known: String,
    },
    /// An option has a value that the construction does not accept.
    #[error("construction {name}: {option} is {found}; expected {expected}")]
    InvalidOption {
        /// The construction.
        name: &'static str,
        /// The option.
        option: &'static str,
        /// Its value in the request.
        found: String,
        /// The accepted values.
        expected: String,
    },
    /// There is not one growth factor for each table after the first.
    #[error("n has {found} numbers; expected {expected}, one less than the hops")]
    GrowthFactorCount {
        /// The number of growth factors in the request.
        found: usize,
        /// One less than the hops.
        expected: usize,
    },
    /// A given plan has no layer for one of the construction's.
    #[error("construction {name} does not fit the stack: {reason}")]
    DoesNotFit {
        /// The construction.
        name: String,
        /// What the plan does not have.
        reason: String,
    },
    /// The options do not form a valid task.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The mixer cannot be used in a forwarding layer.
    #[error(transparent)]
    Forwarding(#[from] ForwardingError),
    /// The mixer's sizes are invalid.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// The network cannot be built.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// An entry of the registry of constructions.
#[derive(Debug)]
pub struct ConstructionKind {
    /// The name users type; case does not matter.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// Whether it has forwarding layers, so that a mixer can be chosen.
    pub has_forwarding: bool,
    build_layers: BuildLayers,
}

/// Every construction.
pub static KINDS: &[ConstructionKind] = &[
    kind("U1", "L+1 full layers: the query reads the start value, then looks up one table per layer", u1::build_layers),
    kind_with_forwarding("U2", "a layer that forwards the start value, then L full layers", u2::forward_then_lookups),
    kind_with_forwarding(
        "U2'",
        "a full layer, a layer that forwards the first result, then L-1 full layers",
        u2::lookup_then_forward,
    ),
    kind("U3", "one full layer: emits L thoughts, then the answer", u3::full_layer_only),
    kind("U4", "floor(log2 L)+2 bidirectional full layers: pointer doubling", u4::bidirectional),
    kind("U4-causal", "floor(log2 L)+2 causal full layers, with the query in front: pointer doubling", u4::query_first),
    kind("U5", "one full layer: 2-Sum at the last token", u5::at_last_token),
    kind("U5-all", "one full layer: 2-Sum at every token", u5::at_every_token),
    kind_with_forwarding(
        "U6",
        "a layer that forwards the start value, one full layer: emits L-1 thoughts, then the answer",
        u3::forwarding_and_full_layer,
    ),
    kind_with_forwarding(
        "S2",
        "a layer that forwards the start value, a state that holds the first table, then L-1 full layers",
        shortcut::table_in_state,
    ),
    kind_with_forwarding(
        "S3",
        "entries prefetch the next entry: L full layers, or a forwarding layer and L-1",
        shortcut::prefetch,
    ),
    kind("S4", "L full layers, the first of which reads all of the first table", shortcut::speculation),
    kind_with_forwarding(
        "S5",
        "a state that narrows the first table down, then L-1 full layers that check the remaining candidates",
        shortcut::candidates,
    ),
    kind("parity", "one DeltaNet layer with negative eigenvalues: parity", parity::parity),
    kind(
        "parity-retrieval",
        "the layer of `parity`, then one full layer: parity-conditioned retrieval",
        parity::retrieval,
    ),
];

type BuildLayers = fn(&ConstructionRequest) -> Result<ConstructionBuilder, ConstructError>;

const fn kind(name: &'static str, about: &'static str, build_layers: BuildLayers) -> ConstructionKind {
    ConstructionKind { name, about, has_forwarding: false, build_layers }
}

/// A construction with forwarding layers.
const fn kind_with_forwarding(name: &'static str, about: &'static str, build_layers: BuildLayers) -> ConstructionKind {
    ConstructionKind { name, about, has_forwarding: true, build_layers }
}

/// The construction of this name.
///
/// # Errors
/// No construction has this name.
pub fn find(name: &str) -> Result<&'static ConstructionKind, ConstructError> {
    let normalize = |name: &str| name.to_ascii_lowercase().replace("-prime", "'").replace("prime", "'");
    KINDS.iter().find(|kind| normalize(kind.name) == normalize(name)).ok_or_else(|| ConstructError::UnknownName {
        found: name.to_owned(),
        known: KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", "),
    })
}

/// Builds a construction in the smallest plan that fits it.
///
/// # Errors
/// No construction has this name, or it does not accept the request.
pub fn build<S: Scalar>(name: &str, request: &ConstructionRequest) -> Result<Network<S>, ConstructError> {
    configured_builder(name, request)?.build(None)
}

/// Builds a construction in the layers of a plan, whose residual stream may become wider. Layers that it does not need stay zero.
///
/// # Errors
/// As [`build`], or the plan has no layers for it.
pub fn build_on<S: Scalar>(
    name: &str,
    request: &ConstructionRequest,
    plan: &Plan,
) -> Result<Network<S>, ConstructError> {
    configured_builder(name, request)?.build(Some(plan))
}

fn configured_builder(name: &str, request: &ConstructionRequest) -> Result<ConstructionBuilder, ConstructError> {
    let mut builder = (find(name)?.build_layers)(request)?;
    builder.add_norms(request.norm);
    Ok(builder)
}

impl ConstructionRequest {
    fn funccomp(&self) -> Result<FuncComp, ConstructError> {
        self.funccomp_in_order(Order::LastTableFirst)
    }

    fn funccomp_in_order(&self, order: Order) -> Result<FuncComp, ConstructError> {
        if self.growth_factors.len() + 1 != self.hops {
            return Err(ConstructError::GrowthFactorCount {
                found: self.growth_factors.len(),
                expected: self.hops.saturating_sub(1),
            });
        }
        Ok(FuncComp::new(self.first_table_entries, &self.growth_factors, order, 1, false)?)
    }

    fn forwarding_mixer(&self) -> &str {
        self.mixer.as_deref().unwrap_or("linear")
    }
}
