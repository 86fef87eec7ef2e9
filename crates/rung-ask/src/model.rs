//! What can be asked: a server, or a checkpoint that Rung runs itself.

/// A language model that answers prompts. Called from several threads at once.
pub trait AnsweringModel: Sync {
    /// What answers, for the record.
    fn describe(&self) -> ServerDescription;

    /// The tokens of a text without special tokens, or none if the model does not say.
    ///
    /// # Errors
    /// The model could not be reached.
    fn tokenize(&self, text: &str) -> Result<Option<Vec<u32>>, AskError>;

    /// The distribution of the first token after a prompt.
    ///
    /// # Errors
    /// The model could not be reached, or its reply has another shape than its protocol says.
    fn next_token(&self, prompt: &str) -> Result<Reply, AskError>;

    /// What the model writes after a prompt, greedily, up to so many tokens.
    ///
    /// # Errors
    /// As [`next_token`](Self::next_token).
    fn write(&self, prompt: &str, tokens: usize) -> Result<Reply, AskError>;
}

/// What answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ServerDescription {
    /// How it is spoken to: a protocol's name, or `rung` for a checkpoint that runs here.
    pub protocol: String,
    /// The model's own name, if it says one.
    pub model: String,
}

/// A reply of a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// What was generated.
    pub text: String,
    /// The most likely first tokens; empty if the server does not give log-probabilities.
    pub first_token: Vec<TokenProbability>,
    /// Whether the model reasoned before it answered, although it was asked not to.
    pub reasoned: bool,
}

/// One possible first token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenProbability {
    /// Its text, with leading white space.
    pub text: String,
    /// From 0 to 1.
    pub probability: f64,
}

/// Why a question could not be put or answered.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// A task or an option that has no prompt.
    #[error("{0}")]
    Unsupported(String),
    /// Too few single tokens for the answers.
    #[error("answer symbols: found {found} that are single tokens of this model, expected {expected}")]
    TooFewSymbols {
        /// How many fit.
        found: usize,
        /// How many answers there are.
        expected: usize,
    },
    /// The server could not be reached, or went away.
    #[error("{url}: {cause}")]
    Unreachable {
        /// The address, without credentials.
        url: String,
        /// What the connection said.
        cause: String,
    },
    /// The server refused.
    #[error("{url}: the server answered with status {status}: {message}")]
    Status {
        /// The address.
        url: String,
        /// The HTTP status.
        status: u16,
        /// The start of its body.
        message: String,
        /// Seconds after which to try again, if the server said so.
        retry_after: Option<u64>,
    },
    /// A reply that is not what the protocol says.
    #[error("{url}: found {found}, expected {expected}")]
    Shape {
        /// The address.
        url: String,
        /// What the reply has.
        found: String,
        /// What it should have.
        expected: String,
    },
    /// A record that cannot be read or written.
    #[error("{path}: {cause}")]
    File {
        /// Which file.
        path: String,
        /// What is wrong.
        cause: String,
    },
}

impl AskError {
    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Shape { .. } => true,
            Self::Status { status, .. } => *status == 408 || *status == 429 || *status >= 500,
            _ => false,
        }
    }

    /// An error of a file.
    pub fn file(path: &std::path::Path, cause: impl std::fmt::Display) -> Self {
        Self::File { path: path.display().to_string(), cause: format!("{cause}") }
    }
}
