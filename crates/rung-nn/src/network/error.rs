//! Why a network could not be opened or saved.

use std::path::PathBuf;

use rung_theory::stack::StackError;
use rung_theory::task::TaskError;

use super::files;
use crate::checkpoint::CheckpointError;
use crate::error::ModelError;
use crate::families::FamilyError;

/// Why a network could not be opened or saved.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The system refused.
    #[error("{}: {source}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is no JSON or TOML of its kind.
    #[error("{}: {reason}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the reader met.
        reason: String,
    },
    /// A field that cannot be, or does not fit the others.
    #[error("{}: `{field}` is {found}; expected {expected}", .path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What it says.
        found: String,
        /// What it could say.
        expected: String,
    },
    /// Its task cannot be read.
    #[error("{}: {source}", .path.display())]
    Task {
        /// The file.
        path: PathBuf,
        /// Why.
        source: TaskError,
    },
    /// Its stack cannot be read.
    #[error("{}: {source}", .path.display())]
    Stack {
        /// The file.
        path: PathBuf,
        /// Why.
        source: StackError,
    },
    /// Its model cannot be built.
    #[error("{}: {source}", .path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// Why.
        source: ModelError,
    },
    /// Its weights cannot be read or written.
    #[error(transparent)]
    Weights(#[from] CheckpointError),
    /// A checkpoint of another program that cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] Box<FamilyError>),
    /// Weights that were trained under another config than the one beside them.
    #[error(
        "{}: belongs to another run: {difference}; set it back, or train again in another directory",
        .path.display()
    )]
    OtherRun {
        /// The file of weights.
        path: PathBuf,
        /// The first key that differs.
        difference: String,
    },
    /// A run that is not finished.
    #[error(
        "{}: found no {}, expected a finished run; resume it with `rung train --resume {}`",
        .0.display(), files::RUN_WEIGHTS, .0.display()
    )]
    Unfinished(PathBuf),
    /// A path that holds no network.
    #[error(
        "{}: found neither {} nor {}, expected a folder of `rung construct --out` or of `rung train`, a Hugging Face folder \
         with config.json, or a GGUF file",
        .0.display(), files::CONSTRUCTION, files::RUN_CONFIG
    )]
    Unknown(PathBuf),
    /// A network that is neither constructed nor of a run.
    #[error("{}: not written: `{name}` is neither a construction nor the network of a run", .path.display())]
    Unsaved {
        /// Where it was to be written.
        path: PathBuf,
        /// What it is called.
        name: String,
    },
}
