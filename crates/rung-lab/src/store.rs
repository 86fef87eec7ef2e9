//! Stores the results of searches, constructions, falsifications and analyses on disk, one JSON file per record.
//!
//! ```text
//! compute --> OUT/evidence/PRESET/CHAPTER/NAME.json --> render --> report.html
//! ```
//!
//! Chapters are written from these files and from the records of training runs, never from a result in memory. So a report can be
//! reproduced from its records byte for byte, and a missing record is visible in the report: a chapter gets either the data or an error that
//! it shows.

use std::fs;
use std::path::{Path, PathBuf};

use rung_figure::report::Chapter;
use rung_nn::file::{WriteError, write_atomically};
use rung_train::parallel;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::artefact::Preset;

/// Version of the record format. Raised whenever the meaning of older records changes.
pub const SCHEMA: u32 = 1;

/// Version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why a record cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The record does not exist.
    #[error("not run")]
    NotRun,
    /// The record has a format version that this program does not read.
    #[error("recorded by version {version} with schema {schema}, where this version reads schema {SCHEMA}")]
    OtherSchema {
        /// Version of the program that wrote the record.
        version: String,
        /// Format version of the record.
        schema: u64,
    },
    /// The file is malformed.
    #[error("the record cannot be read: {0}")]
    Unreadable(String),
}

/// A record with the version of the program that wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct VersionedRecord<T> {
    /// Version of the program.
    pub version: String,
    /// Contents of the record.
    pub data: T,
}

/// The JSON of a record file.
#[derive(Serialize, Deserialize)]
struct RecordFile<T> {
    schema: u32,
    version: String,
    key: String,
    data: T,
}

/// The records of one preset below an output directory.
pub struct RecordStore {
    directory: PathBuf,
    preset: Preset,
}

impl RecordStore {
    /// The store of a preset below an output directory.
    pub fn new(output_directory: &Path, preset: Preset) -> Self {
        Self { directory: output_directory.join("evidence").join(preset.name()), preset }
    }

    /// The preset of the records.
    pub fn preset(&self) -> Preset {
        self.preset
    }

    fn path(&self, key: &str) -> PathBuf {
        self.directory.join(format!("{key}.json"))
    }

    /// Writes a record. Keys are `CHAPTER/NAME`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, key: &str, data: &impl Serialize) -> Result<(), WriteError> {
        let path = self.path(key);
        let write_error = |source| WriteError { path: path.clone(), source };
        let record_file = RecordFile { schema: SCHEMA, version: VERSION.to_owned(), key: key.to_owned(), data };
        let text = serde_json::to_string(&record_file).map_err(|error| write_error(error.into()))?;
        fs::create_dir_all(path.parent().unwrap_or(&self.directory)).map_err(write_error)?;
        write_atomically(&path, format!("{text}\n").as_bytes())
    }

    /// Computes and writes a record for each job, on all cores. `on_record` is called after each.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_all<Job: Sync, T: Serialize + Send>(
        &self,
        jobs: &[Job],
        key: impl Fn(&Job) -> String + Sync,
        compute: impl Fn(&Job) -> T + Sync,
        on_record: &(dyn Fn() + Sync),
    ) -> Result<(), WriteError> {
        let results = parallel::map(jobs, |job| {
            let result = self.write(&key(job), &compute(job));
            on_record();
            result
        });
        results.into_iter().collect()
    }

    /// Reads a record.
    ///
    /// # Errors
    /// The record does not exist, or cannot be read.
    pub fn read<T: DeserializeOwned>(&self, key: &str) -> Result<VersionedRecord<T>, RecordError> {
        let text = match fs::read_to_string(self.path(key)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(RecordError::NotRun),
            text => text.map_err(|error| RecordError::Unreadable(error.to_string()))?,
        };
        let value: Value = serde_json::from_str(&text).map_err(|error| RecordError::Unreadable(error.to_string()))?;
        let schema = value["schema"].as_u64().unwrap_or(0);
        if schema != u64::from(SCHEMA) {
            let version = value["version"].as_str().unwrap_or("unknown").to_owned();
            return Err(RecordError::OtherSchema { version, schema });
        }
        let record_file: RecordFile<T> =
            serde_json::from_value(value).map_err(|error| RecordError::Unreadable(error.to_string()))?;
        Ok(VersionedRecord { version: record_file.version, data: record_file.data })
    }

    /// Reads a record for a chapter. If it is missing, unreadable or written by another version, a note in the chapter says so.
    pub fn read_or_note<T: DeserializeOwned>(&self, key: &str, chapter: &mut Chapter) -> Option<T> {
        match self.read(key) {
            Ok(VersionedRecord { version, data }) => {
                if version != VERSION {
                    chapter.note(format!("{key}: recorded by version {version}."));
                }
                Some(data)
            }
            Err(reason) => {
                let chapter_name = key.split('/').next().unwrap_or_default();
                let command = format!("rung reproduce --preset {} --only {chapter_name}", self.preset.name());
                chapter.note(format!("{key}: {reason}. `{command}` computes it."));
                None
            }
        }
    }

    /// Like [`Self::read_or_note`], for computations that may fail: a note in the chapter shows the error.
    pub fn read_outcome<T: DeserializeOwned>(&self, key: &str, chapter: &mut Chapter) -> Option<T> {
        match self.read_or_note::<Result<T, String>>(key, chapter)? {
            Ok(data) => Some(data),
            Err(reason) => {
                chapter.note(format!("{key}: {reason}"));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(name: &str) -> (RecordStore, PathBuf) {
        let output_directory = std::env::temp_dir().join(format!("rung-store-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&output_directory);
        (RecordStore::new(&output_directory, Preset::Smoke), output_directory)
    }

    #[test]
    fn numbers_are_read_back_bit_for_bit() {
        let (store, output_directory) = store("bits");
        let numbers = vec![0.1, 1.0 / 3.0, f64::MIN_POSITIVE, 98.247_927_513_443_59, -0.0];
        store.write("proved/numbers", &numbers).unwrap();
        let read_back = store.read::<Vec<f64>>("proved/numbers").unwrap().data;
        let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&read_back), bits(&numbers));
        fs::remove_dir_all(output_directory).unwrap();
    }

    #[test]
    fn missing_and_malformed_records_become_notes() {
        let (store, output_directory) = store("missing");
        let read_with_notes = |key: &str| {
            let mut chapter = Chapter::new("proved", "Proved");
            let data = store.read_outcome::<u32>(key, &mut chapter);
            (data, format!("{:?}", chapter.blocks))
        };
        let (data, notes) = read_with_notes("proved/x");
        assert!(data.is_none() && notes.contains("proved/x: not run"), "{notes}");
        let write_record = |schema: u32, version: &str, data: &str| {
            fs::create_dir_all(store.path("proved/x").parent().unwrap()).unwrap();
            let text = format!(r#"{{"schema":{schema},"version":"{version}","key":"proved/x","data":{data}}}"#);
            fs::write(store.path("proved/x"), text).unwrap();
        };
        write_record(SCHEMA, VERSION, r#"{"Ok":3}"#);
        assert_eq!(read_with_notes("proved/x"), (Some(3), "[]".to_owned()));
        write_record(SCHEMA, "0.0.1", r#"{"Ok":3}"#);
        assert!(
            read_with_notes("proved/x").0 == Some(3)
                && read_with_notes("proved/x").1.contains("recorded by version 0.0.1")
        );
        write_record(0, "0.0.1", r#"{"Ok":3}"#);
        assert!(
            read_with_notes("proved/x").0.is_none()
                && read_with_notes("proved/x").1.contains("recorded by version 0.0.1 with schema 0")
        );
        write_record(SCHEMA, VERSION, r#"{"Err":"no"}"#);
        assert!(read_with_notes("proved/x").1.contains("proved/x: no"));
        for broken in ["[]", "{\"Ok\":true}", "nonsense"] {
            write_record(SCHEMA, VERSION, broken);
            assert!(read_with_notes("proved/x").1.contains("cannot be read"), "{broken}");
        }
        fs::remove_dir_all(output_directory).unwrap();
    }
}
