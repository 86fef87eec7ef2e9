//! Safetensors files with metadata in a fixed order and a checksum over all other bytes of the file.
//!
//! ```text
//! 8 bytes         length of the header
//! header          {"__metadata__":{"rung.checksum":"<32 digits>","format":"pt",..},"layers.0..":{..},..}  and spaces
//! tensors         in the safetensors format
//! ```
//!
//! The checksum is the first metadata entry, so that its digits are at a fixed offset; it is a hash of all other bytes. Files of external
//! programs and of earlier versions have none: see [`Checksum::Missing`]. Equal tensors and metadata give equal bytes.

use safetensors::SafeTensorError;
use safetensors::tensor::View;

use crate::hash::Hash;

/// The bytes between the length of the header and the digits of the checksum.
const PREFIX: &[u8] = br#"{"__metadata__":{"rung.checksum":""#;
/// Offset of the first digit of the checksum.
const DIGITS_START: usize = 8 + PREFIX.len();

/// Whether the checksum of a file matches its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The file has no checksum.
    Missing,
    /// The checksum matches.
    Valid,
    /// The checksum does not match: bytes changed after the file was written.
    Mismatch {
        /// The checksum in the file.
        stored: String,
        /// The checksum of the bytes.
        computed: String,
    },
}

impl Checksum {
    /// Compares the checksum of a file with its bytes.
    pub fn verify(bytes: &[u8]) -> Self {
        let digits = DIGITS_START..DIGITS_START + Hash::DIGITS;
        let Some(stored) = bytes.get(digits).filter(|_| bytes[8..].starts_with(PREFIX)) else { return Self::Missing };
        let (stored, computed) = (String::from_utf8_lossy(stored).into_owned(), compute_checksum(bytes));
        if stored == computed { Self::Valid } else { Self::Mismatch { stored, computed } }
    }
}

/// The checksum of all bytes except its own digits.
fn compute_checksum(bytes: &[u8]) -> String {
    Hash::new().with(&bytes[..DIGITS_START]).with(&bytes[DIGITS_START + Hash::DIGITS..]).to_hex()
}

/// The bytes of a file with these tensors and metadata.
///
/// # Errors
/// The format does not allow such tensors.
pub fn encode<'a, V: View>(
    tensors: impl IntoIterator<Item = (&'a str, V)>,
    metadata: &[(&str, &str)],
) -> Result<Vec<u8>, SafeTensorError> {
    let without_metadata = safetensors::serialize(tensors, None)?;
    let (length, rest) = without_metadata.split_first_chunk().ok_or(SafeTensorError::HeaderTooSmall)?;
    let (tensor_entries, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header = [PREFIX, &[b'0'; Hash::DIGITS], b"\""].concat();
    for (name, text) in metadata {
        header.extend(format!(",{}:{}", quote(name), quote(text)).bytes());
    }
    let tensor_entries = tensor_entries.trim_ascii().strip_prefix(b"{").unwrap_or_default();
    header.extend(if tensor_entries == b"}" { &b"}"[..] } else { &b"},"[..] });
    header.extend(tensor_entries);
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut bytes = [&(header.len() as u64).to_le_bytes()[..], &header, data].concat();
    let checksum = compute_checksum(&bytes);
    bytes[DIGITS_START..DIGITS_START + Hash::DIGITS].copy_from_slice(checksum.as_bytes());
    Ok(bytes)
}

/// A text as a JSON string.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::{Dtype, SafeTensors, TensorView};

    fn file(tensors: &[(&str, &[u8])], metadata: &[(&str, &str)]) -> Vec<u8> {
        let view = |data| TensorView::new(Dtype::U8, vec![<[u8]>::len(data)], data).unwrap();
        encode(tensors.iter().map(|(name, data)| (*name, view(*data))), metadata).unwrap()
    }

    #[test]
    fn encoded_files_are_valid_safetensors_with_their_metadata() {
        let metadata = [("format", "pt"), ("a", "\"quoted\" \\ line\n"), ("b", "é😀")];
        let tensor_lists: [&[(&str, &[u8])]; 3] =
            [&[], &[("x", &[1, 2, 3])], &[("y", &[9]), ("x", &[1, 2]), ("empty", &[])]];
        for tensors in tensor_lists {
            let bytes = file(tensors, &metadata);
            assert_eq!(bytes, file(tensors, &metadata));
            assert_eq!(Checksum::verify(&bytes), Checksum::Valid);
            let decoded = SafeTensors::deserialize(&bytes).unwrap();
            assert_eq!(decoded.len(), tensors.len());
            for (name, data) in tensors {
                assert_eq!(decoded.tensor(name).unwrap().data(), *data);
            }
            let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
            let actual = header.metadata().clone().unwrap();
            assert_eq!(actual.len(), metadata.len() + 1);
            assert!(metadata.iter().all(|(name, text)| actual[*name] == *text));
        }
    }

    #[test]
    fn checksum_detects_every_flipped_bit_and_truncation() {
        let bytes = file(&[("x", &[0, 255, 7]), ("y", &[1; 40])], &[("format", "pt"), ("rung.run", "{\"seed\":1}")]);
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // A bit flipped in the prefix makes the checksum unrecognisable.
            let prefix_intact = bit / 8 < 8 || bit / 8 >= DIGITS_START;
            match Checksum::verify(&flipped) {
                Checksum::Mismatch { .. } => {}
                Checksum::Missing => assert!(!prefix_intact, "bit {bit}"),
                Checksum::Valid => panic!("bit {bit} of {} was not detected", 8 * bytes.len()),
            }
        }
        for length in 0..bytes.len() {
            assert_ne!(Checksum::verify(&bytes[..length]), Checksum::Valid, "{length}");
        }
        assert_ne!(Checksum::verify(&[&bytes[..], &[0]].concat()), Checksum::Valid);
    }

    #[test]
    fn external_files_have_no_checksum() {
        let view = TensorView::new(Dtype::U8, vec![1], &[1]).unwrap();
        let bytes = safetensors::serialize([("x", view)], None).unwrap();
        for bytes in [&bytes[..], b"", b"12345678", b"no safetensors file at all, but some text"] {
            assert_eq!(Checksum::verify(bytes), Checksum::Missing);
        }
    }
}
