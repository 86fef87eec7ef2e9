//! Why a plan has no network, or a network no answer.

use crate::memory::TooLarge;

/// Why a model could not be built or run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The plan names a mixer that the theory knows and no network exists for.
    #[error("there is no network for mixer `{mixer}`; there is one for {known}")]
    NoNetwork {
        /// The mixer.
        mixer: String,
        /// Those that can be built.
        known: String,
    },
    /// A mixer exists, but not with this option.
    #[error("mixer `{mixer}`: {what} has no network; expected {expected}")]
    Unsupported {
        /// The mixer.
        mixer: &'static str,
        /// What was asked.
        what: String,
        /// What could have been asked.
        expected: String,
    },
    /// The network is for no task, and one is needed.
    #[error("`{name}` has no task of its own: give it prompts as text")]
    NoTask {
        /// The network.
        name: String,
    },
    /// A network that was read from a checkpoint of another program and cannot be built again in another way.
    #[error("`{name}` is a checkpoint of another program; its numbers cannot be kept in few bits")]
    Foreign {
        /// The network.
        name: String,
    },
    /// Numbers that do not fit each other.
    #[error("{place}: {what} is {found}; expected {expected}")]
    Shape {
        /// The mixer, or the part of the model.
        place: &'static str,
        /// Which number.
        what: &'static str,
        /// What it is.
        found: u64,
        /// What it should be.
        expected: String,
    },
    /// A number that no model can use.
    #[error("model: {what} is {found}; expected {expected}")]
    Number {
        /// Which number.
        what: &'static str,
        /// What it is.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Two fields of a token share a name.
    #[error("two fields of a token are named `{name}`; expected different names")]
    SameField {
        /// The name.
        name: String,
    },
    /// The model would not fit a machine.
    #[error("the model would have at least {found} weights; at most {most} are allocated")]
    TooLarge {
        /// Weights counted until the limit was passed.
        found: u128,
        /// The limit.
        most: u128,
    },
    /// It does not fit the memory.
    #[error(transparent)]
    Memory(TooLarge),
    /// A token is outside of its vocabulary.
    #[error("token {position}, field `{field}`: id {found} is beyond the vocabulary of {vocabulary}")]
    Token {
        /// Its place in the given tokens.
        position: usize,
        /// The field.
        field: String,
        /// The id.
        found: u32,
        /// Ids are below this.
        vocabulary: usize,
    },
    /// A target is outside of the classes.
    #[error("target of token {position}: class {found} is beyond the {classes} classes of the model")]
    Target {
        /// Its place in the given targets.
        position: usize,
        /// The class.
        found: u32,
        /// Classes are below this.
        classes: usize,
    },
    /// The number of ids is not a whole number of equally long rows.
    #[error("{found} ids do not make {rows} equally long rows of tokens with {fields} fields each")]
    Ragged {
        /// Ids given.
        found: usize,
        /// Rows asked for.
        rows: usize,
        /// Ids per token.
        fields: usize,
    },
    /// A text beyond the learned positions.
    #[error("{found} tokens, but the model has learned positions for {most}")]
    TooLong {
        /// Tokens.
        found: usize,
        /// Positions.
        most: usize,
    },
    /// A bidirectional model was given a state.
    #[error("a bidirectional model reads a whole text at once; it cannot go on from a state")]
    NoState,
    /// The state belongs to another model or to other rows.
    #[error("the state is of {found}; expected {expected}")]
    WrongState {
        /// What it has.
        found: String,
        /// What the call needs.
        expected: String,
    },
}
