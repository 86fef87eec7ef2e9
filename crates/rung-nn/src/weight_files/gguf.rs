//! GGUF files: the header names every tensor with extents (the fastest first), format and offset.

use std::path::Path;

use rung_audit::gguf::GgufHeader;

use super::{HeaderTensor, TensorFormat, WeightError, WeightFiles, map};

impl WeightFiles {
    /// Maps a GGUF file.
    pub(super) fn open_gguf(path: &Path) -> Result<Self, WeightError> {
        let map = map(path)?;
        if !map.starts_with(b"GGUF") {
            return Err(WeightError::malformed(path, foreign(&map), "a GGUF file, or a folder with config.json"));
        }
        let header =
            GgufHeader::read(&map[..]).map_err(|source| WeightError::Gguf { path: path.to_owned(), source })?;
        let mut found = Vec::new();
        for place in header.tensors {
            let format = TensorFormat::of_gguf(place.format).ok_or_else(|| {
                let known = "one of F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K";
                WeightError::tensor(path, &place.name, format!("format {}", format_name(place.format)), known)
            })?;
            let shape = place.extents.iter().rev().map(|&extent| usize::try_from(extent).unwrap_or(usize::MAX));
            let start = header.data_start.checked_add(place.offset).and_then(|start| usize::try_from(start).ok());
            found.push(HeaderTensor { name: place.name, format, shape: shape.collect(), start });
        }
        let mut files = Self::empty();
        files.add(path, map, found)?;
        Ok(files)
    }
}

/// What a file that is not ours seems to be.
fn foreign(bytes: &[u8]) -> &'static str {
    match bytes {
        // A zip archive, which is what PyTorch writes, or a bare pickle.
        [b'P', b'K', 3, 4, ..] | [0x80, 2..=5, ..] => "a pickle file, whose reading would run code from it",
        _ => "another kind of file",
    }
}

/// Names of formats that are known and not read.
fn format_name(number: u32) -> String {
    let name = match number {
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        15 => "Q8_K",
        16..=23 | 29 => "of the IQ family",
        24..=27 => "of integers",
        34 | 35 => "of ternary numbers",
        39 => "MXFP4",
        _ => return number.to_string(),
    };
    format!("{number} ({name})")
}
