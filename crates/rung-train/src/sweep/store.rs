//! Records on disk: a directory with a directory for each run.

use std::path::{Path, PathBuf};

use crate::run::directory::RECORD;
use crate::run::{RunError, RunRecord};

/// Every record below a directory, in the order of their names. Directories without a record are runs that are not over.
///
/// # Errors
/// The directory or a record cannot be read.
pub fn records(directory: &Path) -> Result<Vec<(PathBuf, RunRecord)>, RunError> {
    let entries = std::fs::read_dir(directory).map_err(|error| RunError::file(directory, error))?;
    let mut places: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    places.sort();
    // A run's own directory is as good as one with many.
    places.insert(0, directory.to_owned());
    let found = places.into_iter().filter(|place| place.join(RECORD).is_file());
    found.map(|place| Ok((place.clone(), RunRecord::read(&place.join(RECORD))?))).collect()
}

/// The record whose name is or begins with `name`.
///
/// # Errors
/// There is none, or more than one.
pub fn find<'a>(records: &'a [(PathBuf, RunRecord)], name: &str) -> Result<&'a (PathBuf, RunRecord), RunError> {
    let fitting: Vec<_> = records.iter().filter(|(_, record)| record.id.starts_with(name)).collect();
    match fitting[..] {
        [one] => Ok(one),
        [] => Err(RunError::value("run", format!("`{name}`"), "the name of a recorded run, or its beginning")),
        _ => {
            let exact = fitting.iter().find(|(_, record)| record.id == name);
            let found = format!("`{name}`, which {} runs begin with", fitting.len());
            exact.copied().ok_or_else(|| RunError::value("run", found, "a longer name"))
        }
    }
}
