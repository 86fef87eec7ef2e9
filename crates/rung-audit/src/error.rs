//! Why a config could not be audited: every variant names the field, what was found and what was expected.

/// Input that is malformed or contradicts itself. A layout that the file does not give is no error: see
/// [`Audit::unknown_reasons`](crate::Audit::unknown_reasons).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    /// A file could not be opened or read.
    #[error("{path}: {why}")]
    Io {
        /// The path as given.
        path: String,
        /// The operating system's message.
        why: String,
    },
    /// No file, directory or preset has that name.
    #[error("there is no file, directory or preset `{name}`{hint}")]
    NotFound {
        /// The name as given.
        name: String,
        /// A suggestion such as the nearest preset, appended to the message.
        hint: String,
    },
    /// The text is not JSON.
    #[error("not a readable config: {problem}, at line {line}, column {column}{}", in_field(.path))]
    Json {
        /// What is wrong.
        problem: String,
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
        /// Path of the field that was being parsed; empty at the top level.
        path: String,
    },
    /// The bytes are not text.
    #[error("not a readable config: byte {offset} is not UTF-8; expected a JSON text or a GGUF file")]
    NotUtf8 {
        /// Offset of the first bad byte.
        offset: usize,
    },
    /// The input is larger than any config.
    #[error("not a readable config: it is larger than {limit} bytes")]
    TooLong {
        /// The most bytes that are read.
        limit: u64,
    },
    /// The header of a GGUF file is malformed.
    #[error("not a readable GGUF header: {problem}, at byte {offset}{}", in_field(.key))]
    Gguf {
        /// What is wrong.
        problem: String,
        /// Byte offset at which parsing stopped.
        offset: u64,
        /// The metadata key, if one was being read.
        key: String,
    },
    /// A field holds something of the wrong kind or size.
    #[error("field `{path}`: found {found}, expected {expected}")]
    Field {
        /// The field, such as `text_config.layer_types[7]`.
        path: String,
        /// The value in the file.
        found: String,
        /// The values that are accepted.
        expected: String,
    },
    /// Two fields disagree.
    #[error("fields `{first}` and `{second}` contradict each other: {why}")]
    Contradiction {
        /// Path of the first field.
        first: String,
        /// Path of the second field.
        second: String,
        /// How they disagree.
        why: String,
    },
    /// A total does not fit 64 bits.
    #[error("{quantity} does not fit 64 bits; some size in the config is too large")]
    TooLarge {
        /// The quantity that is too large.
        quantity: &'static str,
    },
    /// An edit of `--what-if`, a size or an option that is not understood or not possible.
    #[error("`{text}`: {why}")]
    InvalidArgument {
        /// The text as typed.
        text: String,
        /// What is wrong with it.
        why: String,
    },
}

fn in_field(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(", in `{path}`") }
}

impl AuditError {
    pub(crate) fn field(path: impl Into<String>, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Field { path: path.into(), found: found.into(), expected: expected.into() }
    }

    /// An error about something a user typed, of which at most 80 characters are quoted.
    pub(crate) fn invalid_argument(text: &str, why: impl Into<String>) -> Self {
        Self::InvalidArgument { text: text.chars().take(80).collect(), why: why.into() }
    }
}
