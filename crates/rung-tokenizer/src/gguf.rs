//! Converts the vocabulary of a GGUF file to a `tokenizer.json`.
//!
//! `gpt2` vocabularies are byte-level BPE: text is split by the regular expressions of module `pre_tokenizer`, its bytes are mapped to
//! printable characters, and pairs are merged in the order of the merge list. `llama` vocabularies are SentencePiece BPE: spaces become
//! `▁`, and the pair whose merged piece has the highest score is merged first; characters without a piece fall back to bytes. `t5`
//! vocabularies are unigram models: a text is split into the pieces whose scores have the largest sum.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::Path;

use rung_audit::gguf::GgufHeader;
use rung_audit::json::JsonValue;
use serde_json::{Map, Value, json};

use super::pre_tokenizer::{self, PreTokenizer};
use super::{Tokenizer, TokenizerError};

/// Bytes of the longest piece: splitting a piece at every character takes quadratic time.
const MAX_PIECE_BYTES: usize = 1024;

/// Token types in `tokenizer.ggml.token_type`.
const CONTROL_TYPE: &str = "3";
const USER_DEFINED_TYPE: &str = "4";

/// The `tokenizer.ggml.*` fields of a GGUF header.
struct Vocabulary<'a> {
    path: &'a Path,
    header: &'a GgufHeader,
}

/// The tokenizer of a GGUF file; `None` if the file has no vocabulary.
pub(super) fn open(path: &Path) -> Result<Option<Tokenizer>, TokenizerError> {
    let file = File::open(path).map_err(|source| TokenizerError::Io { path: path.to_owned(), source })?;
    let header = GgufHeader::read(std::io::BufReader::with_capacity(1 << 16, file))
        .map_err(|source| TokenizerError::Header { path: path.to_owned(), source })?;
    let vocabulary = Vocabulary { path, header: &header };
    let Some(model) = vocabulary.text("model").filter(|model| *model != "none") else { return Ok(None) };
    let pieces = vocabulary.pieces()?;
    let (tokenizer, adds_bos_by_default) = match model {
        "gpt2" => {
            let pre_tokenizer = vocabulary.pre_tokenizer()?;
            (vocabulary.byte_level_bpe(&pieces, pre_tokenizer)?, pre_tokenizer.has_llama3_rules)
        }
        "llama" => (vocabulary.sentencepiece_bpe(&pieces)?, true),
        "t5" => (vocabulary.unigram(&pieces)?, false),
        other => {
            let found = format!("a vocabulary of kind `{}`", other.escape_debug());
            return Err(TokenizerError::malformed(
                path,
                found,
                "`gpt2` (byte-level), `llama` (SentencePiece) or `t5` (unigrams)",
            ));
        }
    };
    let bos_token =
        vocabulary.flag("add_bos_token", adds_bos_by_default).then(|| vocabulary.id("bos_token_id")).flatten();
    let eos_tokens = ["eos_token_id", "eot_token_id"].into_iter().filter_map(|name| vocabulary.id(name));
    Tokenizer::from_json(path, tokenizer, bos_token, eos_tokens.collect::<BTreeSet<_>>()).map(Some)
}

impl Vocabulary<'_> {
    fn field(&self, name: &str) -> Option<&JsonValue> {
        self.header.get(&format!("tokenizer.ggml.{name}"))
    }

    fn text(&self, name: &str) -> Option<&str> {
        match self.field(name) {
            Some(JsonValue::String(text)) => Some(text),
            _ => None,
        }
    }

    fn flag(&self, name: &str, default: bool) -> bool {
        match self.field(name) {
            Some(JsonValue::Bool(flag)) => *flag,
            _ => default,
        }
    }

    fn id(&self, name: &str) -> Option<u32> {
        match self.field(name) {
            Some(JsonValue::Number(text)) => text.parse().ok(),
            _ => None,
        }
    }

    fn list(&self, name: &str) -> &[JsonValue] {
        match self.field(name) {
            Some(JsonValue::List(items)) => items,
            _ => &[],
        }
    }

    fn malformed(&self, found: impl Into<String>, expected: impl Into<String>) -> TokenizerError {
        TokenizerError::malformed(self.path, found, expected)
    }

    /// All pieces in the order of their ids.
    fn pieces(&self) -> Result<Vec<&str>, TokenizerError> {
        let mut ids = HashMap::new();
        let mut pieces = Vec::new();
        for (id, item) in self.list("tokens").iter().enumerate() {
            let JsonValue::String(piece) = item else {
                return Err(self.malformed(format!("{} as token {id}", item.describe()), "a text"));
            };
            if piece.len() > MAX_PIECE_BYTES {
                let found = format!("a piece of {} bytes as token {id}", piece.len());
                return Err(self.malformed(found, format!("at most {MAX_PIECE_BYTES} bytes")));
            }
            if let Some(other_id) = ids.insert(piece.as_str(), id) {
                let found = format!("`{}` as token {other_id} and as token {id}", piece.escape_debug());
                return Err(self.malformed(found, "different tokens"));
            }
            pieces.push(piece.as_str());
        }
        if pieces.is_empty() { Err(self.malformed("no tokens", "tokenizer.ggml.tokens")) } else { Ok(pieces) }
    }

    /// Special and user-defined tokens, which are matched in the text before it is split.
    fn added_tokens(&self, pieces: &[&str]) -> Vec<Value> {
        let types = self.list("token_type");
        let token_type = |id: usize| match types.get(id) {
            Some(JsonValue::Number(number)) => number.as_str(),
            _ => "",
        };
        let added_token = |(id, piece): (usize, &&str)| {
            let special = token_type(id) == CONTROL_TYPE;
            (special || token_type(id) == USER_DEFINED_TYPE).then(|| {
                json!({
                    "id": id, "content": piece, "special": special,
                    "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                })
            })
        };
        pieces.iter().enumerate().filter_map(added_token).collect()
    }

    /// How the text of a byte-level BPE vocabulary is split.
    fn pre_tokenizer(&self) -> Result<&'static PreTokenizer, TokenizerError> {
        let name = self.text("pre").unwrap_or("default");
        pre_tokenizer::named(name).ok_or_else(|| {
            let found = format!("tokenizer.ggml.pre `{}`", name.escape_debug());
            self.malformed(found, format!("one of {}", pre_tokenizer::all_names()))
        })
    }

    /// The `tokenizer.json` of a byte-level BPE vocabulary.
    fn byte_level_bpe(&self, pieces: &[&str], pre_tokenizer: &PreTokenizer) -> Result<Value, TokenizerError> {
        let mut merges = Vec::new();
        for (rank, item) in self.list("merges").iter().enumerate() {
            let pair = if let JsonValue::String(text) = item { text.split_once(' ') } else { None };
            let Some((left, right)) = pair else {
                return Err(
                    self.malformed(format!("{} as merge {rank}", item.describe()), "two pieces with a space between")
                );
            };
            merges.push(json!([left, right]));
        }
        let split = |pattern: &&str| json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false });
        let byte_level =
            json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false });
        let pre_tokenizers: Vec<Value> = pre_tokenizer.patterns.iter().map(split).chain([byte_level.clone()]).collect();
        Ok(json!({
            "version": "1.0",
            "added_tokens": self.added_tokens(pieces),
            "normalizer": null,
            "pre_tokenizer": { "type": "Sequence", "pretokenizers": pre_tokenizers },
            "post_processor": null,
            "decoder": byte_level,
            "model": { "type": "BPE", "vocab": vocabulary_json(pieces), "merges": merges, "ignore_merges": pre_tokenizer.has_llama3_rules },
        }))
    }

    fn score(&self, id: usize) -> Result<f64, TokenizerError> {
        let score = match self.list("scores").get(id) {
            Some(JsonValue::Number(score)) => score.parse::<f64>().ok().filter(|score| !score.is_nan()),
            _ => None,
        };
        score.ok_or_else(|| self.malformed(format!("no score of token {id}"), "a score for each token"))
    }

    /// The `tokenizer.json` of a unigram vocabulary.
    fn unigram(&self, pieces: &[&str]) -> Result<Value, TokenizerError> {
        if self.field("precompiled_charsmap").is_some() {
            return Err(self.malformed(
                "tokenizer.ggml.precompiled_charsmap",
                "a vocabulary without a character normalization map",
            ));
        }
        let vocabulary = pieces.iter().enumerate().map(|(id, piece)| Ok(json!([piece, self.score(id)?])));
        let vocabulary = vocabulary.collect::<Result<Vec<Value>, TokenizerError>>()?;
        let collapse_spaces = json!({ "type": "Replace", "pattern": { "Regex": " +" }, "content": " " });
        let strip = json!({ "type": "Strip", "strip_left": true, "strip_right": true });
        let metaspace = json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false });
        Ok(json!({
            "version": "1.0",
            "added_tokens": self.added_tokens(pieces),
            "normalizer": { "type": "Sequence", "normalizers": [strip, collapse_spaces] },
            "pre_tokenizer": metaspace,
            "post_processor": null,
            "decoder": metaspace,
            "model": { "type": "Unigram", "unk_id": self.id("unknown_token_id"), "vocab": vocabulary, "byte_fallback": false },
        }))
    }

    /// The `tokenizer.json` of a SentencePiece BPE vocabulary.
    fn sentencepiece_bpe(&self, pieces: &[&str]) -> Result<Value, TokenizerError> {
        let ids: HashMap<&str, usize> = pieces.iter().enumerate().map(|(id, piece)| (*piece, id)).collect();
        let mut merges = Vec::new();
        for (id, piece) in pieces.iter().enumerate() {
            let score = self.score(id)?;
            for (offset, _) in piece.char_indices().skip(1) {
                let (left, right) = piece.split_at(offset);
                if let (Some(left_id), Some(right_id)) = (ids.get(left), ids.get(right)) {
                    merges.push((score, *left_id, *right_id));
                }
            }
        }
        merges
            .sort_by(|first, second| second.0.total_cmp(&first.0).then((first.1, first.2).cmp(&(second.1, second.2))));
        let merges: Vec<Value> = merges.iter().map(|(_, left, right)| json!([pieces[*left], pieces[*right]])).collect();
        let unknown_token = self.id("unknown_token_id").and_then(|id| pieces.get(id as usize)).copied();
        let mut normalizers = vec![json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" })];
        let mut decoders = vec![
            json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " }),
            json!({ "type": "ByteFallback" }),
            json!({ "type": "Fuse" }),
        ];
        if self.flag("add_space_prefix", true) {
            normalizers.insert(0, json!({ "type": "Prepend", "prepend": "▁" }));
            decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
        }
        Ok(json!({
            "version": "1.0",
            "added_tokens": self.added_tokens(pieces),
            "normalizer": { "type": "Sequence", "normalizers": normalizers },
            "pre_tokenizer": null,
            "post_processor": null,
            "decoder": { "type": "Sequence", "decoders": decoders },
            "model": {
                "type": "BPE", "vocab": vocabulary_json(pieces), "merges": merges,
                "unk_token": unknown_token, "fuse_unk": true, "byte_fallback": true,
            },
        }))
    }
}

/// The JSON object that maps every piece to its id.
fn vocabulary_json(pieces: &[&str]) -> Map<String, Value> {
    pieces.iter().enumerate().map(|(id, piece)| ((*piece).to_owned(), json!(id))).collect()
}
