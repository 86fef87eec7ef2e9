//! The records of a folder, in brief and whole, without reading any of them twice.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::http::{JSON, Response};

/// The file of a finished run.
const RECORD: &str = "record.json";
/// The file of a run that has begun.
const CONFIG: &str = "run.toml";
/// The file of a run that has been evaluated at least once, until it is finished.
const CHECKPOINT: &str = "resume.safetensors";
/// Larger records, configs and headers of checkpoints are not read.
const MOST_BYTES: u64 = 16 << 20;
/// More folders are not listed.
const MOST_RUNS: usize = 100_000;
/// The folder is looked through at most this often, however many pages ask.
const REST: Duration = Duration::from_millis(900);

/// A folder of runs.
#[derive(Debug)]
pub(super) struct Runs {
    folder: PathBuf,
    known: Mutex<RunIndex>,
}

#[derive(Debug, Default)]
struct RunIndex {
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
            self.refresh(&mut known);
            known.looked = Some(Instant::now());
        }
        let changed: Vec<&Value> =
            known.runs.values().filter(|run| run.version > since).map(|run| &run.brief).collect();
        let body = json!({"version": known.version, "runs": changed, "total": known.runs.len()});
        Response { status: 200, kind: JSON, body: body.to_string().into_bytes() }
    }

    /// One record, byte for byte; of a run that is not finished, what its checkpoint says so far. Only names that were listed are
    /// looked up, so a name is never a path.
    pub(super) fn record(&self, name: &str) -> Response {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let state = known.runs.get(name).map(|run| run.brief["state"] == "finished");
        drop(known);
        let folder = self.path(name);
        let body = match state {
            Some(true) => read(&folder.join(RECORD)),
            Some(false) => unfinished(&folder, name).map(|record| record.to_string().into_bytes()),
            None => None,
        };
        match body {
            Some(body) => Response { status: 200, kind: JSON, body },
            None => Response::text(404, "there is no such record".to_owned()),
        }
    }

    /// The directory of a run; the folder itself for an empty name.
    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.folder.clone() } else { self.folder.join(name) }
    }

    fn refresh(&self, known: &mut RunIndex) {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let own = std::iter::once(String::new());
        let names = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let names = names.filter_map(|entry| entry.file_name().into_string().ok()).take(MOST_RUNS);
        for name in own.chain(names) {
            let folder = self.path(&name);
            let finished = plain_file(&folder.join(RECORD));
            let file = finished.clone().or_else(|| plain_file(&folder.join(CHECKPOINT)));
            let modified = file.as_ref().and_then(|file| file.modified().ok());
            if known.runs.get(&name).is_some_and(|run| run.modified == modified) {
                continue;
            }
            let brief = if finished.is_some() {
                let record = read(&folder.join(RECORD)).and_then(|bytes| serde_json::from_slice(&bytes).ok());
                record.map(|record| brief(&name, "finished", &record))
            } else {
                unfinished(&folder, &name).map(|record| brief(&name, "running", &record))
            };
            if let Some(brief) = brief {
                known.version += 1;
                let version = known.version;
                known.runs.insert(name, Run { modified, brief, version });
            }
        }
    }
}

/// A file that is no link, as a link could lead out of the folder.
fn plain_file(path: &Path) -> Option<Metadata> {
    std::fs::symlink_metadata(path).ok().filter(Metadata::is_file)
}

/// The content of a plain file that is not too large.
fn read(path: &Path) -> Option<Vec<u8>> {
    plain_file(path).filter(|file| file.len() <= MOST_BYTES)?;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// As much of a record as a run that is not finished has: its config and, once there is a checkpoint, its evaluations so far.
fn unfinished(folder: &Path, name: &str) -> Option<Value> {
    let config = String::from_utf8(read(&folder.join(CONFIG))?).ok()?;
    // A config of another version is no reason to hide the run.
    let config = toml::from_str(&config).unwrap_or(Value::Null);
    let progress = progress(&folder.join(CHECKPOINT)).unwrap_or(Value::Null);
    let evaluations = progress.get("evaluations").or_else(|| progress.get("looks"));
    let last = evaluations.and_then(Value::as_array).and_then(|all| all.last()).unwrap_or(&Value::Null);
    Some(json!({
        "id": name,
        "config": config,
        "steps": progress["step"],
        "loss": last["loss"],
        "accuracy": last["accuracy"],
        "evaluations": evaluations,
    }))
}

/// How far a checkpoint is: a note in its header, so that no weight is read.
fn progress(path: &Path) -> Option<Value> {
    plain_file(path)?;
    let mut file = File::open(path).ok()?;
    let mut length = [0; 8];
    file.read_exact(&mut length).ok()?;
    let length = u64::from_le_bytes(length);
    let mut header = Vec::new();
    file.take(length.min(MOST_BYTES)).read_to_end(&mut header).ok()?;
    let header: Value = serde_json::from_slice(&header).ok()?;
    let note: Value = serde_json::from_str(header["__metadata__"]["rung.progress"].as_str()?).ok()?;
    Some(note["progress"].clone())
}

/// What the table shows of a record.
fn brief(name: &str, state: &str, record: &Value) -> Value {
    let config = &record["config"];
    let share = |tally: &Value| {
        let (right, count) = (tally["right"].as_f64()?, tally["count"].as_f64()?);
        (count > 0.0).then(|| (1e4 * right / count).round() / 1e4)
    };
    let accuracy: BTreeMap<&String, Option<f64>> =
        record["accuracy"].as_object().into_iter().flatten().map(|(group, tally)| (group, share(tally))).collect();
    json!({
        "name": name,
        "state": state,
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
