//! The header of a GGUF file, read without trusting any length in it.
//!
//! A header is: the magic, a version, two counts, then keys with typed values, some of them lists of a hundred thousand
//! tokens, then names, extents, formats and places of the tensors. An audit keeps only the fields under the architecture's own
//! name and stops before the tensors; [`GgufHeader::read`] keeps everything, for who wants to run the model. Whatever is not kept
//! is skipped without being stored, so memory is bounded by what is kept and time by the bytes that are really there.

use std::io::Read;

use crate::AuditError;
use crate::json::JsonValue;

/// A header longer than this is refused: the largest vocabularies take a tenth of it.
const MAX_HEADER: u64 = 256 << 20;
/// A key or a kept text longer than this is refused.
const MAX_TEXT: u64 = 1 << 16;
/// Longer lists are skipped, not kept.
const MAX_KEPT_ITEMS: u64 = crate::config::MAX_LAYERS;
/// More keys than this are refused.
const MAX_KEYS: u64 = 1 << 16;
/// More list items than this, over the whole header, are skipped and not kept.
const MAX_ITEMS: u64 = 1 << 20;
/// The same for who keeps vocabularies too: the largest have a quarter million tokens, with a score, a type and two merges each.
const MAX_VOCABULARY_ITEMS: u64 = 1 << 22;
/// More tensors than this are refused.
const MAX_TENSORS: u64 = 1 << 18;
/// GGUF tensors have at most this many axes.
const MAX_AXES: u32 = 4;
/// Tensors start at multiples of this unless the file says otherwise.
const ALIGNMENT: u64 = 32;

/// The four bytes that start a GGUF file.
pub(crate) const MAGIC: &[u8; 4] = b"GGUF";

/// A whole header.
#[derive(Clone, Debug)]
pub struct GgufHeader {
    /// Keys and values in the order written.
    pub fields: Vec<(String, JsonValue)>,
    /// Tensors in the order written.
    pub tensors: Vec<GgufTensor>,
    /// Where the tensors' bytes start in the file.
    pub data_start: u64,
}

/// Where a tensor of a GGUF file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GgufTensor {
    /// Its name.
    pub name: String,
    /// Extents, the fastest first, as GGUF has them.
    pub extents: Vec<u64>,
    /// The number of its format: 0 is F32, 1 F16, 30 BF16, others are blocks of few bits.
    pub format: u32,
    /// Bytes from [`GgufHeader::data_start`].
    pub offset: u64,
}

impl GgufHeader {
    /// Reads everything before the tensors' bytes.
    ///
    /// # Errors
    /// The header is malformed or claims more than any real one has.
    pub fn read(from: impl Read) -> Result<Self, AuditError> {
        let mut reader = Reader::new(from, KeptValues::All);
        let (tensors, fields) = reader.fields()?;
        if tensors > MAX_TENSORS {
            return Err(reader.error(format!("it claims {tensors} tensors; at most {MAX_TENSORS} are read")));
        }
        let mut places = Vec::new();
        for _ in 0..tensors {
            places.push(reader.place()?);
        }
        let alignment = match fields.iter().find(|(key, _)| key == "general.alignment") {
            None => ALIGNMENT,
            Some((_, value)) => crate::config::as_u64(value)
                .filter(|alignment| alignment.is_power_of_two() && *alignment <= 1 << 20)
                .ok_or_else(|| reader.error("general.alignment is not a power of two up to 2^20"))?,
        };
        Ok(Self { fields, tensors: places, data_start: reader.at.next_multiple_of(alignment) })
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&JsonValue> {
        self.fields.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }
}

/// Which values are kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeptValues {
    /// All but vocabularies and long lists.
    ForAudit,
    /// All.
    All,
}

struct Reader<R> {
    from: R,
    at: u64,
    key: String,
    keep: KeptValues,
    /// Version 1 wrote lengths in 32 bits.
    short_lengths: bool,
    /// List items kept so far.
    items: u64,
}

/// Reads a header and gives the fields of its architecture as one flat object, with `model_type` for the
/// architecture and `name` for the model.
pub(crate) fn read(from: impl Read) -> Result<(JsonValue, Option<String>), AuditError> {
    let (_, fields) = Reader::new(from, KeptValues::ForAudit).fields()?;
    Ok(of_architecture(fields))
}

/// The fields under the architecture's name, without that name.
fn of_architecture(fields: Vec<(String, JsonValue)>) -> (JsonValue, Option<String>) {
    let text = |wanted: &str| {
        fields.iter().find_map(|(key, value)| match value {
            JsonValue::Text(text) if key == wanted => Some(text.clone()),
            _ => None,
        })
    };
    let (architecture, name) = (text("general.architecture"), text("general.name"));
    let prefix = architecture.as_ref().map(|name| format!("{name}."));
    let mut inner = Vec::new();
    for (key, value) in fields {
        if let Some(rest) = prefix.as_ref().and_then(|prefix| key.strip_prefix(prefix.as_str())) {
            inner.push((rest.to_owned(), value));
        }
    }
    if let Some(architecture) = architecture {
        inner.push(("model_type".to_owned(), JsonValue::Text(architecture)));
    }
    (JsonValue::Object(inner), name)
}

impl<R: Read> Reader<R> {
    fn new(from: R, keep: KeptValues) -> Self {
        Self { from, at: 0, key: String::new(), keep, short_lengths: false, items: 0 }
    }

    /// The number of tensors, and the keys with the values that are kept.
    fn fields(&mut self) -> Result<(u64, Vec<(String, JsonValue)>), AuditError> {
        let magic: [u8; 4] = self.bytes()?;
        if &magic != MAGIC {
            return Err(self.error("it does not start with GGUF"));
        }
        let version = u32::from_le_bytes(self.bytes()?);
        match version {
            1 => self.short_lengths = true,
            2 | 3 => {}
            _ if (1..=3).contains(&version.swap_bytes()) => {
                return Err(self.error("it is big-endian, which is not read"));
            }
            _ => return Err(self.error(format!("version {version} is not one of 1, 2, 3"))),
        }
        let tensors = self.length()?;
        let keys = self.length()?;
        if keys > MAX_KEYS {
            return Err(self.error(format!("it claims {keys} keys; at most {MAX_KEYS} are read")));
        }
        let mut fields: Vec<(String, JsonValue)> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..keys {
            self.key.clear();
            let key = self.text(MAX_TEXT)?;
            self.key.clone_from(&key);
            let kind = u32::from_le_bytes(self.bytes()?);
            let keep = self.keep == KeptValues::All || !key.starts_with("tokenizer.");
            let value = self.value(kind, keep, 0)?;
            if !seen.insert(key.clone()) {
                return Err(self.error("the key occurs twice"));
            }
            if let Some(value) = value {
                fields.push((key, value));
            }
        }
        Ok((tensors, fields))
    }

    /// Name, extents, format and place of the next tensor.
    fn place(&mut self) -> Result<GgufTensor, AuditError> {
        self.key.clear();
        let name = self.text(MAX_TEXT)?;
        self.key.clone_from(&name);
        let axes = u32::from_le_bytes(self.bytes()?);
        if axes > MAX_AXES {
            return Err(self.error(format!("a tensor claims {axes} axes; at most {MAX_AXES} are read")));
        }
        let mut extents = Vec::new();
        for _ in 0..axes {
            extents.push(self.length()?);
        }
        let format = u32::from_le_bytes(self.bytes()?);
        Ok(GgufTensor { name, extents, format, offset: u64::from_le_bytes(self.bytes()?) })
    }

    fn error(&self, what: impl Into<String>) -> AuditError {
        AuditError::Gguf { what: what.into(), offset: self.at, key: self.key.escape_debug().to_string() }
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), AuditError> {
        self.check_limit(buffer.len() as u64)?;
        self.from.read_exact(buffer).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => self.error("the file ends inside its header"),
            _ => self.error(error.to_string()),
        })?;
        self.at += buffer.len() as u64;
        Ok(())
    }

    fn check_limit(&self, length: u64) -> Result<(), AuditError> {
        if self.at.saturating_add(length) > MAX_HEADER {
            return Err(self.error(format!("it claims more than {MAX_HEADER} bytes of metadata")));
        }
        Ok(())
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], AuditError> {
        let mut buffer = [0; N];
        self.fill(&mut buffer)?;
        Ok(buffer)
    }

    fn length(&mut self) -> Result<u64, AuditError> {
        if self.short_lengths {
            return Ok(u64::from(u32::from_le_bytes(self.bytes()?)));
        }
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    /// Skips without storing; a wrong length costs only the bytes that are there.
    fn skip(&mut self, length: u64) -> Result<(), AuditError> {
        self.check_limit(length)?;
        let skipped = std::io::copy(&mut self.from.by_ref().take(length), &mut std::io::sink());
        let skipped = skipped.map_err(|error| self.error(error.to_string()))?;
        self.at += skipped;
        if skipped < length { Err(self.error("the file ends inside its header")) } else { Ok(()) }
    }

    fn text(&mut self, max: u64) -> Result<String, AuditError> {
        let length = self.length()?;
        if length > max {
            return Err(self.error(format!("a text claims {length} bytes; at most {max} are read")));
        }
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| self.error("a text is not UTF-8"))
    }

    /// A value, or nothing if it is of no use to an audit.
    fn value(&mut self, kind: u32, keep: bool, depth: usize) -> Result<Option<JsonValue>, AuditError> {
        let number = |text: String| Some(JsonValue::Number(text));
        Ok(match kind {
            0 => number(u8::from_le_bytes(self.bytes()?).to_string()),
            1 => number(i8::from_le_bytes(self.bytes()?).to_string()),
            2 => number(u16::from_le_bytes(self.bytes()?).to_string()),
            3 => number(i16::from_le_bytes(self.bytes()?).to_string()),
            4 => number(u32::from_le_bytes(self.bytes()?).to_string()),
            5 => number(i32::from_le_bytes(self.bytes()?).to_string()),
            6 => number(f32::from_le_bytes(self.bytes()?).to_string()),
            7 => Some(JsonValue::Bool(u8::from_le_bytes(self.bytes()?) != 0)),
            8 => return self.text_value(keep),
            9 => return self.list(keep, depth),
            10 => number(u64::from_le_bytes(self.bytes()?).to_string()),
            11 => number(i64::from_le_bytes(self.bytes()?).to_string()),
            12 => number(f64::from_le_bytes(self.bytes()?).to_string()),
            _ => return Err(self.error(format!("value type {kind} is not one of 0 to 12"))),
        })
    }

    /// Long texts (chat templates) are skipped.
    fn text_value(&mut self, keep: bool) -> Result<Option<JsonValue>, AuditError> {
        let length = self.length()?;
        if !keep || length > MAX_TEXT {
            self.skip(length)?;
            return Ok(None);
        }
        let mut bytes = vec![0; length as usize];
        self.fill(&mut bytes)?;
        Ok(Some(JsonValue::Text(String::from_utf8_lossy(&bytes).into_owned())))
    }

    fn list(&mut self, keep: bool, depth: usize) -> Result<Option<JsonValue>, AuditError> {
        if depth == 2 {
            return Err(self.error("lists are nested more than 2 deep"));
        }
        let kind = u32::from_le_bytes(self.bytes()?);
        let count = self.length()?;
        let width = match kind {
            0 | 1 | 7 => Some(1),
            2 | 3 => Some(2),
            4..=6 => Some(4),
            10..=12 => Some(8),
            _ => None,
        };
        let (most, most_in_all) = match self.keep {
            KeptValues::ForAudit => (MAX_KEPT_ITEMS, MAX_ITEMS),
            KeptValues::All => (MAX_VOCABULARY_ITEMS, MAX_VOCABULARY_ITEMS),
        };
        let keep = keep && count <= most && self.items + count <= most_in_all;
        self.items += if keep { count } else { 0 };
        if let (Some(width), false) = (width, keep) {
            self.skip(count.checked_mul(width).ok_or_else(|| self.error(format!("a list claims {count} items")))?)?;
            return Ok(None);
        }
        // The count may be wrong, so nothing is reserved for it: every item needs bytes in the file.
        let mut items = Vec::new();
        for _ in 0..count {
            let item = self.value(kind, keep, depth + 1)?;
            if keep {
                items.push(item.unwrap_or(JsonValue::Null));
            }
        }
        Ok(keep.then_some(JsonValue::List(items)))
    }
}
