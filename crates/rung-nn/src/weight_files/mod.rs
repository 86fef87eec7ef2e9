//! Tensors of checkpoints that other programs wrote, read where they lie on disk.
//!
//! [`WeightFiles`] is one view of a Hugging Face folder (one safetensors file, or many with an index) and of a GGUF file: names,
//! shapes, formats, and where the bytes are. The files are memory-mapped, so opening costs the headers alone, and a tensor's
//! numbers are decoded when they are asked for. Nothing that a header says is trusted: every tensor must lie inside of its file, none
//! may overlap another, and its bytes must be as many as its shape and format need.
//!
//! - [`mod@format`]: number formats; `safetensors` and `gguf`: the two containers.

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
    /// The system refused.
    #[error("{}: {source}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: found {found}, expected {expected}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was there.
        found: String,
        /// What should have been there.
        expected: String,
    },
    /// A tensor is not what it should be.
    #[error("{}: tensor `{name}`: found {found}, expected {expected}", .path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// What was there.
        found: String,
        /// What should have been there.
        expected: String,
    },
    /// The header of a GGUF file cannot be read.
    #[error("{}: {source}", .path.display())]
    Gguf {
        /// The file.
        path: PathBuf,
        /// Why.
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

/// A tensor on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTensor {
    /// How its numbers are written.
    pub format: TensorFormat,
    /// Extents, the slowest first.
    pub shape: Vec<usize>,
    file: usize,
    bytes: Range<usize>,
}

impl StoredTensor {
    /// Numbers in it.
    pub fn numbers(&self) -> usize {
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
    /// There is none, or one is malformed.
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

    /// The numbers of a tensor, row by row, one after another.
    pub fn read(&self, tensor: &StoredTensor, each: impl FnMut(f32)) {
        tensor.format.decode(&self.files[tensor.file].map[tensor.bytes.clone()], each);
    }

    /// Bytes of all tensors as they are stored.
    pub fn bytes(&self) -> usize {
        self.tensors.values().map(|tensor| tensor.bytes.len()).sum()
    }

    fn empty() -> Self {
        Self { files: Vec::new(), tensors: BTreeMap::new() }
    }

    /// Adds the tensors of a file after checking that none lies outside of it or over another.
    fn add(&mut self, path: &Path, map: Mmap, found: Vec<HeaderTensor>) -> Result<(), WeightError> {
        let file = self.files.len();
        let mut used: Vec<(Range<usize>, String)> = Vec::new();
        for HeaderTensor { name, format, shape, start } in found {
            let tensor = |found: String, expected: String| WeightError::tensor(path, &name, found, expected);
            let numbers = shape.iter().try_fold(1_usize, |product, &extent| product.checked_mul(extent));
            let length = numbers.and_then(|numbers| format.bytes(numbers)).ok_or_else(|| {
                let blocks = format!("whole blocks of {} numbers, fewer than 2^64", format.block().0);
                tensor(format!("shape {shape:?} in {}", format.name()), blocks)
            })?;
            let end = start.and_then(|start| start.checked_add(length)).filter(|end| *end <= map.len());
            let (Some(start), Some(end)) = (start, end) else {
                return Err(tensor(
                    format!("{length} bytes that end after the file's {}", map.len()),
                    "a tensor inside of its file".to_owned(),
                ));
            };
            if format.block().0 > 1 && !shape.last().is_some_and(|row| row.is_multiple_of(format.block().0)) {
                let rows = format!("rows of a multiple of {} numbers", format.block().0);
                return Err(tensor(format!("shape {shape:?} in {}", format.name()), rows));
            }
            used.push((start..end, name.clone()));
            let stored = StoredTensor { format, shape, file, bytes: start..end };
            if self.tensors.insert(name.clone(), stored).is_some() {
                return Err(tensor("it twice".to_owned(), "one tensor of each name".to_owned()));
            }
        }
        used.sort_by_key(|(range, _)| (range.start, range.end));
        if let Some(pair) = used.windows(2).find(|pair| pair[1].0.start < pair[0].0.end) {
            let found = format!("bytes of `{}` among its own", pair[0].1.escape_debug());
            return Err(WeightError::tensor(path, &pair[1].1, found, "tensors that do not overlap"));
        }
        self.files.push(MappedFile { path: path.to_owned(), map });
        Ok(())
    }
}

/// A tensor as a header names it, before any of it is believed.
struct HeaderTensor {
    name: String,
    format: TensorFormat,
    shape: Vec<usize>,
    /// Its first byte in the file; nothing if the header's own sums overflow.
    start: Option<usize>,
}

/// Maps a file into memory.
fn map(path: &Path) -> Result<Mmap, WeightError> {
    let system = |source: std::io::Error| WeightError::System { path: path.to_owned(), source };
    let file = File::open(path).map_err(system)?;
    if !file.metadata().map_err(system)?.is_file() {
        return Err(WeightError::malformed(path, "no regular file", "a file of weights"));
    }
    #[expect(unsafe_code, reason = "mapping a file is the only way to read it in place")]
    // SAFETY: the map is only ever read as bytes, and every pattern of bytes is a valid value of what is decoded from it. Another
    // process that shortens the file while it is mapped ends this one with a signal, as it does for every program that maps files;
    // one that changes its bytes changes numbers and no invariant.
    unsafe { Mmap::map(&file) }.map_err(system)
}
