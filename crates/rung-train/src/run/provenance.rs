//! Checks that a checkpoint belongs to a run.
//!
//! Checkpoints contain the config of their run with every default, which is compared with the config of the current run.
//! Without this check a checkpoint that is resumed under an edited config would be recorded under the id of a run that, trained from
//! its start, gives different results.

use std::path::Path;

use super::config::{Run, RunConfig};
use super::error::RunError;
use super::record;
use crate::difference::first_difference;
use rung_nn::network::files::RUN_KEY;

/// What to do about a checkpoint of another run.
const ADVICE: &str = "set it back to go on, or delete the checkpoint to start the run again from its first step";

/// Rejects a checkpoint whose `config` is not that of `run`.
///
/// # Errors
/// The configs differ; the message gives the first key that does.
pub fn check_owner(path: &Path, config: &str, run: &Run) -> Result<(), RunError> {
    let stored_run = RunConfig::read(config).and_then(|config| config.resolve());
    let stored_run = stored_run
        .map_err(|error| RunError::file(path, format!("its metadata `{RUN_KEY}` is not a config: {error}")))?;
    if stored_run.config == run.config {
        return Ok(());
    }
    let [stored_config, current_config] =
        [&stored_run, run].map(|run| serde_json::to_value(&run.config).unwrap_or_default());
    let difference = first_difference(&stored_config, &current_config).map_or_else(String::new, |difference| {
        format!("`{}` was {} and is {} in run.toml; ", difference.path, difference.found, difference.expected)
    });
    let (stored_id, id) = (record::id(&stored_run), record::id(run));
    Err(RunError::file(path, format!("belongs to run {stored_id}, not to run {id}: {difference}{ADVICE}")))
}
