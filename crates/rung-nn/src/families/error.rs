//! Why a checkpoint is not a network here.

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
        /// Why.
        source: AuditError,
    },
    /// Its files cannot be read.
    #[error(transparent)]
    Weights(#[from] WeightError),
    /// No file here knows the architecture.
    #[error("{}: architecture `{found}` is not read; expected one of {known}", .path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The architecture.
        found: String,
        /// Those that are read.
        known: String,
    },
    /// The auditor cannot tell what the layers are.
    #[error("{}: the layers are not all known: {why}", .path.display())]
    Layers {
        /// The file.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// A field of the config is missing, or not what it should be.
    #[error("{}: field `{field}`: found {found}, expected {expected}", .path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What was there.
        found: String,
        /// What should have been there.
        expected: String,
    },
    /// A tensor of the network is not in the files.
    #[error("{}: tensor `{name}` is missing; expected shape {expected:?}", .path.display())]
    Missing {
        /// The folder, or the file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its shape.
        expected: Vec<usize>,
    },
    /// A tensor has another shape.
    #[error("{}: tensor `{name}`: found shape {found:?}, expected {expected:?}", .path.display())]
    Shape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// What was there.
        found: Vec<usize>,
        /// What should have been there.
        expected: Vec<usize>,
    },
    /// A tensor is in the files and not in the network.
    #[error("{}: tensor `{name}` of shape {found:?} belongs to no part of a {family} network", .path.display())]
    LeftOver {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The family.
        family: &'static str,
    },
    /// The network refused.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The weights of replaced layers cannot be read or written.
    #[error(transparent)]
    Replaced(#[from] CheckpointError),
    /// Its vocabulary cannot be read.
    #[error("{}: tokenizer: found {found}, expected {expected}", .path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// What was there.
        found: String,
        /// What should have been there.
        expected: String,
    },
}
