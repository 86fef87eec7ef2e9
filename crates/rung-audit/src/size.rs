//! Sizes as users type them: `4GiB`, `512M`, `500 MB`, `1.5e9` bytes; `32k`, `1M`, `131072` tokens.
//!
//! A letter alone (`k`, `M`, `G`, `T`) is a power of 1024, as in `-Xmx512M` and in "a 128k context"; `kB`, `MB`, `GB`
//! are powers of 1000 and `KiB`, `MiB`, `GiB` of 1024, as the standards have it. Every option that takes a size uses
//! the functions here.

use crate::AuditError;

/// The largest number of bytes accepted: floats represent every whole number up to here.
const MAX_BYTES: f64 = 9.0e15;
const EXPECTED_BYTES: &str = "expected bytes such as 24GiB, 512M or 500MB";
const EXPECTED_TOKENS: &str = "expected tokens such as 32768, 32k or 1M";

/// Units of bytes in lower case, with their factors.
const UNITS: [(&str, f64); 14] = [
    ("", 1.0),
    ("b", 1.0),
    ("k", 1024.0),
    ("m", 1_048_576.0),
    ("g", 1_073_741_824.0),
    ("t", 1_099_511_627_776.0),
    ("kb", 1e3),
    ("mb", 1e6),
    ("gb", 1e9),
    ("tb", 1e12),
    ("kib", 1024.0),
    ("mib", 1_048_576.0),
    ("gib", 1_073_741_824.0),
    ("tib", 1_099_511_627_776.0),
];

/// The number and the unit in lower case.
fn split_unit(text: &str) -> Option<(f64, String)> {
    let trimmed = text.trim();
    // No unit contains an `e`, so an `e` is part of the number: an exponent.
    let end =
        trimmed.find(|letter: char| letter.is_alphabetic() && !matches!(letter, 'e' | 'E')).unwrap_or(trimmed.len());
    let number = trimmed[..end].trim().replace(['_', ','], "");
    Some((number.parse().ok()?, trimmed[end..].trim().to_lowercase()))
}

/// Reads a number of bytes.
///
/// # Errors
/// It is no number, its unit is unknown, or it is out of range.
pub fn parse_bytes(text: &str) -> Result<u64, AuditError> {
    let (number, unit) = split_unit(text).ok_or_else(|| AuditError::invalid_argument(text, EXPECTED_BYTES))?;
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
    let bytes = number * factor.ok_or_else(|| AuditError::invalid_argument(text, EXPECTED_BYTES))?;
    if (0.0..MAX_BYTES).contains(&bytes) {
        Ok(bytes as u64)
    } else {
        Err(AuditError::invalid_argument(text, "expected 0 to 9e15 bytes"))
    }
}

/// Reads a number of tokens, at least 1.
///
/// # Errors
/// It is no whole number of tokens, or out of range.
pub fn parse_tokens(text: &str) -> Result<u64, AuditError> {
    let (number, unit) = split_unit(text).ok_or_else(|| AuditError::invalid_argument(text, EXPECTED_TOKENS))?;
    let factor = UNITS.iter().find(|(name, _)| *name == unit && !name.contains('b')).map(|(_, factor)| factor);
    let tokens = number * factor.ok_or_else(|| AuditError::invalid_argument(text, EXPECTED_TOKENS))?;
    if tokens.fract() != 0.0 {
        return Err(AuditError::invalid_argument(text, EXPECTED_TOKENS));
    }
    if (1.0..=crate::MAX_CONTEXT as f64).contains(&tokens) {
        Ok(tokens as u64)
    } else {
        Err(AuditError::invalid_argument(text, format!("expected 1 to {} tokens", crate::MAX_CONTEXT)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_bytes_accepts_decimal_and_binary_units() {
        for (text, bytes) in [
            ("512M", 512 << 20),
            ("512MB", 512_000_000),
            ("2GiB", 2 << 30),
            ("2 g", 2 << 30),
            ("1.5e9", 1_500_000_000),
            ("1_000", 1000),
            ("0", 0),
        ] {
            assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
        }
        for text in ["", "-1GiB", "GiB", "12 parsecs", "1e30", "nan", "inf"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parse_tokens_requires_positive_whole_numbers() {
        for (text, tokens) in [("128k", 131_072), ("1M", 1 << 20), ("4096", 4096), ("1.5k", 1536), ("32K", 32_768)] {
            assert_eq!(parse_tokens(text).unwrap(), tokens, "{text}");
        }
        for text in ["", "0", "-4", "1.5", "4kB", "4MiB", "1e40", "k"] {
            assert!(parse_tokens(text).is_err(), "{text}");
        }
    }
}
