//! Stacks: what users type, and the resolved plan that everything else reads.
//!
//! ```text
//! linear*3 (full gdn*3)*12          three linear layers, then a group of four, twelve times
//! mamba2{heads=8,head=64,state=128} options in braces; all have defaults
//! full+mamba2                       two mixers in parallel in one layer
//! ```
//!
//! [`grammar`] parses text into a [`Stack`], and [`plan`] resolves it into a [`Plan`]: every layer, every number explicit.
//! [`capacity`] computes the number of hops: it counts full layers, the blocks between them, and the hop that a bounded-state
//! layer near the front adds.

pub mod capacity;
pub mod grammar;
pub mod mixer;
pub mod plan;

pub use capacity::Capacity;
pub use grammar::Stack;
pub use mixer::{Facts, Forwarding, Mixer, MixerReach};
pub use plan::{Defaults, Layer, MessageSizeConvention, Plan};

use crate::page::ExplainPage;
use crate::spec::SyntaxError;

/// Why a stack could not be parsed or resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StackError {
    /// The text does not follow the grammar.
    #[error("stack, {0}")]
    Syntax(SyntaxError),
    /// There is no layer at all.
    #[error("the stack is empty; expected at least one layer, such as `full`")]
    Empty,
    /// It has too many layers after expansion.
    #[error("the stack has {found} layers; at most {} are read", plan::MAX_LAYERS)]
    TooManyLayers {
        /// The number of layers, or a lower bound of it.
        found: String,
    },
    /// It has too many mixers after expansion.
    #[error("the stack has {found} mixers; at most {} are read", plan::MAX_LAYERS)]
    TooManyMixers {
        /// The number of mixers, or a lower bound of it.
        found: String,
    },
    /// It has too many different layers.
    #[error("the stack has more than {} different layers", plan::MAX_DISTINCT_LAYERS)]
    TooManyDistinctLayers,
    /// A mixer's state, message or cache is too large to be added up without overflow.
    #[error("mixer `{mixer}`: found {quantity} of {found} bits, expected at most 2^{}", mixer::MAX_LOG2_BITS)]
    TooManyBits {
        /// The mixer with all of its options.
        mixer: String,
        /// What has so many bits.
        quantity: &'static str,
        /// Its number of bits, or `more than 2^128`.
        found: String,
    },
    /// No such mixer.
    #[error("there is no mixer `{name}`{}; `rung explain` lists them", suggestion(.nearest.as_deref()))]
    UnknownMixer {
        /// What was typed.
        name: String,
        /// The most similar known name, if any.
        nearest: Option<String>,
    },
    /// The mixer has no such option.
    #[error("mixer `{mixer}` has no option `{option}`{}; it has {known}", suggestion(.nearest.as_deref()))]
    UnknownOption {
        /// The mixer's name.
        mixer: &'static str,
        /// What was typed.
        option: String,
        /// The most similar option, if any.
        nearest: Option<String>,
        /// All options of the mixer, separated by commas.
        known: String,
    },
    /// An option's value is out of range.
    #[error("mixer `{mixer}`, option `{option}`: found {found}, expected {expected}")]
    BadOption {
        /// The mixer's name.
        mixer: &'static str,
        /// The option's name.
        option: &'static str,
        /// What was typed.
        found: String,
        /// The allowed values, in words.
        expected: String,
    },
    /// A default of the whole stack is out of range.
    #[error("{name}: found {found}, expected {expected}")]
    BadDefault {
        /// The name of the default.
        name: &'static str,
        /// The given value.
        found: u64,
        /// The allowed range.
        expected: String,
    },
}

impl From<SyntaxError> for StackError {
    fn from(error: SyntaxError) -> Self {
        Self::Syntax(error)
    }
}

fn suggestion(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// The pages of all mixers.
pub fn pages() -> Vec<ExplainPage> {
    mixer::pages()
}
