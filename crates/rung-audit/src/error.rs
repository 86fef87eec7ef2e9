//! Why a config could not be audited: every variant carries the field, what was found and what was expected.

/// Input that is malformed or contradicts itself. A layout that the file does not give is no error: see
/// [`Audit::unknown`](crate::Audit::unknown).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuditError {
    /// A file could not be opened or read.
    #[error("{path}: {why}")]
    Io {
        /// The path as given.
        path: String,
        /// What the system said.
        why: String,
    },
    /// No file, directory or preset has that name.
    #[error("there is no file, directory or preset `{name}`{hint}")]
    NotFound {
        /// The name as given.
        name: String,
        /// The nearest preset, as half a sentence.
        hint: String,
    },
    /// The text is not JSON.
    #[error("not a readable config: {what}, at line {line}, column {column}{}", in_field(.path))]
    Json {
        /// What is wrong.
        what: String,
        /// Line, from 1.
        line: usize,
        /// Column in bytes, from 1.
        column: usize,
        /// The field in which it happened; empty at the top.
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
        /// The most that is read.
        limit: u64,
    },
    /// The header of a GGUF file is malformed.
    #[error("not a readable GGUF header: {what}, at byte {offset}{}", in_field(.key))]
    Gguf {
        /// What is wrong.
        what: String,
        /// Where reading stopped.
        offset: u64,
        /// The metadata key, if one was being read.
        key: String,
    },
    /// A field holds something of the wrong kind or size.
    #[error("field `{path}`: found {found}, expected {expected}")]
    Field {
        /// The field, such as `text_config.layer_types[7]`.
        path: String,
        /// What it holds.
        found: String,
        /// What it could hold.
        expected: String,
    },
    /// Two fields disagree.
    #[error("fields `{first}` and `{second}` contradict each other: {why}")]
    Contradiction {
        /// One field.
        first: String,
        /// The other.
        second: String,
        /// What each of them says.
        why: String,
    },
    /// A total does not fit 64 bits.
    #[error("{what} does not fit 64 bits; some size in the config is too large")]
    TooLarge {
        /// Which total.
        what: &'static str,
    },
    /// An edit of `--what-if`, or a size, that is not understood.
    #[error("`{text}`: {why}")]
    Request {
        /// What was typed.
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
}
