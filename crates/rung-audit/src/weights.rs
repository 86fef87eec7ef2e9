//! The size of a model's weights, from a number of bytes, bits per weight, or a file.
//!
//! Of files only the size is read: the `metadata.total_size` of a safetensors index, the length of a
//! safetensors or GGUF file.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::json::{self, JsonValue};
use crate::{Audit, AuditError, parse_bytes};

const INDEX_FILE: &str = "model.safetensors.index.json";

/// The size of the weights, as given by a user.
#[derive(Clone, Debug, PartialEq)]
pub enum WeightSize {
    /// Bytes of all weights.
    Bytes(u64),
    /// Bits per weight, such as `4.5bpw`.
    BitsPerWeight(f64),
    /// A safetensors index, a safetensors or GGUF file, or a directory that holds one.
    File(PathBuf),
}

impl std::str::FromStr for WeightSize {
    type Err = AuditError;

    fn from_str(text: &str) -> Result<Self, AuditError> {
        if let Some(bits) = text.trim().strip_suffix("bpw") {
            let bits = bits.trim().parse::<f64>().ok().filter(|bits| *bits > 0.0 && *bits <= 64.0);
            return bits
                .map(Self::BitsPerWeight)
                .ok_or_else(|| AuditError::invalid_argument(text, "expected bits such as 4.5bpw, up to 64"));
        }
        if let Ok(bytes) = parse_bytes(text) {
            return Ok(Self::Bytes(bytes));
        }
        let path = PathBuf::from(text);
        if path.exists() {
            Ok(Self::File(path))
        } else {
            Err(AuditError::invalid_argument(text, "expected bytes such as 17GiB, 4.5bpw, or a file"))
        }
    }
}

impl WeightSize {
    /// Bytes of all weights of a model.
    ///
    /// # Errors
    /// A file cannot be read or gives no size, or the number of weights is not known.
    pub fn resolve(&self, audit: &Audit) -> Result<u64, AuditError> {
        match self {
            Self::Bytes(bytes) => Ok(*bytes),
            Self::File(path) => file_bytes(path),
            Self::BitsPerWeight(bits) => {
                let count = audit.parameters.ok_or_else(|| AuditError::InvalidArgument {
                    text: format!("{bits}bpw"),
                    why: "the number of weights is not known from this config; give bytes or a file".to_owned(),
                })?;
                Ok((count.total as f64 * bits / 8.0).ceil() as u64)
            }
        }
    }
}

/// The weights beside a model's config, if any: the index in its directory, or the GGUF file itself.
pub fn find_weights(model: &str) -> Option<WeightSize> {
    let path = Path::new(model);
    let is_gguf = path.extension().is_some_and(|extension| extension == "gguf");
    let folder = if path.is_dir() { Some(path) } else { path.parent().filter(|_| path.is_file()) };
    let index = folder.map(|folder| folder.join(INDEX_FILE)).filter(|index| index.is_file());
    match (is_gguf && path.is_file(), index) {
        (true, _) => Some(WeightSize::File(path.to_owned())),
        (false, index) => index.map(WeightSize::File),
    }
}

fn file_bytes(path: &Path) -> Result<u64, AuditError> {
    let io_error = |error: std::io::Error| AuditError::Io { path: path.display().to_string(), why: error.to_string() };
    let path = &if path.is_dir() { path.join(INDEX_FILE) } else { path.to_owned() };
    let info = std::fs::metadata(path).map_err(io_error)?;
    if path.extension().is_none_or(|extension| extension != "json") {
        return Ok(info.len());
    }
    if !info.is_file() {
        return Err(io_error(std::io::Error::other("found no regular file, expected an index in JSON")));
    }
    let mut text = String::new();
    let mut file = File::open(path).map_err(io_error)?.take(json::MAX_BYTES + 1);
    file.read_to_string(&mut text).map_err(io_error)?;
    if text.len() as u64 > json::MAX_BYTES {
        return Err(AuditError::TooLong { limit: json::MAX_BYTES });
    }
    let value = json::parse(&text)?;
    let size = value.get("metadata").and_then(|metadata| metadata.get("total_size"));
    let found = size.map_or_else(|| "nothing".to_owned(), JsonValue::describe);
    size.and_then(crate::config::as_u64).filter(|size| *size > 0).ok_or_else(|| AuditError::Field {
        path: "metadata.total_size".to_owned(),
        found,
        expected: "the bytes of all weights".to_owned(),
    })
}
