//! Why a run cannot be made, or did not end.

use std::fmt;
use std::path::PathBuf;

use rung_engine::StepError;
use rung_nn::ModelError;
use rung_theory::stack::StackError;
use rung_theory::task::TaskError;

use rung_nn::file::WriteError;
use rung_nn::memory::TooLarge;

/// What can go wrong. Before a run starts: its config. Afterwards: the disk, or numbers that stop being finite.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The text is no TOML, or has keys or types that a config does not have.
    #[error("{place}: {reason}")]
    Text {
        /// The file, or `config`.
        place: String,
        /// What the reader met, with the line.
        reason: String,
    },
    /// A number makes no sense.
    #[error("{field}: found {found}, expected {expected}")]
    Value {
        /// The key.
        field: String,
        /// What it says.
        found: String,
        /// What it could have said.
        expected: String,
    },
    /// The stack cannot be read.
    #[error("stack: {0}")]
    Stack(#[from] StackError),
    /// A task cannot be read.
    #[error("{field}: {source}")]
    Task {
        /// The key that names it.
        field: String,
        /// Why.
        source: Box<TaskError>,
    },
    /// A task's tokens do not fit the model's.
    #[error("{field}: `{task}` does not fit the model: {found}, expected {expected}")]
    Misfit {
        /// The key that names it.
        field: String,
        /// The task.
        task: String,
        /// What it has.
        found: String,
        /// What the model has.
        expected: String,
    },
    /// The model cannot be built or run.
    #[error("model: {0}")]
    Model(#[from] ModelError),
    /// Too large for the machine, or for what was allowed.
    #[error("{0}; a smaller batch, task or width takes less")]
    Memory(#[from] TooLarge),
    /// Training went wrong.
    #[error("step {step}: {source}; a smaller train.rate or train.clip may help")]
    Step {
        /// The step.
        step: usize,
        /// Where.
        source: StepError,
    },
    /// A file or directory cannot be read or written.
    #[error("{}: {reason}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file of this run alone cannot be used; other runs do not mind.
    #[error("{}: {reason}", .path.display())]
    Unusable {
        /// Which.
        path: PathBuf,
        /// Why, and what to do about it.
        reason: String,
    },
    /// Another process is at it.
    #[error("{}: another process is working on this run", .path.display())]
    Busy {
        /// The run's directory.
        path: PathBuf,
    },
}

impl RunError {
    /// A value that makes no sense.
    pub fn value(field: &str, found: impl fmt::Display, expected: impl Into<String>) -> Self {
        Self::Value { field: field.to_owned(), found: format!("{found}"), expected: expected.into() }
    }

    /// A task that cannot be read.
    pub fn task(field: &str, error: TaskError) -> Self {
        Self::Task { field: field.to_owned(), source: Box::new(error) }
    }

    /// A file that cannot be read or written.
    pub fn file(path: impl Into<PathBuf>, reason: impl fmt::Display) -> Self {
        Self::File { path: path.into(), reason: format!("{reason}") }
    }

    /// The same as a fault of this run alone, not of the disk.
    #[must_use]
    pub(crate) fn of_this_run(self) -> Self {
        match self {
            Self::File { path, reason } => Self::Unusable { path, reason },
            other => other,
        }
    }

    /// What [`write_atomically`](rung_nn::file::write_atomically) met.
    pub(crate) fn write(error: WriteError) -> Self {
        Self::file(error.path, format!("cannot write: {}", error.source))
    }
}
