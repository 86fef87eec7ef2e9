//! Parses the header of a GGUF file without trusting any length in it.
//!
//! A header is: the magic, a version, two counts, then keys with typed values, some of them lists of a hundred thousand
//! tokens, then names, dimensions, formats and offsets of the tensors. An audit stores only the fields under the architecture's
//! name and stops before the tensors; [`GgufHeader::read`] stores everything, for programs that run the model. Other values
//! are skipped without being stored, so memory is bounded by what is stored and time by the file's real length.

use std::io::Read;

use crate::AuditError;
use crate::json::JsonValue;

/// A header longer than this is an error: the largest vocabularies take a tenth of it.
const MAX_HEADER: u64 = 256 << 20;
/// A key or a stored string longer than this many bytes is an error.
const MAX_STRING: u64 = 1 << 16;
/// In an audit, a longer list is skipped.
const MAX_LIST_ITEMS: u64 = crate::config::MAX_LAYERS;
/// More keys than this are an error.
const MAX_KEYS: u64 = 1 << 16;
/// In an audit, list items beyond this number, counted over the whole header, are skipped.
const MAX_TOTAL_ITEMS: u64 = 1 << 20;
/// The same two limits where vocabularies are stored too: the largest have a quarter million tokens, with a score, a type and
/// two merges each. A small item takes 64 bytes.
const MAX_VOCABULARY_ITEMS: u64 = 1 << 21;
/// More tensors than this are an error.
const MAX_TENSORS: u64 = 1 << 18;
/// GGUF tensors have at most this many dimensions.
const MAX_DIMENSIONS: u32 = 4;
/// Tensors start at multiples of this unless the file says otherwise.
const ALIGNMENT: u64 = 32;

/// The four bytes that start a GGUF file.
pub(crate) const MAGIC: &[u8; 4] = b"GGUF";

/// All fields and tensors of a header.
#[derive(Clone, Debug)]
pub struct GgufHeader {
    /// Keys and values in the order written.
    pub fields: Vec<(String, JsonValue)>,
    /// Tensors in the order written.
    pub tensors: Vec<GgufTensor>,
    /// Where the tensors' bytes start in the file.
    pub data_start: u64,
}

/// Shape, format and offset of a tensor of a GGUF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufTensor {
    /// Its name.
    pub name: String,
    /// Dimensions in GGUF's order: the fastest-varying first.
    pub dimensions: Vec<u64>,
    /// Its `ggml_type`: 0 is F32, 1 F16, 30 BF16, others are quantized blocks.
    pub ggml_type: u32,
    /// Bytes from [`GgufHeader::data_start`].
    pub offset: u64,
}

impl GgufHeader {
    /// Parses everything before the tensors' bytes.
    ///
    /// # Errors
    /// The header is malformed or claims more than any real one has.
    pub fn read(source: impl Read) -> Result<Self, AuditError> {
        let mut parser = Parser::new(source, StoredValues::WithVocabulary);
        let (tensor_count, fields) = parser.read_fields()?;
        if tensor_count > MAX_TENSORS {
            return Err(parser.error(format!("it claims {tensor_count} tensors; at most {MAX_TENSORS} are read")));
        }
        let mut tensors = Vec::new();
        for _ in 0..tensor_count {
            tensors.push(parser.read_tensor()?);
        }
        let alignment = match fields.iter().find(|(key, _)| key == "general.alignment") {
            None => ALIGNMENT,
            Some((_, value)) => crate::config::as_u64(value)
                .filter(|alignment| alignment.is_power_of_two() && *alignment <= 1 << 20)
                .ok_or_else(|| parser.error("general.alignment is not a power of two up to 2^20"))?,
        };
        Ok(Self { fields, tensors, data_start: parser.position.next_multiple_of(alignment) })
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&JsonValue> {
        self.fields.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }
}

/// Which values are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StoredValues {
    /// All but vocabularies and long lists.
    ForAudit,
    /// Also vocabularies; only very long strings and lists are left out.
    WithVocabulary,
}

/// Parses a header from a reader.
struct Parser<R> {
    source: R,
    /// Bytes read so far.
    position: u64,
    /// The key being parsed, for errors; empty between keys.
    key: String,
    stored: StoredValues,
    /// Version 1 wrote lengths in 32 bits.
    has_32_bit_lengths: bool,
    /// List items stored so far.
    stored_items: u64,
}

/// Parses a header into one flat object of its architecture's fields, with `model_type` for the architecture, and the
/// model's name.
pub(crate) fn read(source: impl Read) -> Result<(JsonValue, Option<String>), AuditError> {
    let (_, fields) = Parser::new(source, StoredValues::ForAudit).read_fields()?;
    Ok(architecture_fields(fields))
}

/// The fields whose keys start with the architecture's name, without that prefix, and the model's name.
fn architecture_fields(fields: Vec<(String, JsonValue)>) -> (JsonValue, Option<String>) {
    let text = |name: &str| {
        fields.iter().find_map(|(key, value)| match value {
            JsonValue::String(text) if key == name => Some(text.clone()),
            _ => None,
        })
    };
    let (architecture, name) = (text("general.architecture"), text("general.name"));
    let prefix = architecture.as_ref().map(|name| format!("{name}."));
    let mut model_fields = Vec::new();
    for (key, value) in fields {
        if let Some(field) = prefix.as_ref().and_then(|prefix| key.strip_prefix(prefix.as_str())) {
            model_fields.push((field.to_owned(), value));
        }
    }
    if let Some(architecture) = architecture {
        model_fields.push(("model_type".to_owned(), JsonValue::String(architecture)));
    }
    (JsonValue::Object(model_fields), name)
}

impl<R: Read> Parser<R> {
    fn new(source: R, stored: StoredValues) -> Self {
        Self { source, position: 0, key: String::new(), stored, has_32_bit_lengths: false, stored_items: 0 }
    }

    /// The number of tensors, and the keys with their stored values.
    fn read_fields(&mut self) -> Result<(u64, Vec<(String, JsonValue)>), AuditError> {
        let magic: [u8; 4] = self.read_bytes()?;
        if &magic != MAGIC {
            return Err(self.error("it does not start with GGUF"));
        }
        let version = u32::from_le_bytes(self.read_bytes()?);
        match version {
            1 => self.has_32_bit_lengths = true,
            2 | 3 => {}
            _ if (1..=3).contains(&version.swap_bytes()) => {
                return Err(self.error("it is big-endian, which is not read"));
            }
            _ => return Err(self.error(format!("version {version} is not one of 1, 2, 3"))),
        }
        let tensor_count = self.read_length()?;
        let key_count = self.read_length()?;
        if key_count > MAX_KEYS {
            return Err(self.error(format!("it claims {key_count} keys; at most {MAX_KEYS} are read")));
        }
        let mut fields: Vec<(String, JsonValue)> = Vec::new();
        let mut keys = std::collections::HashSet::new();
        for _ in 0..key_count {
            self.key.clear();
            let key = crate::without_control(self.read_string(MAX_STRING)?);
            self.key.clone_from(&key);
            let value_type = u32::from_le_bytes(self.read_bytes()?);
            let is_stored = self.stored == StoredValues::WithVocabulary || !key.starts_with("tokenizer.");
            let value = self.read_value(value_type, is_stored, 0)?;
            if !keys.insert(key.clone()) {
                return Err(self.error("the key occurs twice"));
            }
            if let Some(value) = value {
                fields.push((key, value));
            }
        }
        Ok((tensor_count, fields))
    }

    /// Name, dimensions, format and offset of the next tensor.
    fn read_tensor(&mut self) -> Result<GgufTensor, AuditError> {
        self.key.clear();
        let name = self.read_string(MAX_STRING)?;
        self.key.clone_from(&name);
        let dimension_count = u32::from_le_bytes(self.read_bytes()?);
        if dimension_count > MAX_DIMENSIONS {
            return Err(
                self.error(format!("a tensor claims {dimension_count} dimensions; at most {MAX_DIMENSIONS} are read"))
            );
        }
        let mut dimensions = Vec::new();
        for _ in 0..dimension_count {
            dimensions.push(self.read_length()?);
        }
        let ggml_type = u32::from_le_bytes(self.read_bytes()?);
        Ok(GgufTensor { name, dimensions, ggml_type, offset: u64::from_le_bytes(self.read_bytes()?) })
    }

    fn error(&self, problem: impl Into<String>) -> AuditError {
        AuditError::Gguf { problem: problem.into(), offset: self.position, key: self.key.escape_debug().to_string() }
    }

    /// Reads exactly as many bytes as the buffer has.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), AuditError> {
        self.check_limit(buffer.len() as u64)?;
        self.source.read_exact(buffer).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.error("the file ends inside its header"),
            _ => self.error(error.to_string()),
        })?;
        self.position += buffer.len() as u64;
        Ok(())
    }

    fn check_limit(&self, length: u64) -> Result<(), AuditError> {
        if self.position.saturating_add(length) > MAX_HEADER {
            return Err(self.error(format!("it claims more than {MAX_HEADER} bytes of metadata")));
        }
        Ok(())
    }

    fn read_bytes<const N: usize>(&mut self) -> Result<[u8; N], AuditError> {
        let mut buffer = [0; N];
        self.fill(&mut buffer)?;
        Ok(buffer)
    }

    fn read_length(&mut self) -> Result<u64, AuditError> {
        if self.has_32_bit_lengths {
            return Ok(u64::from(u32::from_le_bytes(self.read_bytes()?)));
        }
        Ok(u64::from_le_bytes(self.read_bytes()?))
    }

    /// Skips bytes without storing them; a length beyond the end of the file costs no more than the file's length.
    fn skip(&mut self, length: u64) -> Result<(), AuditError> {
        self.check_limit(length)?;
        let skipped = std::io::copy(&mut self.source.by_ref().take(length), &mut std::io::sink());
        let skipped = skipped.map_err(|error| self.error(error.to_string()))?;
        self.position += skipped;
        if skipped < length { Err(self.error("the file ends inside its header")) } else { Ok(()) }
    }

    fn read_string(&mut self, max: u64) -> Result<String, AuditError> {
        let length = self.read_length()?;
        if length > max {
            return Err(self.error(format!("a string claims {length} bytes; at most {max} are read")));
        }
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| self.error("a string is not UTF-8"))
    }

    /// Parses a value; returns nothing if it is skipped.
    fn read_value(&mut self, value_type: u32, is_stored: bool, depth: usize) -> Result<Option<JsonValue>, AuditError> {
        let number = |text: String| Some(JsonValue::Number(text));
        Ok(match value_type {
            0 => number(u8::from_le_bytes(self.read_bytes()?).to_string()),
            1 => number(i8::from_le_bytes(self.read_bytes()?).to_string()),
            2 => number(u16::from_le_bytes(self.read_bytes()?).to_string()),
            3 => number(i16::from_le_bytes(self.read_bytes()?).to_string()),
            4 => number(u32::from_le_bytes(self.read_bytes()?).to_string()),
            5 => number(i32::from_le_bytes(self.read_bytes()?).to_string()),
            6 => number(f32::from_le_bytes(self.read_bytes()?).to_string()),
            7 => Some(JsonValue::Bool(u8::from_le_bytes(self.read_bytes()?) != 0)),
            8 => return self.read_string_value(is_stored),
            9 => return self.read_list(is_stored, depth),
            10 => number(u64::from_le_bytes(self.read_bytes()?).to_string()),
            11 => number(i64::from_le_bytes(self.read_bytes()?).to_string()),
            12 => number(f64::from_le_bytes(self.read_bytes()?).to_string()),
            _ => return Err(self.error(format!("value type {value_type} is not one of 0 to 12"))),
        })
    }

    /// Parses a string; long ones (chat templates) are skipped.
    fn read_string_value(&mut self, is_stored: bool) -> Result<Option<JsonValue>, AuditError> {
        let length = self.read_length()?;
        if !is_stored || length > MAX_STRING {
            self.skip(length)?;
            return Ok(None);
        }
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // Pieces of a vocabulary may be control characters.
        let is_shown = self.stored == StoredValues::ForAudit;
        Ok(Some(JsonValue::String(if is_shown { crate::without_control(text) } else { text })))
    }

    fn read_list(&mut self, is_stored: bool, depth: usize) -> Result<Option<JsonValue>, AuditError> {
        if depth == 2 {
            return Err(self.error("lists are nested more than 2 deep"));
        }
        let item_type = u32::from_le_bytes(self.read_bytes()?);
        let count = self.read_length()?;
        let item_bytes = match item_type {
            0 | 1 | 7 => Some(1),
            2 | 3 => Some(2),
            4..=6 => Some(4),
            10..=12 => Some(8),
            _ => None,
        };
        let (max_list, max_total) = match self.stored {
            StoredValues::ForAudit => (MAX_LIST_ITEMS, MAX_TOTAL_ITEMS),
            StoredValues::WithVocabulary => (MAX_VOCABULARY_ITEMS, MAX_VOCABULARY_ITEMS),
        };
        let is_stored = is_stored && count <= max_list && self.stored_items + count <= max_total;
        self.stored_items += if is_stored { count } else { 0 };
        if let (Some(item_bytes), false) = (item_bytes, is_stored) {
            self.skip(
                count.checked_mul(item_bytes).ok_or_else(|| self.error(format!("a list claims {count} items")))?,
            )?;
            return Ok(None);
        }
        // The count is not trusted, so no memory is reserved for it; each item must have bytes in the file.
        let mut items = Vec::new();
        for _ in 0..count {
            let item = self.read_value(item_type, is_stored, depth + 1)?;
            if is_stored {
                items.push(item.unwrap_or(JsonValue::Null));
            }
        }
        Ok(is_stored.then_some(JsonValue::List(items)))
    }
}
