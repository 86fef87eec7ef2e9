//! Reads the records of a directory of runs.

use std::path::{Path, PathBuf};

use crate::run::directory::RECORD_FILE;
use crate::run::{RunError, RunRecord};

/// The records in a directory and in its subdirectories, each with its run's directory, sorted by path. Runs without a record are
/// unfinished and skipped.
///
/// # Errors
/// The directory or a record cannot be read.
pub fn read_records(directory: &Path) -> Result<Vec<(PathBuf, RunRecord)>, RunError> {
    let entries = std::fs::read_dir(directory).map_err(|error| RunError::file(directory, error))?;
    let mut directories: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    directories.sort();
    // `directory` may itself be the directory of one run.
    directories.insert(0, directory.to_owned());
    let finished = directories.into_iter().filter(|run| run.join(RECORD_FILE).is_file());
    finished.map(|run| Ok((run.clone(), RunRecord::read(&run.join(RECORD_FILE))?))).collect()
}

/// The record whose id is `name`, or the only one whose id starts with `name`.
///
/// # Errors
/// No id starts with `name`, or several do and none is equal to it.
pub fn find_record_by_id<'a>(
    records: &'a [(PathBuf, RunRecord)],
    name: &str,
) -> Result<&'a (PathBuf, RunRecord), RunError> {
    let matches: Vec<_> = records.iter().filter(|(_, record)| record.id.starts_with(name)).collect();
    match matches[..] {
        [record] => Ok(record),
        [] => Err(RunError::invalid_value("run", format!("`{name}`"), "the name of a recorded run, or its beginning")),
        _ => {
            let exact = matches.iter().find(|(_, record)| record.id == name);
            let found = format!("`{name}`, which {} runs begin with", matches.len());
            exact.copied().ok_or_else(|| RunError::invalid_value("run", found, "a longer name"))
        }
    }
}
