//! Evidence on disk: what was searched for, built, falsified or inspected, one JSON file for each piece.
//!
//! ```text
//! compute --> out/evidence/PRESET/CHAPTER/NAME.json --> render --> report.html
//! ```
//!
//! Chapters are drawn from these files and from the records of training runs, never from a result in memory. So a report can be made
//! again from its records, byte for byte, and what is missing is missing visibly: each reader of a record either gets its data or a
//! sentence that says why there is none.

use std::fs;
use std::path::{Path, PathBuf};

use rung_figure::report::Chapter;
use rung_nn::file::{WriteError, write_atomically};
use rung_train::parallel;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::artefact::Preset;

/// The form of the records. Raised whenever a record of before can no longer be read as what it was.
pub const SCHEMA: u32 = 1;

/// The program that writes records.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why a piece of evidence is not shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingEvidence {
    /// It has no record.
    #[error("not run")]
    NotRun,
    /// It was recorded in a form that this version does not read.
    #[error("recorded by version {version} in form {schema}, where this version reads form {SCHEMA}")]
    OtherSchema {
        /// The program that wrote it.
        version: String,
        /// Its form.
        schema: u64,
    },
    /// The file is damaged.
    #[error("the record cannot be read: {0}")]
    Unreadable(String),
}

/// A record that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct EvidenceRecord<T> {
    /// The version of the program that wrote it.
    pub version: String,
    /// What was found.
    pub data: T,
}

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    schema: u32,
    version: String,
    key: String,
    data: T,
}

/// The records of one preset below an output directory.
pub struct EvidenceStore {
    directory: PathBuf,
    preset: Preset,
}

impl EvidenceStore {
    /// The records below `out`.
    pub fn new(out: &Path, preset: Preset) -> Self {
        Self { directory: out.join("evidence").join(preset.name()), preset }
    }

    /// How much work the evidence took.
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
        let named = |source| WriteError { path: path.clone(), source };
        let envelope = Envelope { schema: SCHEMA, version: VERSION.to_owned(), key: key.to_owned(), data };
        let text = serde_json::to_string(&envelope).map_err(|error| named(error.into()))?;
        fs::create_dir_all(path.parent().unwrap_or(&self.directory)).map_err(named)?;
        write_atomically(&path, format!("{text}\n").as_bytes())
    }

    /// Computes a record for each job, on all cores. `tick` is called after each.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_all<Job: Sync, T: Serialize + Send>(
        &self,
        jobs: &[Job],
        key: impl Fn(&Job) -> String + Sync,
        compute: impl Fn(&Job) -> T + Sync,
        tick: &(dyn Fn() + Sync),
    ) -> Result<(), WriteError> {
        let written = parallel::map(jobs, |job| {
            let written = self.write(&key(job), &compute(job));
            tick();
            written
        });
        written.into_iter().collect()
    }

    /// Reads a record.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn read<T: DeserializeOwned>(&self, key: &str) -> Result<EvidenceRecord<T>, MissingEvidence> {
        let text = match fs::read_to_string(self.path(key)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(MissingEvidence::NotRun),
            text => text.map_err(|error| MissingEvidence::Unreadable(error.to_string()))?,
        };
        let value: Value =
            serde_json::from_str(&text).map_err(|error| MissingEvidence::Unreadable(error.to_string()))?;
        let schema = value["schema"].as_u64().unwrap_or(0);
        if schema != u64::from(SCHEMA) {
            let version = value["version"].as_str().unwrap_or("unknown").to_owned();
            return Err(MissingEvidence::OtherSchema { version, schema });
        }
        let envelope: Envelope<T> =
            serde_json::from_value(value).map_err(|error| MissingEvidence::Unreadable(error.to_string()))?;
        Ok(EvidenceRecord { version: envelope.version, data: envelope.data })
    }

    /// Reads a record for a chapter. What is missing, unreadable or was recorded by another version is said in the chapter.
    pub fn read_or_note<T: DeserializeOwned>(&self, key: &str, chapter: &mut Chapter) -> Option<T> {
        match self.read(key) {
            Ok(EvidenceRecord { version, data }) => {
                if version != VERSION {
                    chapter.note(format!("{key}: recorded by version {version}."));
                }
                Some(data)
            }
            Err(reason) => {
                let part = key.split('/').next().unwrap_or_default();
                let command = format!("rung reproduce --preset {} --only {part}", self.preset.name());
                chapter.note(format!("{key}: {reason}. `{command}` computes it."));
                None
            }
        }
    }

    /// As [`Self::read_or_note`], for evidence whose computation may fail: the error is said in the chapter too.
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

    fn store(name: &str) -> (EvidenceStore, PathBuf) {
        let out = std::env::temp_dir().join(format!("rung-store-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&out);
        (EvidenceStore::new(&out, Preset::Smoke), out)
    }

    #[test]
    fn numbers_come_back_to_the_bit() {
        let (store, out) = store("bits");
        let numbers = vec![0.1, 1.0 / 3.0, f64::MIN_POSITIVE, 98.247_927_513_443_59, -0.0];
        store.write("proved/numbers", &numbers).unwrap();
        let back = store.read::<Vec<f64>>("proved/numbers").unwrap().data;
        let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&back), bits(&numbers));
        fs::remove_dir_all(out).unwrap();
    }

    #[test]
    fn what_is_missing_is_said() {
        let (store, out) = store("missing");
        let said = |key: &str| {
            let mut chapter = Chapter::new("proved", "Proved");
            let found = store.read_outcome::<u32>(key, &mut chapter);
            (found, format!("{:?}", chapter.blocks))
        };
        let (found, notes) = said("proved/x");
        assert!(found.is_none() && notes.contains("proved/x: not run"), "{notes}");
        let envelope = |schema: u32, version: &str, data: &str| {
            fs::create_dir_all(store.path("proved/x").parent().unwrap()).unwrap();
            let text = format!(r#"{{"schema":{schema},"version":"{version}","key":"proved/x","data":{data}}}"#);
            fs::write(store.path("proved/x"), text).unwrap();
        };
        envelope(SCHEMA, VERSION, r#"{"Ok":3}"#);
        assert_eq!(said("proved/x"), (Some(3), "[]".to_owned()));
        envelope(SCHEMA, "0.0.1", r#"{"Ok":3}"#);
        assert!(said("proved/x").0 == Some(3) && said("proved/x").1.contains("recorded by version 0.0.1"));
        envelope(0, "0.0.1", r#"{"Ok":3}"#);
        assert!(said("proved/x").0.is_none() && said("proved/x").1.contains("recorded by version 0.0.1 in form 0"));
        envelope(SCHEMA, VERSION, r#"{"Err":"no"}"#);
        assert!(said("proved/x").1.contains("proved/x: no"));
        for broken in ["[]", "{\"Ok\":true}", "nonsense"] {
            envelope(SCHEMA, VERSION, broken);
            assert!(said("proved/x").1.contains("cannot be read"), "{broken}");
        }
        fs::remove_dir_all(out).unwrap();
    }
}
