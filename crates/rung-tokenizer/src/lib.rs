//! Text to tokens and back, for checkpoints of other programs.
//!
//! A Hugging Face folder has a `tokenizer.json`, which the `tokenizers` crate reads. A GGUF file has its vocabulary in its header; it is
//! written as such a `tokenizer.json` in memory (`gguf`) and read the same way, so there is one implementation of merging.
//!
//! ```no_run
//! use rung_tokenizer::Tokenizer;
//!
//! if let Some(words) = Tokenizer::open("model.gguf".as_ref())? {
//!     let tokens = words.encode("The capital of France")?;
//!     assert_eq!(words.decode(&tokens)?, "The capital of France");
//! }
//! # Ok::<(), rung_tokenizer::TokenizerError>(())
//! ```

mod gguf;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A longer `tokenizer.json` is refused: the largest have forty megabytes.
const MAX_BYTES: u64 = 128 << 20;
/// Ids from here on are refused.
const MAX_ID: u32 = 1 << 24;

/// Why a vocabulary could not be read, or a text not encoded.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The system refused.
    #[error("{}: {source}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The header of a GGUF file cannot be read.
    #[error("{}: {source}", .path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// Why.
        source: rung_audit::AuditError,
    },
    /// A vocabulary is not what it should be.
    #[error("{}: tokenizer: found {found}, expected {expected}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was there.
        found: String,
        /// What should have been there.
        expected: String,
    },
    /// A text or tokens do not fit the vocabulary.
    #[error("tokenizer: {0}")]
    Run(String),
}

impl TokenizerError {
    fn malformed(path: &Path, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), found: found.into(), expected: expected.into() }
    }
}

/// A vocabulary, and how text is cut into its pieces.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Goes before every text, if the vocabulary says so and its post-processor does not do it.
    first: Option<u32>,
    ends: BTreeSet<u32>,
}

impl Tokenizer {
    /// The tokenizer of a Hugging Face folder or a GGUF file; nothing if it has none.
    ///
    /// # Errors
    /// There is one, and it is malformed or of a kind that is not read.
    pub fn open(path: &Path) -> Result<Option<Self>, TokenizerError> {
        if !path.is_dir() {
            return gguf::open(path);
        }
        let file = path.join("tokenizer.json");
        if !file.exists() {
            return Ok(None);
        }
        let bytes = read(&file)?;
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|error| TokenizerError::malformed(&file, error.to_string(), "JSON"))?;
        let mut ends = BTreeSet::new();
        for name in ["generation_config.json", "config.json"] {
            let config = path.join(name);
            let config: Value = if config.exists() {
                // Python writes `Infinity` into some configs; without their end the text just goes on.
                serde_json::from_slice(&read(&config)?).unwrap_or_default()
            } else {
                Value::Null
            };
            let ids = match &config["eos_token_id"] {
                Value::Array(ids) => ids.iter().filter_map(Value::as_u64).collect(),
                id => id.as_u64().into_iter().collect::<Vec<_>>(),
            };
            ends.extend(ids.into_iter().filter_map(|id| u32::try_from(id).ok()));
        }
        Self::of_json(&file, &value, None, ends).map(Some)
    }

    /// A tokenizer of the `tokenizers` crate's own format.
    fn of_json(path: &Path, value: &Value, first: Option<u32>, ends: BTreeSet<u32>) -> Result<Self, TokenizerError> {
        check_ids(path, value)?;
        let inner = tokenizers::Tokenizer::from_bytes(value.to_string())
            .map_err(|error| TokenizerError::malformed(path, error.to_string(), "a vocabulary with its rules"))?;
        Ok(Self { inner, first, ends })
    }

    /// The tokens of a text, with those that the vocabulary puts around it.
    ///
    /// # Errors
    /// A piece is not in the vocabulary, and nothing stands for unknown ones.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoded = self.inner.encode(text, true).map_err(|error| TokenizerError::Run(error.to_string()))?;
        Ok(self.first.into_iter().chain(encoded.get_ids().iter().copied()).collect())
    }

    /// The text of tokens, without those that only mark something.
    ///
    /// # Errors
    /// They make no text.
    pub fn decode(&self, tokens: &[u32]) -> Result<String, TokenizerError> {
        self.inner.decode(tokens, true).map_err(|error| TokenizerError::Run(error.to_string()))
    }

    /// Whether a token ends a text.
    pub fn ends_text(&self, token: u32) -> bool {
        self.ends.contains(&token)
    }

    /// Pieces in the vocabulary.
    pub fn size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }
}

/// A file of bounded length.
fn read(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    let system = |source| TokenizerError::System { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).map_err(system)?.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(system)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(TokenizerError::malformed(path, "a longer file", format!("at most {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

/// Refuses ids that are used twice, left out, or far beyond any vocabulary.
fn check_ids(path: &Path, value: &Value) -> Result<(), TokenizerError> {
    let id_of = |id: &Value| {
        let id = id.as_u64().and_then(|id| u32::try_from(id).ok()).filter(|id| *id < MAX_ID);
        id.ok_or_else(|| TokenizerError::malformed(path, "an id that is no token's", format!("ids below {MAX_ID}")))
    };
    let mut ids = BTreeSet::new();
    match &value["model"]["vocab"] {
        Value::Object(vocabulary) => {
            for (piece, id) in vocabulary {
                let id = id_of(id)?;
                if !ids.insert(id) {
                    let found = format!("id {id} of `{}` twice", piece.escape_debug());
                    return Err(TokenizerError::malformed(path, found, "one piece for each id"));
                }
            }
        }
        // Unigram models list pieces with scores: the place is the id.
        Value::Array(pieces) => ids.extend(0..(pieces.len() as u32).min(MAX_ID)),
        _ => return Err(TokenizerError::malformed(path, "no vocabulary", "model.vocab")),
    }
    for token in value["added_tokens"].as_array().into_iter().flatten() {
        ids.insert(id_of(&token["id"])?);
    }
    match (0..).zip(&ids).find(|(expected, id)| expected != *id) {
        None => Ok(()),
        Some((gap, _)) => {
            let found = format!("a vocabulary without id {gap}");
            Err(TokenizerError::malformed(path, found, "ids without gaps"))
        }
    }
}
