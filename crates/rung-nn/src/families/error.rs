//! Errors on opening a checkpoint.

use std::path::PathBuf;

use rung_audit::AuditError;

use crate::checkpoint::CheckpointError;
use crate::error::ModelError;
use crate::weight_files::WeightError;

/// Why a checkpoint could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum FamilyError {
    /// Its config cannot be read.
    #[error("{}: {source}", .path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong with the config.
        source: AuditError,
    },
    /// Its files cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightError),
    /// The architecture is not supported.
    #[error("{}: architecture `{found}` is not supported; expected one of {known}", .path.display())]
    UnsupportedArchitecture {
        /// The file.
        path: PathBuf,
        /// The architecture.
        found: String,
        /// The supported architectures.
        known: String,
    },
    /// The mixer of some layer cannot be determined from the config.
    #[error("{}: the mixer of some layer is not known: {reason}", .path.display())]
    UnknownLayers {
        /// The file.
        path: PathBuf,
        /// What is not known.
        reason: String,
    },
    /// A field of the config is missing or has a value that is not supported.
    #[error("{}: field `{field}`: found {found}, expected {expected}", .path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The name of the field.
        field: String,
        /// Its value.
        found: String,
        /// The supported values.
        expected: String,
    },
    /// A tensor of the network is not in the files.
    #[error("{}: tensor `{name}` is missing; expected shape {expected:?}", .path.display())]
    Missing {
        /// The folder, or the file.
        path: PathBuf,
        /// The name of the tensor.
        name: String,
        /// The shape that the config implies.
        expected: Vec<usize>,
    },
    /// A tensor has another shape.
    #[error("{}: tensor `{name}`: found shape {found:?}, expected {expected:?}", .path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// The name of the tensor.
        name: String,
        /// The shape in the file.
        found: Vec<usize>,
        /// The shape that the config implies.
        expected: Vec<usize>,
    },
    /// A tensor of the files is not used by the model.
    #[error("{}: tensor `{name}` of shape {found:?} is not used by a {family} model", .path.display())]
    UnusedTensor {
        /// The file.
        path: PathBuf,
        /// The name of the tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The family.
        family: &'static str,
    },
    /// The model cannot be built.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The weights of replaced layers cannot be read or written.
    #[error(transparent)]
    ConvertedWeights(#[from] CheckpointError),
    /// Its vocabulary cannot be read.
    #[error("{}: tokenizer: found {found}, expected {expected}", .path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// Its value.
        found: String,
        /// The supported values.
        expected: String,
    },
}
