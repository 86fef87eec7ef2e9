//! Errors of building and running models.

/// Why a model could not be built or run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The plan has a mixer that is not implemented as a network.
    #[error("mixer `{mixer}` is not implemented; expected one of {known}")]
    MixerNotImplemented {
        /// The mixer's name.
        mixer: String,
        /// Names of the implemented mixers.
        known: String,
    },
    /// The mixer is implemented, but not with this option.
    #[error("mixer `{mixer}`: {what} is not implemented; expected {expected}")]
    UnsupportedOption {
        /// The mixer's name.
        mixer: &'static str,
        /// The unsupported option.
        what: String,
        /// Supported alternatives.
        expected: String,
    },
    /// The network has no task, and the operation needs one.
    #[error("`{name}` has no task of its own: give it prompts as text")]
    NoTask {
        /// The network's name.
        name: String,
    },
    /// The network was read from an external checkpoint, so it cannot be rebuilt with other settings.
    #[error("`{name}` is an external checkpoint, whose numbers cannot be rounded to few bits")]
    ExternalCheckpoint {
        /// The network's name.
        name: String,
    },
    /// A size that does not fit the others.
    #[error("{component}: {what} is {found}; expected {expected}")]
    InvalidSize {
        /// The mixer or component of the model.
        component: &'static str,
        /// Which size.
        what: &'static str,
        /// Its value.
        found: u64,
        /// Allowed values.
        expected: String,
    },
    /// A setting outside of its allowed range.
    #[error("model: {what} is {found}; expected {expected}")]
    InvalidNumber {
        /// Which setting.
        what: &'static str,
        /// Its value.
        found: String,
        /// Allowed values.
        expected: &'static str,
    },
    /// Two fields of a token share a name.
    #[error("two fields of a token are named `{name}`; expected different names")]
    DuplicateField {
        /// The name of both fields.
        name: String,
    },
    /// The model has more weights than the limit.
    #[error("the model would have at least {found} weights; at most {max} are allocated")]
    TooLarge {
        /// Number of weights counted until the limit was exceeded.
        found: u128,
        /// The largest allowed number of weights.
        max: u128,
    },
    /// The model does not fit into memory.
    #[error(transparent)]
    Memory(TooLarge),
    /// A token is outside of its vocabulary.
    #[error("token {position}, field `{field}`: id {found} is beyond the vocabulary of {vocabulary}")]
    TokenOutOfRange {
        /// Index of the token in the input.
        position: usize,
        /// Name of the token's field.
        field: String,
        /// The token id.
        found: u32,
        /// Ids are below this.
        vocabulary: usize,
    },
    /// A target is outside of the classes.
    #[error("target of token {position}: class {found} is beyond the {classes} classes of the model")]
    TargetOutOfRange {
        /// Index of the target in the input.
        position: usize,
        /// The target class.
        found: u32,
        /// Classes are below this.
        classes: usize,
    },
    /// The number of ids is not a multiple of rows times fields.
    #[error("{found} ids do not make {rows} equally long rows of tokens with {fields} fields each")]
    UnevenRows {
        /// Number of ids.
        found: usize,
        /// Number of rows in the batch.
        rows: usize,
        /// Ids per token.
        fields: usize,
    },
    /// The sequence is longer than the table of learned positions.
    #[error("{found} tokens, but the model has learned positions for {max}")]
    TooLong {
        /// Length of the sequence in tokens.
        found: usize,
        /// Number of learned positions.
        max: usize,
    },
    /// A bidirectional model was given a state.
    #[error("a bidirectional model reads the whole sequence at once; it cannot continue from a state")]
    StateOfBidirectional,
    /// The state belongs to another model or has another batch size.
    #[error("the state is of {found}; expected {expected}")]
    WrongState {
        /// Rows and mixers of the state.
        found: String,
        /// Rows and mixers that the call needs.
        expected: String,
    },
}

/// A network, or its computation, does not fit into memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} would take about {found_mib} MiB, expected at most {limit_mib} MiB ({limit_origin})")]
pub struct TooLarge {
    /// What needs the memory.
    pub what: String,
    /// The estimate.
    pub found_mib: u128,
    /// The limit.
    pub limit_mib: u128,
    /// The origin of the limit.
    pub limit_origin: &'static str,
}
