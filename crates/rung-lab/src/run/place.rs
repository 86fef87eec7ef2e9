//! Carrying out a run in a directory, so that it can be stopped, killed and taken up again.
//!
//! | file | what | when |
//! |---|---|---|
//! | `run.toml` | the config, every default spelled out | first |
//! | `resume.safetensors` | the checkpoint | at every look, and when the watcher says stop; gone when the run is over |
//! | `weights.safetensors` | the last weights, for `rung eval` and PyTorch | at the end |
//! | `timing.json` | seconds of work | at the end |
//! | `record.json` | the record | last |
//!
//! Each is written beside its place and renamed, so whoever finds a record finds the whole of it. A lock that the system lets go of
//! when a process dies keeps two processes from working on one run.

use std::fs::{self, File};
use std::path::Path;

use super::config::{Run, RunConfig};
use super::error::RunError;
use super::record::Record;
use super::trainer::{Moment, Trainer};
use super::{checkpoint, record};
use crate::report::write_atomically;

/// The files of a run.
pub const CONFIG: &str = "run.toml";
/// The checkpoint.
pub const RESUME: &str = "resume.safetensors";
/// The last weights.
pub const WEIGHTS: &str = "weights.safetensors";
/// Seconds of work.
pub const TIMING: &str = "timing.json";
/// The record.
pub const RECORD: &str = "record.json";
const LOCK: &str = ".lock";

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The record, unless the watcher said stop.
    pub record: Option<Record>,
    /// Whether it had been recorded before.
    pub known: bool,
    /// Seconds of work, in all processes that took part.
    pub seconds: f64,
}

/// Carries a run out, from its checkpoint if the directory has one; not at all if it has a record of exactly this run. `watch`
/// sees every step and says whether to go on; if not, a checkpoint is written first.
///
/// # Errors
/// The directory holds another run or cannot be written, or training fails.
pub fn carry_out(
    run: &Run,
    directory: Option<&Path>,
    watch: &mut dyn FnMut(&Moment<'_>) -> bool,
) -> Result<Outcome, RunError> {
    let Some(directory) = directory else {
        let mut trainer = Trainer::new(run)?;
        let over = go(&mut trainer, watch, |_| Ok(()))?;
        let record = if over { Some(trainer.record()?) } else { None };
        return Ok(Outcome { record, known: false, seconds: trainer.seconds() });
    };
    fs::create_dir_all(directory).map_err(|error| RunError::file(directory, format!("cannot make: {error}")))?;
    let _lock = lock(directory)?;
    if let Some(record) = recorded(run, directory)? {
        return Ok(Outcome { record: Some(record), known: true, seconds: 0.0 });
    }
    let place = |name: &str| directory.join(name);
    match fs::read_to_string(place(CONFIG)) {
        Ok(text) if RunConfig::read(&text).ok().as_ref() != Some(&run.config) => {
            return Err(RunError::file(place(CONFIG), "another run is kept here; choose another directory"));
        }
        Ok(_) => {}
        Err(_) => write_atomically(&place(CONFIG), run.config.text().as_bytes()).map_err(RunError::unwritten)?,
    }
    let mut trainer = Trainer::new(run)?;
    let resume = place(RESUME);
    let before = if resume.exists() { checkpoint::load(&resume, &mut trainer)? } else { 0.0 };
    let save = |trainer: &Trainer<'_>| checkpoint::save(&resume, trainer, before + trainer.seconds());
    let over = go(&mut trainer, watch, save)?;
    if !over {
        save(&trainer)?;
        return Ok(Outcome { record: None, known: false, seconds: before + trainer.seconds() });
    }
    let record = trainer.record()?;
    let seconds = before + trainer.seconds();
    checkpoint::save_weights(&place(WEIGHTS), trainer.weights())?;
    let timing = serde_json::json!({"id": record.id, "seconds": seconds, "threads": run.config.train.threads});
    write_atomically(&place(TIMING), format!("{timing}\n").as_bytes()).map_err(RunError::unwritten)?;
    write_atomically(&place(RECORD), record.line().as_bytes()).map_err(RunError::unwritten)?;
    let _ = fs::remove_file(&resume);
    Ok(Outcome { record: Some(record), known: false, seconds })
}

/// Steps until the run is over (true) or the watcher says stop (false), with a checkpoint at every look.
fn go(
    trainer: &mut Trainer<'_>,
    watch: &mut dyn FnMut(&Moment<'_>) -> bool,
    save: impl Fn(&Trainer<'_>) -> Result<(), RunError>,
) -> Result<bool, RunError> {
    while trainer.progress().over.is_none() {
        let moment = trainer.step()?;
        let (looked, go_on) = (moment.look.is_some(), watch(&moment));
        if looked {
            save(trainer)?;
        }
        if !go_on && trainer.progress().over.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The record of exactly this run, if the directory has it.
///
/// # Errors
/// There is a record of another run, or one that cannot be read.
pub fn recorded(run: &Run, directory: &Path) -> Result<Option<Record>, RunError> {
    let path = directory.join(RECORD);
    if !path.exists() {
        return Ok(None);
    }
    let found = Record::read(&path)?;
    if found.edition == record::EDITION && found.config == run.config {
        return Ok(Some(found));
    }
    Err(RunError::file(path, format!("the record of another run, {}; choose another directory", found.id)))
}

fn lock(directory: &Path) -> Result<File, RunError> {
    let path = directory.join(LOCK);
    let file = File::create(&path).map_err(|error| RunError::file(&path, format!("cannot write: {error}")))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(RunError::Busy { path: directory.to_owned() }),
        Err(fs::TryLockError::Error(error)) => Err(RunError::file(path, format!("cannot lock: {error}"))),
    }
}
