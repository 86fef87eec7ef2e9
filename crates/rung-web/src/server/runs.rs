//! The training runs of a folder: a list with their main numbers, and single records. Files are re-read only when they change.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rung_nn::files::{PROGRESS_KEY, RUN_CHECKPOINT, RUN_CONFIG, RUN_RECORD};
use serde_json::{Value, json};

use super::http::{HttpResponse, JSON};

/// Larger records, configs and headers of checkpoints are not read.
const MAX_BYTES: u64 = 16 << 20;
/// Maximum number of subfolders that are listed.
const MAX_RUNS: usize = 100_000;
/// Shortest time between two scans of the folder, however many pages poll.
const MIN_SCAN_INTERVAL: Duration = Duration::from_millis(900);

/// A folder of runs.
#[derive(Debug)]
pub(super) struct Runs {
    folder: PathBuf,
    index: Mutex<RunIndex>,
}

/// The runs found by the last scan.
#[derive(Debug, Default)]
struct RunIndex {
    runs: BTreeMap<String, Run>,
    /// Incremented with every change.
    version: u64,
    last_scan: Option<Instant>,
}

/// A listed run.
#[derive(Debug)]
struct Run {
    /// When its record or checkpoint last changed.
    modified: Option<SystemTime>,
    /// The numbers that the list shows.
    summary: Value,
    /// The version at which it last changed.
    version: u64,
}

impl Runs {
    /// Opens a folder; fails if it cannot be read.
    pub(super) fn open(folder: PathBuf) -> std::io::Result<Self> {
        std::fs::read_dir(&folder)?;
        Ok(Self { folder, index: Mutex::default() })
    }

    /// The runs that changed since a version.
    pub(super) fn list(&self, since: Option<&str>) -> HttpResponse {
        let since: u64 = since.and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        if index.last_scan.is_none_or(|last_scan| last_scan.elapsed() > MIN_SCAN_INTERVAL) {
            self.refresh(&mut index);
            index.last_scan = Some(Instant::now());
        }
        let changed: Vec<&Value> =
            index.runs.values().filter(|run| run.version > since).map(|run| &run.summary).collect();
        let body = json!({"version": index.version, "runs": changed, "total": index.runs.len()});
        HttpResponse { status: 200, media_type: JSON, body: body.to_string().into_bytes() }
    }

    /// One record, byte for byte; for an unfinished run, the numbers of its checkpoint so far. Only names from the list are
    /// accepted, so a name is never used as a path.
    pub(super) fn record(&self, name: &str) -> HttpResponse {
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        let is_finished = index.runs.get(name).map(|run| run.summary["state"] == "finished");
        drop(index);
        let folder = self.path(name);
        let body = match is_finished {
            Some(true) => read_file(&folder.join(RUN_RECORD)),
            Some(false) => unfinished_record(&folder, name).map(|record| record.to_string().into_bytes()),
            None => None,
        };
        match body {
            Some(body) => HttpResponse { status: 200, media_type: JSON, body },
            None => HttpResponse::text(404, "there is no such record".to_owned()),
        }
    }

    /// The directory of a run; the folder itself for an empty name.
    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.folder.clone() } else { self.folder.join(name) }
    }

    fn refresh(&self, index: &mut RunIndex) {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let folder_itself = std::iter::once(String::new());
        let names = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let names = names.filter_map(|entry| entry.file_name().into_string().ok()).take(MAX_RUNS);
        for name in folder_itself.chain(names) {
            let folder = self.path(&name);
            let record_file = regular_file(&folder.join(RUN_RECORD));
            let file = record_file.clone().or_else(|| regular_file(&folder.join(RUN_CHECKPOINT)));
            let modified = file.as_ref().and_then(|file| file.modified().ok());
            if index.runs.get(&name).is_some_and(|run| run.modified == modified) {
                continue;
            }
            let summary = if record_file.is_some() {
                let record = read_file(&folder.join(RUN_RECORD)).and_then(|bytes| serde_json::from_slice(&bytes).ok());
                record.map(|record| summarize(&name, "finished", &record))
            } else {
                unfinished_record(&folder, &name).map(|record| summarize(&name, "running", &record))
            };
            if let Some(summary) = summary {
                index.version += 1;
                let version = index.version;
                index.runs.insert(name, Run { modified, summary, version });
            }
        }
    }
}

/// Metadata of a file that is not a symbolic link, because a link could lead out of the folder.
fn regular_file(path: &Path) -> Option<Metadata> {
    std::fs::symlink_metadata(path).ok().filter(Metadata::is_file)
}

/// The content of a regular file of at most [`MAX_BYTES`] bytes.
fn read_file(path: &Path) -> Option<Vec<u8>> {
    regular_file(path).filter(|file| file.len() <= MAX_BYTES)?;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The partial record of an unfinished run: its config and, once there is a checkpoint, its evaluations so far.
fn unfinished_record(folder: &Path, name: &str) -> Option<Value> {
    let config = String::from_utf8(read_file(&folder.join(RUN_CONFIG))?).ok()?;
    // A run whose config cannot be parsed is still listed.
    let config = toml::from_str(&config).unwrap_or(Value::Null);
    let progress = checkpoint_progress(&folder.join(RUN_CHECKPOINT)).unwrap_or(Value::Null);
    let evaluations = progress.get("evaluations").or_else(|| progress.get("looks"));
    let last = evaluations.and_then(Value::as_array).and_then(|evaluations| evaluations.last()).unwrap_or(&Value::Null);
    Some(json!({
        "id": name,
        "config": config,
        "steps": progress["step"],
        "loss": last["loss"],
        "accuracy": last["accuracy"],
        "evaluations": evaluations,
    }))
}

/// The progress stored in the metadata of a checkpoint's header; no weights are read.
fn checkpoint_progress(path: &Path) -> Option<Value> {
    regular_file(path)?;
    let mut file = File::open(path).ok()?;
    let mut length = [0; 8];
    file.read_exact(&mut length).ok()?;
    let length = u64::from_le_bytes(length);
    let mut header = Vec::new();
    file.take(length.min(MAX_BYTES)).read_to_end(&mut header).ok()?;
    let header: Value = serde_json::from_slice(&header).ok()?;
    let metadata: Value = serde_json::from_str(header["__metadata__"][PROGRESS_KEY].as_str()?).ok()?;
    Some(metadata["progress"].clone())
}

/// The numbers of a record that the list shows.
fn summarize(name: &str, state: &str, record: &Value) -> Value {
    let config = &record["config"];
    let accuracy = |answers: &Value| {
        let (right, count) = (answers["right"].as_f64()?, answers["count"].as_f64()?);
        (count > 0.0).then(|| (1e4 * right / count).round() / 1e4)
    };
    let accuracy: BTreeMap<&String, Option<f64>> = record["accuracy"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(group, answers)| (group, accuracy(answers)))
        .collect();
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
