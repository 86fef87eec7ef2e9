//! Stacks: what users type, and the resolved plan that everything else reads.
//!
//! ```text
//! linear*3 (full gdn*3)*12          three linear layers, then a group of four, twelve times
//! mamba2{heads=8,head=64,state=128} options in braces; whatever is not given has a default
//! full+mamba2                       two mixers side by side in one layer
//! ```
//!
//! Text is read by [`grammar`] into a [`Stack`] (which prints back what it read), and resolved by [`plan`] into a
//! [`Plan`]: every layer, every number explicit. [`capacity`] counts what the hierarchy theorem counts: full
//! layers, the blocks between them, and the hop that a well-placed bounded-state layer adds.

pub mod capacity;
pub mod grammar;
pub mod mixer;
pub mod plan;

pub use capacity::Capacity;
pub use grammar::Stack;
pub use mixer::{Facts, Forwarding, Mixer, MixerReach};
pub use plan::{Convention, Defaults, Layer, Plan};

use crate::page::ExplainPage;
use crate::spec::SyntaxError;

/// Why a stack could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StackError {
    /// The text does not follow the grammar.
    #[error("stack, {0}")]
    Syntax(SyntaxError),
    /// There is no layer at all.
    #[error("the stack is empty; expected at least one layer, such as `full`")]
    Empty,
    /// Written out, it would be too long.
    #[error("the stack has {found} layers; at most {} are read", plan::MAX_LAYERS)]
    TooManyLayers {
        /// How many the text asks for.
        found: String,
    },
    /// No such mixer.
    #[error("there is no mixer `{name}`{}; `rung explain` lists them", suggestion(.nearest.as_deref()))]
    UnknownMixer {
        /// What was typed.
        name: String,
        /// The name it is nearest to.
        nearest: Option<String>,
    },
    /// The mixer has no such option.
    #[error("mixer `{mixer}` has no option `{option}`{}; it has {known}", suggestion(.nearest.as_deref()))]
    UnknownOption {
        /// The mixer.
        mixer: &'static str,
        /// What was typed.
        option: String,
        /// The option it is nearest to.
        nearest: Option<String>,
        /// The options it has.
        known: String,
    },
    /// An option's value is out of range.
    #[error("mixer `{mixer}`, option `{option}`: found {found}, expected {expected}")]
    BadOption {
        /// The mixer.
        mixer: &'static str,
        /// The option.
        option: &'static str,
        /// What was typed.
        found: String,
        /// What could have been typed.
        expected: String,
    },
    /// A default of the whole stack is out of range.
    #[error("{name}: found {found}, expected {expected}")]
    BadDefault {
        /// Which.
        name: &'static str,
        /// What was given.
        found: u64,
        /// What could have been given.
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
