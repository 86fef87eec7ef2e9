//! Errors of runs and sweeps.

use std::fmt;
use std::path::PathBuf;

use rung_engine::StepError;
use rung_nn::ModelError;
use rung_theory::stack::StackError;
use rung_theory::task::TaskError;

use rung_nn::file::WriteError;
use rung_nn::memory::TooLarge;

/// Why a run cannot start (its config, a task, memory) or did not finish (the disk, numbers that are not finite).
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A config is not TOML, or has keys or types that a config does not have.
    #[error("{origin}: {reason}")]
    InvalidToml {
        /// Where the TOML comes from, such as `config`, `sweep` or a setting of the command line.
        origin: String,
        /// The message of the TOML parser, with the line.
        reason: String,
    },
    /// A run of a sweep is invalid.
    #[error("{run}: {reason}")]
    InSweep {
        /// The run, such as `runs[3]` or `run 4 of the sweep`.
        run: String,
        /// The message of the run's own error.
        reason: String,
    },
    /// A command of Slurm failed.
    #[error("{program}: {reason}")]
    Command {
        /// The command, such as `sbatch`.
        program: String,
        /// Its standard error, or why it could not be started.
        reason: String,
    },
    /// A value is outside its allowed range.
    #[error("{field}: found {found}, expected {expected}")]
    InvalidValue {
        /// The config key or the option.
        field: String,
        /// The value.
        found: String,
        /// The allowed values.
        expected: String,
    },
    /// The stack cannot be parsed.
    #[error("stack: {0}")]
    Stack(#[from] StackError),
    /// A task cannot be parsed.
    #[error("{field}: {source}")]
    Task {
        /// The config key or the option that gives the task.
        field: String,
        /// The parse error.
        source: Box<TaskError>,
    },
    /// A task's vocabulary does not fit the model's.
    #[error("{config_key}: `{task}` does not fit the model: {found}, expected {expected}")]
    TaskMismatch {
        /// The config key or the option that gives the task.
        config_key: String,
        /// The task.
        task: String,
        /// Fields, ids or classes of the task.
        found: String,
        /// Those that the model allows.
        expected: String,
    },
    /// The model cannot be built or run.
    #[error("model: {0}")]
    Model(#[from] ModelError),
    /// The run needs more memory than the machine has or the user allowed.
    #[error("{0}; a smaller batch, task or width takes less")]
    Memory(#[from] TooLarge),
    /// A training step gave numbers that are not finite.
    #[error("step {step}: {source}; a smaller train.rate or train.clip may help")]
    Step {
        /// The step, from 0.
        step: usize,
        /// The error of the engine.
        source: StepError,
    },
    /// A file or directory cannot be read or written. A sweep stops at it, since its other runs would fail too.
    #[error("{}: {reason}", .path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The system's error, or what is wrong with the content.
        reason: String,
    },
    /// A file in the run's directory is invalid. Other runs of a sweep are not affected.
    #[error("{}: {reason}", .path.display())]
    RunFileInvalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// Another process holds the lock of the run's directory.
    #[error("{}: another process is working on this run", .path.display())]
    Busy {
        /// The run's directory.
        path: PathBuf,
    },
}

impl RunError {
    /// A value outside its allowed range.
    pub fn invalid_value(field: &str, found: impl fmt::Display, expected: impl Into<String>) -> Self {
        Self::InvalidValue { field: field.to_owned(), found: format!("{found}"), expected: expected.into() }
    }

    /// A task that cannot be parsed.
    pub fn invalid_task(field: &str, error: TaskError) -> Self {
        Self::Task { field: field.to_owned(), source: Box::new(error) }
    }

    /// A file that cannot be read or written.
    pub fn file(path: impl Into<PathBuf>, reason: impl fmt::Display) -> Self {
        Self::File { path: path.into(), reason: format!("{reason}") }
    }

    /// Turns [`RunError::File`] into [`RunError::RunFileInvalid`], which does not stop the other runs of a sweep.
    #[must_use]
    pub(crate) fn into_run_file_invalid(self) -> Self {
        match self {
            Self::File { path, reason } => Self::RunFileInvalid { path, reason },
            other => other,
        }
    }

    /// An error of [`write_atomically`](rung_nn::file::write_atomically).
    pub(crate) fn write(error: WriteError) -> Self {
        Self::file(error.path, format!("cannot write: {}", error.source))
    }
}
