//! Which run a file belongs to.
//!
//! Checkpoints and weights carry the config that they were made with, every default spelled out. Whoever reads one compares it with the
//! config of the present run: a checkpoint that goes on under an edited config would be recorded under a name whose own run gives
//! other numbers.

use std::path::Path;

use super::config::{Run, RunConfig};
use super::error::RunError;
use super::record;
use crate::difference::first_difference;
use rung_nn::network::files::RUN_KEY;

/// What to do about a file that belongs to another run.
#[derive(Clone, Copy, Debug)]
pub enum Remedy {
    /// For checkpoints.
    RestoreOrDelete,
    /// For the weights of a run that is over.
    RestoreOrTrain,
}

impl Remedy {
    fn advice(self) -> &'static str {
        match self {
            Self::RestoreOrDelete => {
                "set it back to go on, or delete the checkpoint to start the run again from its first step"
            }
            Self::RestoreOrTrain => "set it back, or train again in another directory",
        }
    }
}

/// Refuses a file whose config is not that of a run.
///
/// # Errors
/// The configs differ; the first key that does is named.
pub fn check(path: &Path, config: &str, run: &Run, remedy: Remedy) -> Result<(), RunError> {
    let owner = RunConfig::read(config).and_then(|config| config.resolve());
    let owner = owner.map_err(|error| RunError::file(path, format!("its note `{RUN_KEY}` is no config: {error}")))?;
    if owner.config == run.config {
        return Ok(());
    }
    let [stored, present] = [&owner, run].map(|run| serde_json::to_value(&run.config).unwrap_or_default());
    let difference = first_difference(&stored, &present).map_or_else(String::new, |difference| {
        format!("`{}` was {} and is {} in run.toml; ", difference.path, difference.found, difference.expected)
    });
    let (owner, id, advice) = (record::id(&owner), record::id(run), remedy.advice());
    Err(RunError::file(path, format!("belongs to run {owner}, not to run {id}: {difference}{advice}")))
}
