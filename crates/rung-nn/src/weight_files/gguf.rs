//! GGUF files. The header lists every tensor with its extents (innermost axis first), format and offset.

use std::path::Path;

use rung_audit::gguf::GgufHeader;

use super::{HeaderTensor, TensorFormat, WeightError, WeightFiles, map_file};

impl WeightFiles {
    /// Maps a GGUF file.
    pub(super) fn open_gguf(path: &Path) -> Result<Self, WeightError> {
        let map = map_file(path)?;
        if !map.starts_with(b"GGUF") {
            return Err(WeightError::malformed(
                path,
                describe_other_file(&map),
                "a GGUF file, or a folder with config.json",
            ));
        }
        let header =
            GgufHeader::read(&map[..]).map_err(|source| WeightError::Gguf { path: path.to_owned(), source })?;
        let mut tensors = Vec::new();
        for tensor in header.tensors {
            let format = TensorFormat::from_gguf_type(tensor.ggml_type).ok_or_else(|| {
                let known = "one of F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, MXFP4";
                WeightError::tensor(path, &tensor.name, format!("format {}", format_name(tensor.ggml_type)), known)
            })?;
            let shape =
                tensor.dimensions.iter().rev().map(|&dimension| usize::try_from(dimension).unwrap_or(usize::MAX));
            let start = header.data_start.checked_add(tensor.offset).and_then(|start| usize::try_from(start).ok());
            tensors.push(HeaderTensor { name: tensor.name, format, shape: shape.collect(), start });
        }
        let mut files = Self::empty();
        files.add(path, map, tensors)?;
        Ok(files)
    }
}

/// What a file that is not GGUF seems to be.
fn describe_other_file(bytes: &[u8]) -> &'static str {
    match bytes {
        // A zip archive, which is what PyTorch writes, or a bare pickle.
        [b'P', b'K', 3, 4, ..] | [0x80, 2..=5, ..] => "a pickle file, whose reading would run code from it",
        _ => "another kind of file",
    }
}

/// The name of a format that cannot be read, by its GGUF type id.
fn format_name(type_id: u32) -> String {
    let name = match type_id {
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        15 => "Q8_K",
        16..=23 | 29 => "of the IQ family",
        24..=27 => "of integers",
        34 | 35 => "of ternary numbers",
        _ => return type_id.to_string(),
    };
    format!("{type_id} ({name})")
}
