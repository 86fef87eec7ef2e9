//! The vocabulary of a GGUF file as a `tokenizer.json`.
//!
//! `gpt2` vocabularies are byte-level: text is cut by an expression whose name stands in `tokenizer.ggml.pre`, its bytes are written as printable
//! characters, and pairs are merged in the order of the list. `llama` vocabularies are SentencePiece's: spaces become `▁`, and the
//! pair whose piece has the highest score is merged first; what has no piece falls back to bytes. `t5` vocabularies are unigram models:
//! a text is cut into the pieces whose scores have the largest sum.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::Path;

use rung_audit::gguf::GgufHeader;
use rung_audit::json::JsonValue as Field;
use serde_json::{Map, Value, json};

use super::{Tokenizer, TokenizerError};

/// GPT-2's pieces: contractions, words, numbers, signs and space.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// Llama 3's: numbers of up to three digits.
const LLAMA3: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// Qwen 2's: digits by themselves.
const QWEN2: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Expressions that cut a text, one after another, by llama.cpp's name for them.
const CUTS: &[(&str, &[&str])] = &[
    ("gpt-2", &[GPT2]),
    ("default", &[GPT2]),
    ("olmo", &[GPT2]),
    ("mpt", &[GPT2]),
    ("smollm", &[r"\p{N}", GPT2]),
    ("starcoder", &[r"\p{N}", GPT2]),
    ("refact", &[r"\p{N}", GPT2]),
    ("llama-bpe", &[LLAMA3]),
    ("llama3", &[LLAMA3]),
    ("dbrx", &[LLAMA3]),
    ("qwen2", &[QWEN2]),
];

/// Kinds of pieces in `tokenizer.ggml.token_type`.
const CONTROL: &str = "3";
const USER_DEFINED: &str = "4";

struct Vocabulary<'a> {
    path: &'a Path,
    header: &'a GgufHeader,
}

/// The tokenizer of a GGUF file; nothing if it has none.
pub(super) fn open(path: &Path) -> Result<Option<Tokenizer>, TokenizerError> {
    let file = File::open(path).map_err(|source| TokenizerError::System { path: path.to_owned(), source })?;
    let header = GgufHeader::read(std::io::BufReader::with_capacity(1 << 16, file))
        .map_err(|source| TokenizerError::Header { path: path.to_owned(), source })?;
    let vocabulary = Vocabulary { path, header: &header };
    let Some(kind) = vocabulary.text("model").filter(|kind| *kind != "none") else { return Ok(None) };
    let pieces = vocabulary.pieces()?;
    let (value, puts_first) = match kind {
        "gpt2" => (vocabulary.byte_level(&pieces)?, false),
        "llama" => (vocabulary.sentence_pieces(&pieces)?, true),
        "t5" => (vocabulary.unigrams(&pieces)?, false),
        other => {
            let found = format!("a vocabulary of kind `{}`", other.escape_debug());
            return Err(TokenizerError::malformed(
                path,
                found,
                "`gpt2` (byte-level), `llama` (SentencePiece) or `t5` (unigrams)",
            ));
        }
    };
    let first = vocabulary.flag("add_bos_token", puts_first).then(|| vocabulary.id("bos_token_id")).flatten();
    let ends = ["eos_token_id", "eot_token_id"].into_iter().filter_map(|name| vocabulary.id(name));
    Tokenizer::of_json(path, &value, first, ends.collect::<BTreeSet<_>>()).map(Some)
}

impl Vocabulary<'_> {
    fn field(&self, name: &str) -> Option<&Field> {
        self.header.get(&format!("tokenizer.ggml.{name}"))
    }

    fn text(&self, name: &str) -> Option<&str> {
        match self.field(name) {
            Some(Field::Text(text)) => Some(text),
            _ => None,
        }
    }

    fn flag(&self, name: &str, default: bool) -> bool {
        match self.field(name) {
            Some(Field::Bool(flag)) => *flag,
            _ => default,
        }
    }

    fn id(&self, name: &str) -> Option<u32> {
        match self.field(name) {
            Some(Field::Number(text)) => text.parse().ok(),
            _ => None,
        }
    }

    fn list(&self, name: &str) -> &[Field] {
        match self.field(name) {
            Some(Field::List(items)) => items,
            _ => &[],
        }
    }

    fn wrong(&self, found: impl Into<String>, expected: impl Into<String>) -> TokenizerError {
        TokenizerError::malformed(self.path, found, expected)
    }

    /// All pieces in the order of their ids.
    fn pieces(&self) -> Result<Vec<&str>, TokenizerError> {
        let mut known = HashMap::new();
        let mut pieces = Vec::new();
        for (id, item) in self.list("tokens").iter().enumerate() {
            let Field::Text(piece) = item else {
                return Err(self.wrong(format!("{} as token {id}", item.describe()), "a text"));
            };
            if let Some(other) = known.insert(piece.as_str(), id) {
                let found = format!("`{}` as token {other} and as token {id}", piece.escape_debug());
                return Err(self.wrong(found, "different tokens"));
            }
            pieces.push(piece.as_str());
        }
        if pieces.is_empty() { Err(self.wrong("no tokens", "tokenizer.ggml.tokens")) } else { Ok(pieces) }
    }

    /// Pieces that are looked for in the text before it is cut.
    fn whole_pieces(&self, pieces: &[&str]) -> Vec<Value> {
        let kinds = self.list("token_type");
        let kind = |id: usize| match kinds.get(id) {
            Some(Field::Number(kind)) => kind.as_str(),
            _ => "",
        };
        let token = |(id, piece): (usize, &&str)| {
            let special = kind(id) == CONTROL;
            (special || kind(id) == USER_DEFINED).then(|| {
                json!({
                    "id": id, "content": piece, "special": special,
                    "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
                })
            })
        };
        pieces.iter().enumerate().filter_map(token).collect()
    }

    fn byte_level(&self, pieces: &[&str]) -> Result<Value, TokenizerError> {
        let name = self.text("pre").unwrap_or("default");
        let Some((_, cuts)) = CUTS.iter().find(|(known, _)| *known == name) else {
            let known = CUTS.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", ");
            return Err(self.wrong(format!("tokenizer.ggml.pre `{}`", name.escape_debug()), format!("one of {known}")));
        };
        let mut merges = Vec::new();
        for (rank, item) in self.list("merges").iter().enumerate() {
            let pair = if let Field::Text(text) = item { text.split_once(' ') } else { None };
            let Some((left, right)) = pair else {
                return Err(
                    self.wrong(format!("{} as merge {rank}", item.describe()), "two pieces with a space between")
                );
            };
            merges.push(json!([left, right]));
        }
        let cut = |pattern: &&str| json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false });
        let bytes =
            json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false });
        let steps: Vec<Value> = cuts.iter().map(cut).chain([bytes.clone()]).collect();
        Ok(json!({
            "version": "1.0",
            "added_tokens": self.whole_pieces(pieces),
            "normalizer": null,
            "pre_tokenizer": { "type": "Sequence", "pretokenizers": steps },
            "post_processor": null,
            "decoder": bytes,
            "model": { "type": "BPE", "vocab": ids(pieces), "merges": merges, "ignore_merges": name.starts_with("llama") },
        }))
    }

    fn score(&self, id: usize) -> Result<f64, TokenizerError> {
        let score = match self.list("scores").get(id) {
            Some(Field::Number(score)) => score.parse::<f64>().ok().filter(|score| !score.is_nan()),
            _ => None,
        };
        score.ok_or_else(|| self.wrong(format!("no score of token {id}"), "a score for each token"))
    }

    fn unigrams(&self, pieces: &[&str]) -> Result<Value, TokenizerError> {
        if self.field("precompiled_charsmap").is_some() {
            return Err(self.wrong("tokenizer.ggml.precompiled_charsmap", "a vocabulary without rules for characters"));
        }
        let scored = pieces.iter().enumerate().map(|(id, piece)| Ok(json!([piece, self.score(id)?])));
        let scored = scored.collect::<Result<Vec<Value>, TokenizerError>>()?;
        let space = json!({ "type": "Replace", "pattern": { "Regex": " +" }, "content": " " });
        let strip = json!({ "type": "Strip", "strip_left": true, "strip_right": true });
        let spaces = json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false });
        Ok(json!({
            "version": "1.0",
            "added_tokens": self.whole_pieces(pieces),
            "normalizer": { "type": "Sequence", "normalizers": [strip, space] },
            "pre_tokenizer": spaces,
            "post_processor": null,
            "decoder": spaces,
            "model": { "type": "Unigram", "unk_id": self.id("unknown_token_id"), "vocab": scored, "byte_fallback": false },
        }))
    }

    fn sentence_pieces(&self, pieces: &[&str]) -> Result<Value, TokenizerError> {
        let known: HashMap<&str, usize> = pieces.iter().enumerate().map(|(id, piece)| (*piece, id)).collect();
        let mut merges = Vec::new();
        for (id, piece) in pieces.iter().enumerate() {
            let own = self.score(id)?;
            for (at, _) in piece.char_indices().skip(1) {
                let (left, right) = piece.split_at(at);
                if let (Some(left_id), Some(right_id)) = (known.get(left), known.get(right)) {
                    merges.push((own, *left_id, *right_id));
                }
            }
        }
        merges.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
        let merges: Vec<Value> = merges.iter().map(|(_, left, right)| json!([pieces[*left], pieces[*right]])).collect();
        let unknown = self.id("unknown_token_id").and_then(|id| pieces.get(id as usize)).copied();
        let mut steps = vec![json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" })];
        let mut undone = vec![
            json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " }),
            json!({ "type": "ByteFallback" }),
            json!({ "type": "Fuse" }),
        ];
        if self.flag("add_space_prefix", true) {
            steps.insert(0, json!({ "type": "Prepend", "prepend": "▁" }));
            undone.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
        }
        Ok(json!({
            "version": "1.0",
            "added_tokens": self.whole_pieces(pieces),
            "normalizer": { "type": "Sequence", "normalizers": steps },
            "pre_tokenizer": null,
            "post_processor": null,
            "decoder": { "type": "Sequence", "decoders": undone },
            "model": {
                "type": "BPE", "vocab": ids(pieces), "merges": merges,
                "unk_token": unknown, "fuse_unk": true, "byte_fallback": true,
            },
        }))
    }
}

/// Every piece with its id.
fn ids(pieces: &[&str]) -> Map<String, Value> {
    pieces.iter().enumerate().map(|(id, piece)| ((*piece).to_owned(), json!(id))).collect()
}
