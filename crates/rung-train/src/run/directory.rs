//! Carrying out a run in a directory, so that it can be stopped, killed and taken up again.
//!
//! | file | what | when |
//! |---|---|---|
//! | `run.toml` | the config, every default spelled out | first |
//! | `resume.safetensors` | the checkpoint | at every evaluation, and when the watcher says stop; gone when the run is over |
//! | `weights.safetensors` | the last weights, for `rung eval` and PyTorch | at the end |
//! | `timing.json` | seconds of work | at the end |
//! | `record.json` | the record | last |
//! | `log.txt` | when it started or was resumed, on what, and why it ended | as it happens |
//!
//! Each is written beside its place and renamed, so whoever finds a record finds the whole of it. A lock that the system lets go of
//! when a process dies keeps two processes from working on one run, where the file system has locks.
//!
//! The lock saves work and nothing else. Two processes that share a run without it take the same steps, rename the same bytes into
//! place, and may only set each other's checkpoint back; so clusters, whose file systems have no locks or keep those of machines
//! that died, do without ([`LockMode::Shared`]).

use std::fs::{self, File, OpenOptions};
use std::path::Path;

use super::config::{Run, RunConfig};
use super::error::RunError;
use super::log::Log;
use super::record::RunRecord;
use super::trainer::{StepReport, Trainer};
use super::{checkpoint, record};
use rung_nn::file::{remove_parts, write_atomically};
use rung_nn::network::files::{RUN_CONFIG, RUN_WEIGHTS};

/// The checkpoint.
pub const RESUME: &str = "resume.safetensors";
/// Seconds of work.
pub const TIMING: &str = "timing.json";
/// The record.
pub const RECORD: &str = "record.json";
const LOCK: &str = ".lock";

/// Who may work on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// One process at a time, if the file system has locks.
    Exclusive,
    /// Whoever comes; at worst the work is done twice.
    Shared,
}

/// What came of a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// The record, unless the watcher said stop.
    pub record: Option<RunRecord>,
    /// Whether it had been recorded before.
    pub already_recorded: bool,
    /// Seconds of work, in all processes that took part.
    pub seconds: f64,
}

/// Carries a run out, from its checkpoint if the directory has one; not at all if it has a record of exactly this run. `watch`
/// sees every step and says whether to go on; if not, a checkpoint is written first.
///
/// # Errors
/// The directory holds another run or cannot be written, or training fails.
pub fn execute(
    run: &Run,
    directory: Option<&Path>,
    watch: &mut dyn FnMut(&StepReport<'_>) -> bool,
) -> Result<RunOutcome, RunError> {
    execute_with(run, directory, LockMode::Exclusive, watch)
}

/// As [`execute`], with a lock or without.
///
/// # Errors
/// As [`execute`].
pub fn execute_with(
    run: &Run,
    directory: Option<&Path>,
    lock_mode: LockMode,
    watch: &mut dyn FnMut(&StepReport<'_>) -> bool,
) -> Result<RunOutcome, RunError> {
    let Some(directory) = directory else {
        let mut trainer = Trainer::new(run)?;
        let over = go(&mut trainer, watch, |_| Ok(()))?;
        let record = if over { Some(trainer.record()?) } else { None };
        return Ok(RunOutcome { record, already_recorded: false, seconds: trainer.seconds() });
    };
    fs::create_dir_all(directory).map_err(|error| RunError::file(directory, format!("cannot make: {error}")))?;
    let lock = if lock_mode == LockMode::Exclusive { lock(directory)? } else { None };
    if lock.is_some() {
        // No other process writes here as long as the lock is ours.
        remove_parts(directory);
    }
    let known = |record| Ok(RunOutcome { record: Some(record), already_recorded: true, seconds: 0.0 });
    if let Some(record) = recorded(run, directory).map_err(RunError::of_this_run)? {
        return known(record);
    }
    let place = |name: &str| directory.join(name);
    match fs::read_to_string(place(RUN_CONFIG)) {
        Ok(text) if resolved(&text).as_ref() != Some(&run.config) => {
            let reason = "another run is kept here; choose another directory".to_owned();
            return Err(RunError::Unusable { path: place(RUN_CONFIG), reason });
        }
        Ok(_) => {}
        Err(_) => write_atomically(&place(RUN_CONFIG), run.config.text().as_bytes()).map_err(RunError::write)?,
    }
    let mut trainer = Trainer::new(run)?;
    let resume = place(RESUME);
    let before = match checkpoint::load(&resume, &mut trainer).map_err(RunError::of_this_run)? {
        Some(seconds) => seconds,
        None => match recorded(run, directory).map_err(RunError::of_this_run)? {
            // Another process has finished the run since we looked for its record.
            Some(record) => return known(record),
            None => 0.0,
        },
    };
    let log = Log::open(directory);
    log.started(run, trainer.progress().step);
    let save = |trainer: &Trainer<'_>| checkpoint::save(&resume, trainer, before + trainer.seconds());
    let over = go(&mut trainer, watch, save).inspect_err(|error| log.ended(&format!("failed: {error}")))?;
    if !over {
        save(&trainer).inspect_err(|error| log.ended(&format!("failed: {error}")))?;
        log.ended(&format!("stopped at step {}, to be resumed", trainer.progress().step));
        return Ok(RunOutcome { record: None, already_recorded: false, seconds: before + trainer.seconds() });
    }
    let record = trainer.record()?;
    let seconds = before + trainer.seconds();
    checkpoint::save_weights(&place(RUN_WEIGHTS), run, trainer.weights())?;
    let timing = serde_json::json!({"id": record.id, "seconds": seconds, "threads": run.config.train.threads});
    write_atomically(&place(TIMING), format!("{timing}\n").as_bytes()).map_err(RunError::write)?;
    write_atomically(&place(RECORD), record.line().as_bytes()).map_err(RunError::write)?;
    let _ = fs::remove_file(&resume);
    log.ended(&format!("recorded after step {}: {:?}", record.steps, record.stop_reason).to_lowercase());
    Ok(RunOutcome { record: Some(record), already_recorded: false, seconds })
}

/// A config with every default, if the text is one.
fn resolved(text: &str) -> Option<RunConfig> {
    RunConfig::read(text).and_then(|config| config.resolve()).ok().map(|run| run.config)
}

/// Steps until the run is over (true) or the watcher says stop (false), with a checkpoint at every evaluation.
fn go(
    trainer: &mut Trainer<'_>,
    watch: &mut dyn FnMut(&StepReport<'_>) -> bool,
    save: impl Fn(&Trainer<'_>) -> Result<(), RunError>,
) -> Result<bool, RunError> {
    while trainer.progress().stop_reason.is_none() {
        let report = trainer.step()?;
        let (evaluated, go_on) = (report.evaluation.is_some(), watch(&report));
        if evaluated {
            save(trainer)?;
        }
        if !go_on && trainer.progress().stop_reason.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The record of exactly this run, if the directory has it.
///
/// # Errors
/// There is a record of another run, or one that cannot be read.
pub fn recorded(run: &Run, directory: &Path) -> Result<Option<RunRecord>, RunError> {
    let path = directory.join(RECORD);
    if !path.exists() {
        return Ok(None);
    }
    let found = RunRecord::read(&path)?;
    if found.edition == record::EDITION && found.config == run.config {
        return Ok(Some(found));
    }
    Err(RunError::file(path, format!("the record of another run, {}; choose another directory", found.id)))
}

/// The lock, for as long as it is kept; none where the file system has no locks.
fn lock(directory: &Path) -> Result<Option<File>, RunError> {
    let path = directory.join(LOCK);
    // Never through a link, and without a change to what is there: a lock needs no content.
    if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
        let reason = "found something else than a plain file, expected a lock; delete it".to_owned();
        return Err(RunError::Unusable { path, reason });
    }
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = opened.map_err(|error| RunError::file(&path, format!("cannot write: {error}")))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(fs::TryLockError::WouldBlock) => Err(RunError::Busy { path: directory.to_owned() }),
        Err(fs::TryLockError::Error(_)) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of a report, and an empty directory for it.
    fn run(name: &str) -> (Run, std::path::PathBuf) {
        let text = "stack = 'full'\ntask = 'funccomp{hops=1,m=3,queries=2}'\n[model]\nheads = 1\nhead = 8\n\
                    [train]\nsteps = 24\nbatch = 2\n[evaluate]\nevery = 2\nprompts = 2\nlast = 4\n";
        let place = std::env::temp_dir().join(format!("rung-place-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        (RunConfig::read(text).and_then(|config| config.resolve()).unwrap(), place)
    }

    #[test]
    fn a_lock_is_heeded_only_by_those_who_ask_for_one() {
        let (run, place) = run("lock");
        fs::create_dir_all(&place).unwrap();
        let held = lock(&place).unwrap();
        assert!(held.is_some());
        assert!(matches!(execute(&run, Some(&place), &mut |_| true), Err(RunError::Busy { .. })));
        let shared = execute_with(&run, Some(&place), LockMode::Shared, &mut |_| true).unwrap();
        drop(held);
        let again = execute(&run, Some(&place), &mut |_| true).unwrap();
        assert!(again.already_recorded && again.record == shared.record);
        fs::remove_dir_all(&place).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_lock_is_no_link_and_keeps_what_it_names() {
        let (run, place) = run("link");
        fs::create_dir_all(&place).unwrap();
        let precious = place.join("precious");
        fs::write(&precious, "kept").unwrap();
        std::os::unix::fs::symlink(&precious, place.join(LOCK)).unwrap();
        let refused = execute(&run, Some(&place), &mut |_| true);
        assert!(matches!(&refused, Err(RunError::Unusable { path, .. }) if path.ends_with(LOCK)), "{refused:?}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "kept");
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_the_log_says_what_happened() {
        let (run, place) = run("log");
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join(".record.json.123-0.part"), "{").unwrap();
        assert!(execute(&run, Some(&place), &mut |report| report.step < 3).unwrap().record.is_none());
        assert!(!place.join(".record.json.123-0.part").exists());
        execute(&run, Some(&place), &mut |_| true).unwrap();
        let log = fs::read_to_string(place.join(super::super::log::LOG)).unwrap();
        let lines: Vec<&str> = log.lines().map(|line| line.split_once("Z ").unwrap().1).collect();
        assert_eq!(lines.len(), 4, "{log}");
        assert!(lines[0].starts_with(&format!("started by rung {}", env!("CARGO_PKG_VERSION"))), "{log}");
        assert_eq!(lines[1], "stopped at step 3, to be resumed");
        assert!(lines[2].starts_with("resumed at step 3 by rung "), "{log}");
        assert!(lines[3].starts_with("recorded after step 24: "), "{log}");
        fs::remove_dir_all(&place).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn all_files_of_a_run_have_the_same_mode() {
        use std::os::unix::fs::PermissionsExt as _;
        let (run, place) = run("modes");
        execute(&run, Some(&place), &mut |_| true).unwrap();
        let modes = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().metadata().unwrap().permissions().mode());
        let modes: std::collections::BTreeSet<u32> = modes.collect();
        assert_eq!(modes.len(), 1, "{modes:?}");
        fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn many_without_locks_leave_the_record_of_one_alone() {
        let (run, place) = run("shared");
        let alone = execute(&run, None, &mut |_| true).unwrap().record.unwrap();
        std::thread::scope(|scope| {
            for stop_at in [5, 9, usize::MAX, usize::MAX] {
                let (run, place) = (&run, &place);
                scope.spawn(move || {
                    let mut go_on = |report: &StepReport<'_>| report.step < stop_at;
                    execute_with(run, Some(place), LockMode::Shared, &mut go_on).unwrap();
                });
            }
        });
        assert_eq!(fs::read_to_string(place.join(RECORD)).unwrap(), alone.line());
        let again = execute(&run, Some(&place), &mut |_| true).unwrap();
        assert!(again.already_recorded && again.record == Some(alone));
        fs::remove_dir_all(&place).unwrap();
    }
}
