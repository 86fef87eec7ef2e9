//! The bytes of a safetensors file, with notes in a fixed order and a checksum over everything else in the file.
//!
//! ```text
//! 8 bytes         length of the header
//! header          {"__metadata__":{"rung.checksum":"<32 digits>","format":"pt",..},"layers.0..":{..},..}  and spaces
//! tensors         as safetensors has them
//! ```
//!
//! The checksum is the first note, so its digits stand at a fixed place and the rest of the file is what it is a hash of. Files of
//! other programs have none, and neither have those of earlier versions; [`Checksum::Missing`] tells them apart. Equal tensors and notes
//! give equal bytes.

use safetensors::SafeTensorError;
use safetensors::tensor::View;

use crate::hash::Hash;

/// What stands before the digits of the checksum, after the length of the header.
const BEFORE: &[u8] = br#"{"__metadata__":{"rung.checksum":""#;
/// Where the digits start.
const START: usize = 8 + BEFORE.len();

/// What a file says about its own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// It has no checksum.
    Missing,
    /// Its checksum is that of its bytes.
    Right,
    /// Its bytes are not those that were written.
    Wrong {
        /// The checksum in the file.
        stored: String,
        /// The checksum of the bytes.
        computed: String,
    },
}

impl Checksum {
    /// Compares the checksum of a file with its bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let digits = START..START + Hash::DIGITS;
        let Some(stored) = bytes.get(digits).filter(|_| bytes[8..].starts_with(BEFORE)) else { return Self::Missing };
        let (stored, computed) = (String::from_utf8_lossy(stored).into_owned(), compute(bytes));
        if stored == computed { Self::Right } else { Self::Wrong { stored, computed } }
    }
}

/// The checksum of all bytes but its own digits.
fn compute(bytes: &[u8]) -> String {
    Hash::new().with(&bytes[..START]).with(&bytes[START + Hash::DIGITS..]).text()
}

/// The bytes of a file with these tensors and notes.
///
/// # Errors
/// The format does not allow such tensors.
pub fn encode<'a, V: View>(
    tensors: impl IntoIterator<Item = (&'a str, V)>,
    notes: &[(&str, &str)],
) -> Result<Vec<u8>, SafeTensorError> {
    let plain = safetensors::serialize(tensors, None)?;
    let (length, rest) = plain.split_first_chunk().ok_or(SafeTensorError::HeaderTooSmall)?;
    let (tensors, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header = [BEFORE, &[b'0'; Hash::DIGITS], b"\""].concat();
    for (name, text) in notes {
        header.extend(format!(",{}:{}", quote(name), quote(text)).bytes());
    }
    let tensors = tensors.trim_ascii().strip_prefix(b"{").unwrap_or_default();
    header.extend(if tensors == b"}" { &b"}"[..] } else { &b"},"[..] });
    header.extend(tensors);
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut bytes = [&(header.len() as u64).to_le_bytes()[..], &header, data].concat();
    let checksum = compute(&bytes);
    bytes[START..START + Hash::DIGITS].copy_from_slice(checksum.as_bytes());
    Ok(bytes)
}

/// A text as JSON.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::{Dtype, SafeTensors, TensorView};

    fn file(tensors: &[(&str, &[u8])], notes: &[(&str, &str)]) -> Vec<u8> {
        let view = |data| TensorView::new(Dtype::U8, vec![<[u8]>::len(data)], data).unwrap();
        encode(tensors.iter().map(|(name, data)| (*name, view(*data))), notes).unwrap()
    }

    #[test]
    fn the_format_is_kept_and_notes_come_back() {
        let notes = [("format", "pt"), ("a", "\"quoted\" \\ line\n"), ("b", "é😀")];
        let all: [&[(&str, &[u8])]; 3] = [&[], &[("x", &[1, 2, 3])], &[("y", &[9]), ("x", &[1, 2]), ("empty", &[])]];
        for tensors in all {
            let bytes = file(tensors, &notes);
            assert_eq!(bytes, file(tensors, &notes));
            assert_eq!(Checksum::of(&bytes), Checksum::Right);
            let read = SafeTensors::deserialize(&bytes).unwrap();
            assert_eq!(read.len(), tensors.len());
            for (name, data) in tensors {
                assert_eq!(read.tensor(name).unwrap().data(), *data);
            }
            let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
            let found = header.metadata().clone().unwrap();
            assert_eq!(found.len(), notes.len() + 1);
            assert!(notes.iter().all(|(name, text)| found[*name] == *text));
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = file(&[("x", &[0, 255, 7]), ("y", &[1; 40])], &[("format", "pt"), ("rung.run", "{\"seed\":1}")]);
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // Without its name the checksum is missing; the rest of the file is then as it was.
            let named = bit / 8 < 8 || bit / 8 >= START;
            match Checksum::of(&flipped) {
                Checksum::Wrong { .. } => {}
                Checksum::Missing => assert!(!named, "bit {bit}"),
                Checksum::Right => panic!("bit {bit} of {} was not noticed", 8 * bytes.len()),
            }
        }
        for length in 0..bytes.len() {
            assert_ne!(Checksum::of(&bytes[..length]), Checksum::Right, "{length}");
        }
        assert_ne!(Checksum::of(&[&bytes[..], &[0]].concat()), Checksum::Right);
    }

    #[test]
    fn files_of_other_programs_have_none() {
        let view = TensorView::new(Dtype::U8, vec![1], &[1]).unwrap();
        let bytes = safetensors::serialize([("x", view)], None).unwrap();
        for bytes in [&bytes[..], b"", b"12345678", b"no safetensors file at all, but some text"] {
            assert_eq!(Checksum::of(bytes), Checksum::Missing);
        }
    }
}
