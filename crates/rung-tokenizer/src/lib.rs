//! Encodes text to tokens and decodes it, with the tokenizers of public checkpoints.
//!
//! A Hugging Face folder has a `tokenizer.json`, which the `tokenizers` crate reads. A GGUF file has its vocabulary in its header; module
//! `gguf` converts it to a `tokenizer.json` in memory, so that the same crate does all merging.
//!
//! ```no_run
//! use rung_tokenizer::Tokenizer;
//!
//! if let Some(tokenizer) = Tokenizer::open("model.gguf".as_ref())? {
//!     let tokens = tokenizer.encode("The capital of France")?;
//!     assert_eq!(tokenizer.decode(&tokens)?, "The capital of France");
//! }
//! # Ok::<(), rung_tokenizer::TokenizerError>(())
//! ```

mod components;
mod gguf;
mod pre_tokenizer;

use std::any::Any;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A `tokenizer.json` with more bytes is an error: the largest have forty megabytes.
const MAX_BYTES: u64 = 128 << 20;
/// Token ids must be below this.
const MAX_ID: u32 = 1 << 24;

/// Why a vocabulary could not be read, or a text not encoded or decoded.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A file could not be opened or read.
    #[error("{}: {source}", .path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The header of a GGUF file cannot be read.
    #[error("{}: {source}", .path.display())]
    Header {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with the header.
        source: rung_audit::AuditError,
    },
    /// A vocabulary is malformed or of a kind that is not supported.
    #[error("{}: tokenizer: found {found}, expected {expected}", .path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// What the file has.
        found: String,
        /// What is accepted.
        expected: String,
    },
    /// The `tokenizers` library cannot encode a text or decode tokens.
    #[error("{}: tokenizer: {message}", .path.display())]
    Library {
        /// Path of the vocabulary's file.
        path: PathBuf,
        /// The library's error, or the message with which it panicked.
        message: String,
    },
}

impl TokenizerError {
    fn malformed(path: &Path, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), found: found.into(), expected: expected.into() }
    }
}

/// A vocabulary with its rules for splitting text.
pub struct Tokenizer {
    path: PathBuf,
    inner: tokenizers::Tokenizer,
    /// Prepended to every text, if the vocabulary asks for it and its post-processor does not add it.
    bos_token: Option<u32>,
    eos_tokens: BTreeSet<u32>,
}

impl Tokenizer {
    /// The tokenizer of a Hugging Face folder or a GGUF file; `None` if there is no vocabulary.
    ///
    /// # Errors
    /// The vocabulary is malformed or of a kind that is not supported.
    pub fn open(path: &Path) -> Result<Option<Self>, TokenizerError> {
        if !path.is_dir() {
            return gguf::open(path);
        }
        let file = path.join("tokenizer.json");
        if !file.exists() {
            return Ok(None);
        }
        let bytes = read_bounded(&file)?;
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|error| TokenizerError::malformed(&file, error.to_string(), "JSON"))?;
        let mut eos_tokens = BTreeSet::new();
        for name in ["generation_config.json", "config.json"] {
            let config = path.join(name);
            let config: Value = if config.exists() {
                // Python writes `Infinity` into some configs, which is not JSON; those give no end token.
                serde_json::from_slice(&read_bounded(&config)?).unwrap_or_default()
            } else {
                Value::Null
            };
            let ids = match &config["eos_token_id"] {
                Value::Array(ids) => ids.iter().filter_map(Value::as_u64).collect(),
                id => id.as_u64().into_iter().collect::<Vec<_>>(),
            };
            eos_tokens.extend(ids.into_iter().filter_map(|id| u32::try_from(id).ok()));
        }
        Self::from_json(&file, value, None, eos_tokens).map(Some)
    }

    /// A tokenizer in the `tokenizers` crate's format.
    fn from_json(
        path: &Path,
        mut value: Value,
        bos_token: Option<u32>,
        eos_tokens: BTreeSet<u32>,
    ) -> Result<Self, TokenizerError> {
        check_ids(path, &value)?;
        components::check_components(path, &mut value)?;
        let inner = catch_panic(|| tokenizers::Tokenizer::from_bytes(value.to_string()))
            .map_err(|message| TokenizerError::malformed(path, message, "a vocabulary with its rules"))?;
        Ok(Self { path: path.to_owned(), inner, bos_token, eos_tokens })
    }

    /// The tokens of a text, with the special tokens that the vocabulary adds.
    ///
    /// # Errors
    /// A piece is not in the vocabulary, and there is no unknown token.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoded = catch_panic(|| self.inner.encode(text, true)).map_err(|message| self.library_error(message))?;
        Ok(self.bos_token.into_iter().chain(encoded.get_ids().iter().copied()).collect())
    }

    /// The text of tokens, without special tokens.
    ///
    /// # Errors
    /// The decoder fails.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TokenizerError> {
        catch_panic(|| self.inner.decode(tokens, true)).map_err(|message| self.library_error(message))
    }

    fn library_error(&self, message: String) -> TokenizerError {
        TokenizerError::Library { path: self.path.clone(), message }
    }

    /// Whether a token is an end-of-sequence token.
    pub fn is_eos(&self, token: u32) -> bool {
        self.eos_tokens.contains(&token)
    }

    /// Number of tokens in the vocabulary, special ones included.
    pub fn size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }
}

/// Calls the library; a panic inside it becomes an error. Its tokenizer has no state that a panic could leave half changed: it caches words,
/// and does without the cache if the cache's lock is poisoned.
fn catch_panic<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    let message = |panic: Box<dyn Any + Send>| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        format!("a panic of the library: {}", text.unwrap_or("no message"))
    };
    catch_unwind(AssertUnwindSafe(call)).map_err(message)?.map_err(|error| error.to_string())
}

/// Reads a file of at most [`MAX_BYTES`] bytes.
fn read_bounded(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    let io_error = |source| TokenizerError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).map_err(io_error)?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(io_error)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(TokenizerError::malformed(path, "a longer file", format!("at most {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

/// Fails if an id is used twice, missing, or beyond [`MAX_ID`].
fn check_ids(path: &Path, value: &Value) -> Result<(), TokenizerError> {
    let parse_id = |id: &Value| {
        let id = id.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|id| *id < MAX_ID);
        id.ok_or_else(|| TokenizerError::malformed(path, "an invalid token id", format!("ids below {MAX_ID}")))
    };
    let mut ids = BTreeSet::new();
    match &value["model"]["vocab"] {
        Value::Object(vocabulary) => {
            for (piece, id) in vocabulary {
                let id = parse_id(id)?;
                if !ids.insert(id) {
                    let found = format!("id {id} of `{}` twice", piece.escape_debug());
                    return Err(TokenizerError::malformed(path, found, "one piece for each id"));
                }
            }
        }
        // Unigram models list pieces with scores: the position is the id.
        Value::Array(pieces) => ids.extend(0..(pieces.len() as u32).min(MAX_ID)),
        _ => return Err(TokenizerError::malformed(path, "no vocabulary", "model.vocab")),
    }
    for token in value["added_tokens"].as_array().into_iter().flatten() {
        ids.insert(parse_id(&token["id"])?);
    }
    match (0..).zip(&ids).find(|(expected, id)| expected != *id) {
        None => Ok(()),
        Some((missing_id, _)) => {
            let found = format!("a vocabulary without id {missing_id}");
            Err(TokenizerError::malformed(path, found, "ids without gaps"))
        }
    }
}
