//! Tensors of external checkpoints, read from memory-mapped files.
//!
//! [`WeightFiles`] gives the same view of a Hugging Face folder (one safetensors file, or many with an index) and of a GGUF file: names,
//! shapes, formats and byte ranges. Opening reads the headers alone, and a tensor's elements are decoded when it is read. Headers are
//! not trusted: every tensor must lie inside its file, no two may overlap, and the number of bytes must match shape and format.
//!
//! - [`mod@format`]: element types; `safetensors` and `gguf`: the two containers.

pub mod format;
mod gguf;
mod safetensors;

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

pub use format::TensorFormat;

/// Why weights could not be read.
#[derive(Debug, thiserror::Error)]
pub enum WeightError {
    /// A file cannot be opened or mapped.
    #[error("{}: {source}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file is not a valid file of weights.
    #[error("{}: found {found}, expected {expected}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the file has.
        found: String,
        /// What a valid file has.
        expected: String,
    },
    /// A tensor has an unexpected format, shape or offset.
    #[error("{}: tensor `{name}`: found {found}, expected {expected}", .path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The name of the tensor.
        name: String,
        /// What the file has.
        found: String,
        /// What a valid file has.
        expected: String,
    },
    /// The header of a GGUF file cannot be read.
    #[error("{}: {source}", .path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with the header.
        source: rung_audit::AuditError,
    },
}

impl WeightError {
    pub(crate) fn malformed(path: &Path, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), found: found.into(), expected: expected.into() }
    }

    pub(crate) fn tensor(path: &Path, name: &str, found: impl Into<String>, expected: impl Into<String>) -> Self {
        let name = name.escape_debug().to_string();
        Self::Tensor { path: path.to_owned(), name, found: found.into(), expected: expected.into() }
    }
}

/// A tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTensor {
    /// The element type.
    pub format: TensorFormat,
    /// The size of each axis, outermost first (row-major).
    pub shape: Vec<usize>,
    /// Index of the file.
    file: usize,
    /// Where its bytes are in the file.
    byte_range: Range<usize>,
}

impl StoredTensor {
    /// How many elements the tensor has.
    pub fn element_count(&self) -> usize {
        self.shape.iter().product()
    }
}

struct MappedFile {
    path: PathBuf,
    map: Mmap,
}

/// The tensors of a checkpoint.
pub struct WeightFiles {
    files: Vec<MappedFile>,
    tensors: BTreeMap<String, StoredTensor>,
}

impl WeightFiles {
    /// Maps a GGUF file, or the safetensors files of a folder.
    ///
    /// # Errors
    /// There is no such file, or one is malformed.
    pub fn open(path: &Path) -> Result<Self, WeightError> {
        if path.is_dir() { Self::open_folder(path) } else { Self::open_gguf(path) }
    }

    /// Every tensor with its name, in alphabetical order.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &StoredTensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The tensor of this name.
    pub fn get(&self, name: &str) -> Option<&StoredTensor> {
        self.tensors.get(name)
    }

    /// The file that a tensor lies in.
    pub fn path_of(&self, tensor: &StoredTensor) -> &Path {
        &self.files[tensor.file].path
    }

    /// Calls `visit` with every number of a tensor, in row-major order.
    pub fn read(&self, tensor: &StoredTensor, visit: impl FnMut(f32)) {
        tensor.format.decode(&self.files[tensor.file].map[tensor.byte_range.clone()], visit);
    }

    /// Bytes that all tensors take in the files.
    pub fn byte_count(&self) -> usize {
        self.tensors.values().map(|tensor| tensor.byte_range.len()).sum()
    }

    fn empty() -> Self {
        Self { files: Vec::new(), tensors: BTreeMap::new() }
    }

    /// Adds the tensors of a file after checking that each lies inside it and that no two overlap.
    fn add(&mut self, path: &Path, map: Mmap, header: Vec<HeaderTensor>) -> Result<(), WeightError> {
        let file = self.files.len();
        let mut ranges: Vec<(Range<usize>, String)> = Vec::new();
        for HeaderTensor { name, format, shape, start } in header {
            let tensor_error = |found: String, expected: String| WeightError::tensor(path, &name, found, expected);
            let element_count = shape.iter().try_fold(1_usize, |product, &extent| product.checked_mul(extent));
            let length = element_count.and_then(|count| format.bytes(count)).ok_or_else(|| {
                let blocks = format!("whole blocks of {} numbers, fewer than 2^64", format.block_sizes().0);
                tensor_error(format!("shape {shape:?} in {}", format.name()), blocks)
            })?;
            let end = start.and_then(|start| start.checked_add(length)).filter(|end| *end <= map.len());
            let (Some(start), Some(end)) = (start, end) else {
                return Err(tensor_error(
                    format!("{length} bytes that end after the file's {}", map.len()),
                    "a tensor inside of its file".to_owned(),
                ));
            };
            if format.block_sizes().0 > 1 && !shape.last().is_some_and(|row| row.is_multiple_of(format.block_sizes().0))
            {
                let rows = format!("rows of a multiple of {} numbers", format.block_sizes().0);
                return Err(tensor_error(format!("shape {shape:?} in {}", format.name()), rows));
            }
            ranges.push((start..end, name.clone()));
            let stored = StoredTensor { format, shape, file, byte_range: start..end };
            if self.tensors.insert(name.clone(), stored).is_some() {
                return Err(tensor_error("it twice".to_owned(), "one tensor of each name".to_owned()));
            }
        }
        ranges.sort_by_key(|(range, _)| (range.start, range.end));
        if let Some(pair) = ranges.windows(2).find(|pair| pair[1].0.start < pair[0].0.end) {
            let found = format!("bytes of `{}` among its own", pair[0].1.escape_debug());
            return Err(WeightError::tensor(path, &pair[1].1, found, "tensors that do not overlap"));
        }
        self.files.push(MappedFile { path: path.to_owned(), map });
        Ok(())
    }
}

/// A tensor as described by a header, before it is checked.
struct HeaderTensor {
    name: String,
    format: TensorFormat,
    shape: Vec<usize>,
    /// Its first byte in the file; `None` if the sum of the header's offsets overflows.
    start: Option<usize>,
}

/// Maps a file into memory.
fn map_file(path: &Path) -> Result<Mmap, WeightError> {
    let system_error = |source: std::io::Error| WeightError::System { path: path.to_owned(), source };
    let file = File::open(path).map_err(system_error)?;
    if !file.metadata().map_err(system_error)?.is_file() {
        return Err(WeightError::malformed(path, "no regular file", "a file of weights"));
    }
    #[expect(unsafe_code, reason = "mapping a file is the only way to read it in place")]
    // SAFETY: the map is only ever read as bytes, and every pattern of bytes is a valid value of what is decoded from it. Another
    // process that shortens the file while it is mapped kills this one with SIGBUS, as it does every program that maps files;
    // one that changes its bytes changes numbers and no invariant.
    unsafe { Mmap::map(&file) }.map_err(system_error)
}
