//! Number formats of a KV cache: single numbers, blocks with one scale, or vectors with one scale.

use crate::AuditError;

/// A number format of a KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheFormat {
    /// The name users type.
    pub name: &'static str,
    /// Numbers in one block.
    block_elements: u64,
    /// Bytes of one block, including its scale.
    block_bytes: u64,
    /// Bytes of the scale stored beside each key and each value vector of a head.
    scale_bytes: u64,
}

const fn format(name: &'static str, block_elements: u64, block_bytes: u64, scale_bytes: u64) -> CacheFormat {
    CacheFormat { name, block_elements, block_bytes, scale_bytes }
}

/// bfloat16.
pub const BF16_CACHE: CacheFormat = format("bf16", 1, 2, 0);
/// float16, the default of llama.cpp.
pub const F16_CACHE: CacheFormat = format("f16", 1, 2, 0);

/// Every format with its other names. Block formats are GGML's, the last two vLLM's.
static FORMATS: &[(CacheFormat, &[&str])] = &[
    (BF16_CACHE, &["bfloat16"]),
    (F16_CACHE, &["fp16", "float16", "half"]),
    (format("fp32", 1, 4, 0), &["f32", "float32", "float"]),
    (format("fp8", 1, 1, 0), &["fp8_e4m3", "fp8_e5m2", "float8", "e4m3", "e5m2"]),
    (format("int8", 1, 1, 0), &[]),
    (format("int4", 2, 1, 0), &[]),
    (format("q8_0", 32, 34, 0), &[]),
    (format("q5_1", 32, 24, 0), &[]),
    (format("q5_0", 32, 22, 0), &[]),
    (format("q4_1", 32, 20, 0), &[]),
    (format("q4_0", 32, 18, 0), &["iq4_nl"]),
    (format("nvfp4", 16, 9, 0), &[]),
    (format("int8_per_token_head", 1, 1, 4), &["fp8_per_token_head"]),
];

impl CacheFormat {
    /// Bytes of one key or value vector with `width` numbers.
    pub fn vector_bytes(self, width: u64) -> u64 {
        if width == 0 {
            0
        } else {
            width.div_ceil(self.block_elements).saturating_mul(self.block_bytes).saturating_add(self.scale_bytes)
        }
    }

    /// Bytes of `width` numbers that may span several heads, without the scales of vectors.
    pub fn bytes_without_vector_scales(self, width: u64) -> u64 {
        width.div_ceil(self.block_elements).saturating_mul(self.block_bytes)
    }
}

impl std::str::FromStr for CacheFormat {
    type Err = AuditError;

    fn from_str(text: &str) -> Result<Self, AuditError> {
        let lower = text.trim().to_lowercase();
        let known = FORMATS.iter().find(|(format, names)| format.name == lower || names.contains(&lower.as_str()));
        known.map(|(format, _)| *format).ok_or_else(|| {
            let names: Vec<&str> = FORMATS.iter().map(|(format, _)| format.name).collect();
            let why = format!("no such number format; expected one of {}", names.join(", "));
            AuditError::invalid_argument(text, why)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_bytes_include_scales() {
        let bytes = |name: &str, width| name.parse::<CacheFormat>().unwrap().vector_bytes(width);
        assert_eq!(bytes("bf16", 256), 512);
        assert_eq!(bytes("q8_0", 256), 272);
        assert_eq!(bytes("nvfp4", 128), 72);
        assert_eq!(bytes("int8_per_token_head", 256), 260);
        assert!("q9_9".parse::<CacheFormat>().is_err());
    }
}
