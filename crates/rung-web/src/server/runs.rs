//! The records of a folder, in brief and whole, without reading any of them twice.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::http::{JSON, Response};

/// The file of a finished run.
const RECORD: &str = "record.json";
/// The file of a run that has begun.
const CONFIG: &str = "run.toml";
/// Larger records are not read.
const MOST_BYTES: u64 = 16 << 20;
/// More folders are not listed.
const MOST_RUNS: usize = 100_000;
/// The folder is looked through at most this often, however many pages ask.
const REST: Duration = Duration::from_millis(900);

/// A folder of runs.
#[derive(Debug)]
pub(super) struct Runs {
    folder: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    runs: BTreeMap<String, Run>,
    /// Raised with every change.
    version: u64,
    looked: Option<Instant>,
}

#[derive(Debug)]
struct Run {
    modified: Option<SystemTime>,
    brief: Value,
    /// The version at which it last changed.
    version: u64,
}

impl Runs {
    /// A folder that exists.
    pub(super) fn open(folder: PathBuf) -> std::io::Result<Self> {
        std::fs::read_dir(&folder)?;
        Ok(Self { folder, known: Mutex::default() })
    }

    /// What changed since a version, in brief.
    pub(super) fn list(&self, since: Option<&str>) -> Response {
        let since: u64 = since.and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.looked.is_none_or(|looked| looked.elapsed() > REST) {
            self.look(&mut known);
            known.looked = Some(Instant::now());
        }
        let changed: Vec<&Value> =
            known.runs.values().filter(|run| run.version > since).map(|run| &run.brief).collect();
        let body = json!({"version": known.version, "runs": changed, "total": known.runs.len()});
        Response { status: 200, kind: JSON, body: body.to_string().into_bytes() }
    }

    /// One record, byte for byte. Only names that were listed are looked up, so a name is never a path.
    pub(super) fn record(&self, name: &str) -> Response {
        let listed = self.known.lock().unwrap_or_else(PoisonError::into_inner).runs.contains_key(name);
        let path = self.path(name).join(RECORD);
        match listed.then(|| std::fs::read(path)) {
            Some(Ok(body)) => Response { status: 200, kind: JSON, body },
            _ => Response::text(404, "there is no such record".to_owned()),
        }
    }

    /// The directory of a run; the folder itself for an empty name.
    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.folder.clone() } else { self.folder.join(name) }
    }

    fn look(&self, known: &mut Known) {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let own = std::iter::once(String::new());
        let names = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let names = names.filter_map(|entry| entry.file_name().into_string().ok()).take(MOST_RUNS);
        for name in own.chain(names) {
            let folder = self.path(&name);
            // A link could lead out of the folder, so only plain files are read.
            let file = std::fs::symlink_metadata(folder.join(RECORD)).ok().filter(std::fs::Metadata::is_file);
            let modified = file.as_ref().and_then(|file| file.modified().ok());
            if known.runs.get(&name).is_some_and(|run| run.modified == modified) {
                continue;
            }
            let brief = match file {
                Some(file) if file.len() <= MOST_BYTES => std::fs::read(folder.join(RECORD)).ok().and_then(|bytes| {
                    let record: Value = serde_json::from_slice(&bytes).ok()?;
                    Some(brief(&name, &record))
                }),
                Some(_) => None,
                None => folder.join(CONFIG).is_file().then(|| json!({"name": name, "state": "running"})),
            };
            if let Some(brief) = brief {
                known.version += 1;
                let version = known.version;
                known.runs.insert(name, Run { modified, brief, version });
            }
        }
    }
}

/// What the table shows of a record.
fn brief(name: &str, record: &Value) -> Value {
    let config = &record["config"];
    let share = |tally: &Value| {
        let (right, count) = (tally["right"].as_f64()?, tally["count"].as_f64()?);
        (count > 0.0).then(|| (1e4 * right / count).round() / 1e4)
    };
    let accuracy: BTreeMap<&String, Option<f64>> =
        record["accuracy"].as_object().into_iter().flatten().map(|(group, tally)| (group, share(tally))).collect();
    json!({
        "name": name,
        "state": "finished",
        "id": record["id"],
        "stack": config["stack"],
        "task": config["task"],
        "seed": config["seed"],
        "rungs": record["facts"]["rungs"],
        "hops": record["facts"]["hops"],
        "steps": record["steps"],
        "loss": record["loss"],
        "over": record.get("over").or_else(|| record.get("stop_reason")),
        "accuracy": accuracy,
    })
}
