//! Checks the rules of a `tokenizer.json` before the `tokenizers` crate reads them.
//!
//! That crate trusts its files: some numbers make it panic, others make it allocate without bound. So only known kinds of components are
//! accepted, with numbers for which it does neither. Settings that would change a prompt are removed: padding, truncation and dropout
//! belong to batches for training, and a shortened prompt would be measured as if it were whole.

use std::path::Path;

use serde_json::Value;

use super::TokenizerError;

/// Components of one kind, those in sequences included.
const MAX_COMPONENTS: usize = 64;
/// How many times longer than the text its normalized form may be.
const MAX_GROWTH: usize = 4096;
/// Characters of a regular expression, a replacement or a prefix.
const MAX_CHARACTERS: usize = 4096;
/// Characters of a word that a WordPiece vocabulary splits; the time is quadratic in it.
const MAX_WORD_CHARACTERS: u64 = 1000;
/// Bytes of one replacement in a character map. The longest in Unicode's NFKC has 33.
const MAX_CHARSMAP_ENTRY: usize = 256;
/// Units per block of a double array.
const CHARSMAP_BLOCK: usize = 256;

/// A component's field, the field of a sequence that lists components, and the known kinds.
const COMPONENTS: [(&str, &str, &[&str]); 4] = [
    (
        "normalizer",
        "normalizers",
        &[
            "BertNormalizer",
            "ByteLevel",
            "Lowercase",
            "NFC",
            "NFD",
            "NFKC",
            "NFKD",
            "Nmt",
            "Precompiled",
            "Prepend",
            "Replace",
            "Strip",
            "StripAccents",
        ],
    ),
    (
        "pre_tokenizer",
        "pretokenizers",
        &[
            "BertPreTokenizer",
            "ByteLevel",
            "CharDelimiterSplit",
            "Digits",
            "FixedLength",
            "Metaspace",
            "Punctuation",
            "Split",
            "UnicodeScripts",
            "Whitespace",
            "WhitespaceSplit",
        ],
    ),
    ("post_processor", "processors", &["BertProcessing", "ByteLevel", "RobertaProcessing", "TemplateProcessing"]),
    (
        "decoder",
        "decoders",
        &["BPEDecoder", "ByteFallback", "ByteLevel", "CTC", "Fuse", "Metaspace", "Replace", "Strip", "WordPiece"],
    ),
];

/// Removes padding, truncation and dropout, and checks everything else that the `tokenizers` crate does not.
pub(super) fn check_components(path: &Path, value: &mut Value) -> Result<(), TokenizerError> {
    let Some(file) = value.as_object_mut() else {
        return Err(TokenizerError::malformed(path, "no object", "an object with the field `model`"));
    };
    file.remove("padding");
    file.remove("truncation");
    if let Some(model) = file.get_mut("model").and_then(Value::as_object_mut) {
        model.remove("dropout");
    }
    let checker = Checker { path };
    checker.check_model(&value["model"])?;
    for (field, list_field, kinds) in COMPONENTS {
        let mut components = Vec::new();
        checker.flatten(field, list_field, kinds, &value[field], &mut components)?;
        let mut growth = 1_usize;
        for component in &components {
            growth = growth.saturating_mul(checker.check_component(field, component)?);
        }
        if growth > MAX_GROWTH {
            let found = format!("`{field}` that makes texts up to {growth} times longer");
            return Err(checker.malformed(found, &format!("at most {MAX_GROWTH} times")));
        }
        let adds_tokens = |component: &&&Value| component["type"] != "ByteLevel";
        if field == "post_processor" && components.iter().filter(adds_tokens).count() > 1 {
            return Err(checker.malformed("several components of `post_processor` that add tokens", "one"));
        }
    }
    Ok(())
}

struct Checker<'a> {
    path: &'a Path,
}

impl Checker<'_> {
    fn malformed(&self, found: impl Into<String>, expected: &str) -> TokenizerError {
        TokenizerError::malformed(self.path, found, expected)
    }

    /// The error for a field of a component.
    fn field_error(&self, component: &str, kind: &str, name: &str, found: &Value, expected: &str) -> TokenizerError {
        let found: String = found.to_string().chars().take(40).collect();
        let found = format!("`{name}` {} in `{component}` of type `{kind}`", found.escape_debug());
        self.malformed(found, expected)
    }

    /// Lists the components of a field, those of sequences in place of the sequence.
    fn flatten<'a>(
        &self,
        field: &str,
        list_field: &str,
        kinds: &[&str],
        component: &'a Value,
        components: &mut Vec<&'a Value>,
    ) -> Result<(), TokenizerError> {
        if component.is_null() {
            return Ok(());
        }
        let kind = component["type"].as_str().unwrap_or_default();
        if kind == "Sequence" {
            let Some(items) = component[list_field].as_array() else {
                return Err(self.field_error(field, kind, list_field, &component[list_field], "a list of components"));
            };
            for item in items {
                // JSON is read to a depth of 128 only, so this recursion ends.
                self.flatten(field, list_field, kinds, item, components)?;
            }
            return Ok(());
        }
        if !kinds.contains(&kind) {
            let kind: String = kind.chars().take(40).collect();
            let found = format!("`{field}` of type `{}`", kind.escape_debug());
            return Err(self.malformed(found, &format!("one of {}", kinds.join(", "))));
        }
        components.push(component);
        if components.len() > MAX_COMPONENTS {
            let found = format!("more than {MAX_COMPONENTS} components in `{field}`");
            return Err(self.malformed(found, &format!("at most {MAX_COMPONENTS}")));
        }
        Ok(())
    }

    /// Checks a component's numbers and texts. Returns how many times longer it makes a text, at most.
    fn check_component(&self, field: &str, component: &Value) -> Result<usize, TokenizerError> {
        let kind = component["type"].as_str().unwrap_or_default();
        let error = |name: &str, expected: &str| self.field_error(field, kind, name, &component[name], expected);
        let character_count = |name: &str| component[name].as_str().map_or(0, |text| text.chars().count());
        for name in ["content", "prepend", "prefix", "suffix", "pad_token", "word_delimiter_token"] {
            if character_count(name) > MAX_CHARACTERS {
                return Err(error(name, &format!("at most {MAX_CHARACTERS} characters")));
            }
        }
        for name in ["String", "Regex"] {
            let pattern = &component["pattern"][name];
            if pattern.as_str().is_some_and(|pattern| pattern.len() > MAX_CHARACTERS) {
                return Err(self.field_error(
                    field,
                    kind,
                    name,
                    pattern,
                    &format!("at most {MAX_CHARACTERS} characters"),
                ));
            }
        }
        match (field, kind) {
            // The library counts back from the end of a token without looking whether it is over.
            ("decoder", "Strip") if component["stop"].as_u64() != Some(0) => Err(error("stop", "0")),
            ("pre_tokenizer", "FixedLength") if component["length"] == 0 => Err(error("length", "1 or more")),
            ("normalizer", "Precompiled") => {
                let map = component["precompiled_charsmap"].as_str().unwrap_or_default();
                self.check_charsmap(map)
            }
            // An empty match between any two characters inserts the content there.
            (_, "Replace") => Ok(1 + character_count("content")),
            ("post_processor", "TemplateProcessing") => self.check_template(component).map(|()| 1),
            _ => Ok(1),
        }
    }

    /// Checks that the template for a single text uses only that text and special tokens that the template defines.
    fn check_template(&self, component: &Value) -> Result<(), TokenizerError> {
        let pieces = component["single"].as_array().map_or(&[][..], Vec::as_slice);
        let error = |found: &Value, expected: &str| {
            self.field_error("post_processor", "TemplateProcessing", "single", found, expected)
        };
        if pieces.len() > MAX_COMPONENTS {
            return Err(error(&component["single"], &format!("at most {MAX_COMPONENTS} pieces")));
        }
        for piece in pieces {
            let sequence = &piece["Sequence"]["id"];
            if !sequence.is_null() && sequence != "A" {
                return Err(error(piece, "the sequence A"));
            }
            let token = &piece["SpecialToken"]["id"];
            let Some(token) = token.as_str() else { continue };
            let ids = component["special_tokens"][token]["ids"].as_array().map_or(0, Vec::len);
            if !(1..=MAX_COMPONENTS).contains(&ids) {
                return Err(error(piece, "a token with ids in `special_tokens`"));
            }
        }
        Ok(())
    }

    /// Checks the fields of a model with which the library calculates before it looks at them.
    fn check_model(&self, model: &Value) -> Result<(), TokenizerError> {
        let kinds = ["BPE", "Unigram", "WordLevel", "WordPiece"];
        let kind = &model["type"];
        // GPT-2's own file has no type: the library recognizes the model by its fields.
        if !kind.is_null() && !kinds.iter().any(|known| kind == known) {
            return Err(self.field_error("model", "", "type", kind, &format!("one of {}", kinds.join(", "))));
        }
        let name = kind.as_str().unwrap_or_default();
        let max_characters = &model["max_input_chars_per_word"];
        if !max_characters.is_null() && max_characters.as_u64().is_none_or(|count| count > MAX_WORD_CHARACTERS) {
            let expected = format!("at most {MAX_WORD_CHARACTERS}");
            return Err(self.field_error("model", name, "max_input_chars_per_word", max_characters, &expected));
        }
        let prefix = model["continuing_subword_prefix"].as_str().unwrap_or_default();
        for merge in model["merges"].as_array().into_iter().flatten() {
            // A merge is a list of two pieces, or a text with a space between them.
            let right = match merge {
                Value::String(pair) => pair.split_once(' ').map(|(_, right)| right),
                pair => pair[1].as_str(),
            };
            if right.is_some_and(|right| !right.starts_with(prefix)) {
                let prefix = prefix.escape_debug();
                let expected = format!("a second piece with the prefix `{prefix}` (continuing_subword_prefix)");
                return Err(self.field_error("model", "BPE", "merges", merge, &expected));
            }
        }
        Ok(())
    }

    /// Checks a character map: the number of bytes of a trie, the trie (a double array of 32-bit units), and the replacements, separated
    /// by zero bytes. Every position that a walk over the trie can reach must be inside it. Returns the longest replacement.
    fn check_charsmap(&self, base64: &str) -> Result<usize, TokenizerError> {
        let error = |expected: &str| {
            let found = format!("`precompiled_charsmap` of {} characters in `normalizer`", base64.len());
            self.malformed(found, expected)
        };
        let bytes = decode_base64(base64).ok_or_else(|| error("base64"))?;
        let (size, rest) = bytes.split_first_chunk::<4>().ok_or_else(|| error("4 bytes or more"))?;
        let size = u32::from_le_bytes(*size) as usize;
        let blocks_fit = size > 0 && size.is_multiple_of(4 * CHARSMAP_BLOCK);
        let (trie, replacements) = rest.split_at_checked(size).filter(|_| blocks_fit).ok_or_else(|| {
            let block = 4 * CHARSMAP_BLOCK;
            error(&format!("a trie of whole blocks of {block} bytes, as long as its first number says"))
        })?;
        let replacements =
            std::str::from_utf8(replacements).map_err(|_| error("replacements of characters in UTF-8"))?;
        let (units, _) = trie.as_chunks::<4>();
        let units: Vec<usize> = units.iter().map(|unit| u32::from_le_bytes(*unit) as usize).collect();
        for (position, unit) in units.iter().enumerate().filter(|(_, unit)| *unit >> 31 == 0) {
            let offset = (unit >> 10) << ((unit & (1 << 9)) >> 6);
            let Some(child) = units.get(position ^ offset) else {
                return Err(error("a trie whose units point into it"));
            };
            let has_leaf = unit >> 8 & 1 == 1;
            if has_leaf && !replacements.is_char_boundary(child & ((1 << 31) - 1)) {
                return Err(error("a trie whose leaves point to replacements"));
            }
        }
        let longest = replacements.split('\0').map(str::len).max().unwrap_or_default();
        if longest > MAX_CHARSMAP_ENTRY {
            return Err(error(&format!("replacements of at most {MAX_CHARSMAP_ENTRY} bytes")));
        }
        Ok(longest.max(1))
    }
}

/// The bytes of a text in base64 with padding.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let letter_value = |letter: u8| match letter {
        b'A'..=b'Z' => Some(u32::from(letter - b'A')),
        b'a'..=b'z' => Some(u32::from(letter - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(letter - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let letters = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(letters.len() / 4 * 3 + 2);
    for group in letters.chunks(4) {
        let mut bits = 0;
        for letter in group {
            bits = bits << 6 | letter_value(*letter)?;
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..][..group.len() * 3 / 4]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_decodes_every_length() {
        for (text, bytes) in [("", &b""[..]), ("AA==", b"\0"), ("/////w==", b"\xff\xff\xff\xff"), ("TWFu", b"Man")] {
            assert_eq!(decode_base64(text).as_deref(), Some(bytes), "{text}");
        }
        assert_eq!(decode_base64("a*"), None);
    }

    /// A character map whose trie maps `A` to `b`, as the SentencePiece library lays it out.
    fn small_charsmap() -> Vec<u8> {
        let mut units = vec![0_u32; CHARSMAP_BLOCK];
        units[0] = 1 << 10; // Children of the root are at 1 ^ letter.
        let node = 1 ^ usize::from(b'A');
        units[node] = u32::from(b'A') | 1 << 8 | 2 << 10; // With a leaf at node ^ 2.
        units[node ^ 2] = 1 << 31; // Replacement 0.
        let mut bytes = (4 * CHARSMAP_BLOCK as u32).to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(b"b\0");
        bytes
    }

    fn encode_base64(bytes: &[u8]) -> String {
        let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let group_text = |group: &[u8]| {
            let bits = group.iter().fold(0, |bits, byte| bits << 8 | usize::from(*byte)) << (8 * (3 - group.len()));
            (0..=group.len()).map(|index| letters[bits >> (18 - 6 * index) & 63] as char).collect::<String>()
        };
        bytes.chunks(3).map(group_text).collect::<String>() + &"=".repeat((3 - bytes.len() % 3) % 3)
    }

    #[test]
    fn a_charsmap_is_accepted_only_if_every_walk_stays_inside() {
        let checker = Checker { path: Path::new("tokenizer.json") };
        let check = |bytes: &[u8]| checker.check_charsmap(&encode_base64(bytes));
        let map = small_charsmap();
        assert_eq!(check(&map).unwrap(), 1);
        let unit_bytes = |position: usize| 4 + 4 * position..8 + 4 * position;
        for (position, unit, words) in
            [(7, 999 << 10, "point into it"), (1 ^ usize::from(b'A') ^ 2, 1 << 31 | 0x63, "point to replacements")]
        {
            let mut broken = map.clone();
            broken[unit_bytes(position)].copy_from_slice(&u32::to_le_bytes(unit));
            let error = check(&broken).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(check(&map[..500]).unwrap_err().to_string().contains("whole blocks"));
    }
}
