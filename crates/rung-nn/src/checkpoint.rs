//! Checkpoints: safetensors files that PyTorch reads and writes.
//!
//! A file is written under a temporary name and then renamed, so that a reader never sees a partial file. It is loaded into the weights
//! of a model that was built from its plan: every weight must be in the file with its name and shape, and there must be no other
//! tensors. A file written here has a checksum, which must match its bytes; external files have none. The error names the first
//! mismatch, and no weight has changed then.
//!
//! ```
//! use rung_engine::Parameters;
//!
//! let mut weights = Parameters::<f32>::new();
//! let norm = weights.add("norm.weight", &[2], vec![1.0, 2.0]).id();
//! let path = std::env::temp_dir().join(format!("rung-doc-{}.safetensors", std::process::id()));
//! rung_nn::save(&path, &weights)?;
//! weights.get_mut(norm).fill(0.0);
//! rung_nn::load(&path, &mut weights)?;
//! assert_eq!(weights.get(norm), [1.0, 2.0]);
//! # std::fs::remove_file(&path).ok();
//! # Ok::<(), rung_nn::CheckpointError>(())
//! ```

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use rung_engine::{ParameterEntry, Parameters, Scalar};
use rung_theory::stack::Plan;
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorView, View};

use crate::file::write_atomically;
use crate::files::{STACK_KEY, WIDTH_KEY};
use crate::tensor_file::{self, Checksum};

/// Why a checkpoint could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The operating system reported an error.
    #[error("{}: {source}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file could not be written.
    #[error("{}: not written: {reason}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The file is truncated or not a safetensors file.
    #[error("{}: not a complete safetensors file ({reason}); {found} bytes were found, and the model's weights alone take {expected}", .path.display())]
    InvalidFile {
        /// The file.
        path: PathBuf,
        /// The error of the safetensors reader.
        reason: String,
        /// Bytes in the file.
        found: u64,
        /// Bytes of the model's weights in the precision it runs in.
        expected: u64,
    },
    /// The header cannot be read.
    #[error("{}: not a safetensors file: found {found}, expected {expected}", .path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What the file has.
        found: String,
        /// What it should have.
        expected: &'static str,
    },
    /// The checksum does not match: bytes of the file changed after it was written.
    #[error(
        "{}: damaged since it was written: its checksum is {stored}, and that of its bytes {computed}; copy it again from \
         its origin",
        .path.display()
    )]
    ChecksumMismatch {
        /// The file.
        path: PathBuf,
        /// The checksum in the file.
        stored: String,
        /// The checksum of the bytes.
        computed: String,
    },
    /// The file ends before the end of a tensor.
    #[error("{}: cut off in tensor `{name}` of shape {shape:?}: {found} bytes were found, and its header says {expected}", .path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The first tensor that is incomplete.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Bytes in the file.
        found: u64,
        /// Bytes that the file should have.
        expected: u64,
    },
    /// The file is far larger than the model.
    #[error("{}: {found} bytes, where at most {max} could belong to this model", .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Bytes in the file.
        found: u64,
        /// Bytes that every weight in double precision and the longest header would take.
        max: u64,
    },
    /// The file has no tensor for a weight of the model.
    #[error("{}: tensor `{name}` is missing; expected shape {expected:?}", .path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The weight.
        name: String,
        /// Its shape.
        expected: Vec<usize>,
    },
    /// A tensor that the model does not have.
    #[error("{}: tensor `{name}` of shape {found:?} is not a weight of this model", .path.display())]
    UnknownTensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
    },
    /// A tensor of another shape.
    #[error("{}: tensor `{name}`: found shape {found:?}, expected {expected:?}", .path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// The weight.
        name: String,
        /// The shape in the file.
        found: Vec<usize>,
        /// The shape in the model.
        expected: Vec<usize>,
    },
    /// A tensor of an unsupported number type.
    #[error("{}: tensor `{name}`: found numbers of type {found}, expected F32, F64 or BF16", .path.display())]
    UnsupportedType {
        /// The file.
        path: PathBuf,
        /// The weight.
        name: String,
        /// The type in the file.
        found: String,
    },
}

/// The metadata of a safetensors file: text by key.
pub type FileMetadata = BTreeMap<String, String>;

/// The metadata entry of every file written here: the program that wrote it.
pub(crate) const MADE_BY: (&str, &str) = ("made_by", concat!("rung ", env!("CARGO_PKG_VERSION")));

/// The longest header, in bytes, that the format allows.
const MAX_HEADER_BYTES: u64 = 100_000_000;

/// Writes all weights, in the precision they have.
///
/// # Errors
/// The file cannot be written. An existing file is unchanged then.
pub fn save<S: Scalar>(path: &Path, weights: &Parameters<S>) -> Result<(), CheckpointError> {
    save_with_metadata(path, weights, &[])
}

/// As [`save`], with the plan the weights belong to, so that [`inspect`](crate::inspect) can name the mixers.
///
/// # Errors
/// As [`save`].
pub fn save_plan<S: Scalar>(path: &Path, weights: &Parameters<S>, plan: &Plan) -> Result<(), CheckpointError> {
    save_with_metadata(
        path,
        weights,
        &[(STACK_KEY, &plan.to_stack().to_string()), (WIDTH_KEY, &plan.width.to_string())],
    )
}

/// As [`save`], with more metadata entries.
///
/// # Errors
/// As [`save`].
#[inline(never)]
pub fn save_with_metadata<S: Scalar>(
    path: &Path,
    weights: &Parameters<S>,
    metadata: &[(&str, &str)],
) -> Result<(), CheckpointError> {
    let tensors =
        weights.entries().map(|(id, entry)| (entry.name.as_str(), WeightView { entry, values: weights.get(id) }));
    let write_error = |reason: String| CheckpointError::Write { path: path.to_owned(), reason };
    let bytes = tensor_file::encode(tensors, &[&[("format", "pt"), MADE_BY], metadata].concat());
    write_atomically(path, &bytes.map_err(|error| write_error(error.to_string()))?)
        .map_err(|error| write_error(error.source.to_string()))
}

/// Reads all weights of a model.
///
/// # Errors
/// The file cannot be read, is truncated, or has other tensors than the model. No weight has changed then.
pub fn load<S: Scalar>(path: &Path, weights: &mut Parameters<S>) -> Result<(), CheckpointError> {
    load_with_metadata(path, weights).map(|_| ())
}

/// As [`load`], and returns the metadata of the file.
///
/// # Errors
/// As [`load`].
#[inline(never)]
pub fn load_with_metadata<S: Scalar>(
    path: &Path,
    weights: &mut Parameters<S>,
) -> Result<FileMetadata, CheckpointError> {
    let system_error = |source| CheckpointError::System { path: path.to_owned(), source };
    let file_info = fs::metadata(path).map_err(system_error)?;
    if !file_info.is_file() {
        return Err(system_error(std::io::Error::new(std::io::ErrorKind::InvalidInput, "not a regular file")));
    }
    let found = file_info.len();
    let max = MAX_HEADER_BYTES + 8 * (weights.size() as u64 + 1);
    if found > max {
        return Err(CheckpointError::TooLarge { path: path.to_owned(), found, max });
    }
    let bytes = fs::read(path).map_err(system_error)?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| {
        let expected = (weights.size() * size_of::<S>()) as u64;
        let invalid_file =
            || CheckpointError::InvalidFile { path: path.to_owned(), reason: error.to_string(), found, expected };
        truncation_error(path, &bytes).unwrap_or_else(invalid_file)
    })?;
    if let Checksum::Mismatch { stored, computed } = Checksum::verify(&bytes) {
        return Err(CheckpointError::ChecksumMismatch { path: path.to_owned(), stored, computed });
    }
    let tensors = match_tensors(path, &file, weights)?;
    let flat = weights.flat_mut();
    for (range, tensor) in tensors {
        decode(&tensor, &mut flat[range]);
    }
    Ok(read_metadata(&bytes))
}

/// Returns an error for a file that is too small for this many weights, before memory is allocated for them. A weight takes at least two
/// bytes.
///
/// # Errors
/// The file does not exist or is too small.
pub(crate) fn check_file_size(path: &Path, weight_count: u128) -> Result<(), CheckpointError> {
    let file_info = fs::metadata(path).map_err(|source| CheckpointError::System { path: path.to_owned(), source })?;
    let found = file_info.len();
    if u128::from(found) >= weight_count.saturating_mul(2) {
        return Ok(());
    }
    let reason = format!("the network that it should belong to has {weight_count} weights");
    let expected = u64::try_from(weight_count.saturating_mul(4)).unwrap_or(u64::MAX);
    Err(CheckpointError::InvalidFile { path: path.to_owned(), reason, found, expected })
}

/// The metadata of a file; empty if it is not a safetensors file.
pub fn read_metadata(bytes: &[u8]) -> FileMetadata {
    let header = SafeTensors::read_metadata(bytes).ok();
    header.and_then(|(_, header)| header.metadata().clone()).unwrap_or_default().into_iter().collect()
}

/// The error for a file that is shorter than its complete header says: it names the tensor in which the file ends.
fn truncation_error(path: &Path, bytes: &[u8]) -> Option<CheckpointError> {
    let (length, rest) = bytes.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let header: Metadata = serde_json::from_slice(rest.get(..length)?).ok()?;
    let data_len = rest.len() - length;
    let name = header
        .offset_keys()
        .into_iter()
        .find(|name| header.info(name).is_some_and(|info| info.data_offsets.1 > data_len))?;
    let shape = header.info(&name)?.shape.clone();
    let expected = (8 + length as u64).saturating_add(header.data_len() as u64);
    Some(CheckpointError::Truncated { path: path.to_owned(), name, shape, found: bytes.len() as u64, expected })
}

/// For every weight, its range in the flat store and its tensor in the file.
type WeightTensors<'a> = Vec<(std::ops::Range<usize>, TensorView<'a>)>;

/// Matches the tensors of a file with the weights by name, and checks their shapes and types.
fn match_tensors<'a, S: Scalar>(
    path: &Path,
    file: &SafeTensors<'a>,
    weights: &Parameters<S>,
) -> Result<WeightTensors<'a>, CheckpointError> {
    let mut unmatched: HashMap<&str, TensorView<'a>> = file.iter().collect();
    let mut tensors = Vec::with_capacity(weights.len());
    for (_, entry) in weights.entries() {
        let (path, name, expected) = (path.to_owned(), entry.name.clone(), entry.shape.to_vec());
        let Some(tensor) = unmatched.remove(entry.name.as_str()) else {
            return Err(CheckpointError::Missing { path, name, expected });
        };
        if tensor.shape() != expected {
            return Err(CheckpointError::Shape { path, name, found: tensor.shape().to_vec(), expected });
        }
        if !matches!(tensor.dtype(), Dtype::F32 | Dtype::F64 | Dtype::BF16) {
            return Err(CheckpointError::UnsupportedType { path, name, found: format!("{:?}", tensor.dtype()) });
        }
        tensors.push((entry.range.clone(), tensor));
    }
    // The first by name, so that the message does not depend on the order of the map.
    if let Some((name, tensor)) = unmatched.into_iter().min_by_key(|(name, _)| *name) {
        let (name, found) = (name.to_owned(), tensor.shape().to_vec());
        return Err(CheckpointError::UnknownTensor { path: path.to_owned(), name, found });
    }
    Ok(tensors)
}

fn decode<S: Scalar>(tensor: &TensorView<'_>, out: &mut [S]) {
    fn convert<S: Scalar, const SIZE: usize>(data: &[u8], out: &mut [S], read: impl Fn([u8; SIZE]) -> f64) {
        for (value, bytes) in out.iter_mut().zip(data.as_chunks().0) {
            *value = S::from_f64(read(*bytes));
        }
    }
    match tensor.dtype() {
        Dtype::F64 => convert(tensor.data(), out, f64::from_le_bytes),
        Dtype::BF16 => convert(tensor.data(), out, |bytes: [u8; 2]| {
            f64::from(f32::from_bits(u32::from(u16::from_le_bytes(bytes)) << 16))
        }),
        _ => convert(tensor.data(), out, |bytes| f64::from(f32::from_le_bytes(bytes))),
    }
}

/// A weight as a tensor of the safetensors library.
struct WeightView<'a, S> {
    entry: &'a ParameterEntry,
    values: &'a [S],
}

impl<S: Scalar> View for WeightView<'_, S> {
    fn dtype(&self) -> Dtype {
        if size_of::<S>() == 4 { Dtype::F32 } else { Dtype::F64 }
    }

    fn shape(&self) -> &[usize] {
        &self.entry.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let values = self.values.iter().map(|value| value.to_f64());
        Cow::Owned(if size_of::<S>() == 4 {
            values.flat_map(|value| (value as f32).to_le_bytes()).collect()
        } else {
            values.flat_map(f64::to_le_bytes).collect()
        })
    }

    fn data_len(&self) -> usize {
        size_of_val(self.values)
    }
}
