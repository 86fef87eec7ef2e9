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
    /// A file cannot be read or written.
    #[error("{}: {source}", .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file is not valid JSON or TOML, or has other fields than expected.
    #[error("{}: {reason}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The message of the parser.
        reason: String,
    },
    /// A field has an invalid value, or one that contradicts the others.
    #[error("{}: `{field}` is {found}; expected {expected}", .path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The name of the field.
        field: String,
        /// Its value.
        found: String,
        /// The valid values.
        expected: String,
    },
    /// The task in the file is invalid.
    #[error("{}: {source}", .path.display())]
    Task {
        /// The file.
        path: PathBuf,
        /// What is wrong with the task.
        source: TaskError,
    },
    /// The stack in the file is invalid.
    #[error("{}: {source}", .path.display())]
    Stack {
        /// The file.
        path: PathBuf,
        /// What is wrong with the stack.
        source: StackError,
    },
    /// The model that the file describes cannot be built.
    #[error("{}: {source}", .path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// Why the model cannot be built.
        source: ModelError,
    },
    /// The weights cannot be read or written.
    #[error(transparent)]
    Weights(#[from] CheckpointError),
    /// An external checkpoint that cannot be read.
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
    /// The path is not a network.
    #[error(
        "{}: found neither {} nor {}, expected a folder of `rung construct --out` or of `rung train`, a Hugging Face folder \
         with config.json, or a GGUF file",
        .0.display(), files::CONSTRUCTION, files::RUN_CONFIG
    )]
    NotANetwork(PathBuf),
    /// A network that is neither a construction nor of a run cannot be saved.
    #[error("{}: not written: `{name}` is neither a construction nor the network of a run", .path.display())]
    NotSavable {
        /// The folder that it should have been written to.
        path: PathBuf,
        /// The network's name.
        name: String,
    },
}
