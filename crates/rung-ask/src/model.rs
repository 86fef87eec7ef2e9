//! The trait of models that answer questions: an inference server, or a checkpoint that Rung runs itself.

/// A language model that answers prompts. Its methods are called from several threads at once.
pub trait AnsweringModel: Sync {
    /// Protocol and name of the model, for the record.
    fn describe(&self) -> ModelDescription;

    /// The tokens of a text without special tokens, or none if the model offers no tokenizer.
    ///
    /// # Errors
    /// The model could not be reached.
    fn tokenize(&self, text: &str) -> Result<Option<Vec<u32>>, AskError>;

    /// The distribution of the first token after a prompt.
    ///
    /// # Errors
    /// The model could not be reached, or its reply does not follow the protocol.
    fn next_token(&self, prompt: &str) -> Result<Reply, AskError>;

    /// Continues a prompt greedily by up to `max_tokens` tokens.
    ///
    /// # Errors
    /// As [`next_token`](Self::next_token).
    fn generate(&self, prompt: &str, max_tokens: usize) -> Result<Reply, AskError>;
}

/// Protocol and name of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ModelDescription {
    /// Name of the server's protocol, or `rung` for a checkpoint that runs in this process.
    pub protocol: String,
    /// Name of the model as the server reports it.
    pub model: String,
}

/// A reply of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// The generated text.
    pub text: String,
    /// The most likely first tokens; empty if the server does not give log-probabilities.
    pub first_token_candidates: Vec<TokenProbability>,
    /// Whether the model reasoned before it answered, although it was asked not to.
    pub has_reasoning: bool,
}

/// One possible first token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenProbability {
    /// Its text, with leading white space.
    pub text: String,
    /// From 0 to 1.
    pub probability: f64,
}

/// Why a question could not be asked or answered.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// A task or an option for which no prompt exists.
    #[error("{0}")]
    Unsupported(String),
    /// Fewer single-token symbols than answers.
    #[error("answer symbols: found {found} that are single tokens of this model, expected {expected}")]
    TooFewSymbols {
        /// Number of single-token symbols.
        found: usize,
        /// Number of different answers.
        expected: usize,
    },
    /// The server could not be reached, or closed the connection.
    #[error("{url}: {cause}")]
    Unreachable {
        /// The address, without credentials.
        url: String,
        /// The error of the connection.
        cause: String,
    },
    /// The server replied with an HTTP error status.
    #[error("{url}: the server answered with status {status}: {message}")]
    Status {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The start of the reply's body.
        message: String,
        /// Seconds after which to try again, if the reply has a `Retry-After` header.
        retry_after: Option<u64>,
    },
    /// A reply whose JSON does not follow the protocol.
    #[error("{url}: found {found}, expected {expected}")]
    UnexpectedResponse {
        /// The address.
        url: String,
        /// What the reply contains.
        found: String,
        /// What the protocol requires.
        expected: String,
    },
    /// A record that cannot be read or written.
    #[error("{path}: {cause}")]
    File {
        /// Path of the file.
        path: String,
        /// The error.
        cause: String,
    },
}

impl AskError {
    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::UnexpectedResponse { .. } => true,
            Self::Status { status, .. } => *status == 408 || *status == 429 || *status >= 500,
            _ => false,
        }
    }

    /// An error about a file.
    pub fn file(path: &std::path::Path, cause: impl std::fmt::Display) -> Self {
        Self::File { path: path.display().to_string(), cause: format!("{cause}") }
    }
}
