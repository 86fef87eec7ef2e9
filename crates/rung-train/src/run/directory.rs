//! Executes a run in a directory, so that it can be stopped, killed and resumed.
//!
//! | file | content | written |
//! |---|---|---|
//! | `run.toml` | the config with every default | first |
//! | `resume.safetensors` | the checkpoint | at every evaluation, and when `on_step` stops the run; deleted at the end |
//! | `weights.safetensors` | the final weights, for `rung eval` and PyTorch | at the end |
//! | `timing.json` | seconds of training | at the end |
//! | `record.json` | the record | last |
//! | `log.txt` | starts, stops and failures, with version and machine | when they happen |
//!
//! Each file but the log is written to a temporary file and renamed, so no reader sees half a record. A file lock keeps two processes
//! from working on one run, where the file system supports locks. The system releases it when a process dies.
//!
//! The lock only saves work. Two processes that execute one run without it take the same steps and rename the same bytes into place; at
//! worst they replace the checkpoint by an earlier one. So clusters do without it ([`LockMode::Shared`]): their file systems may have no
//! locks, or keep the locks of machines that died.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::path::Path;

use super::config::{Run, RunConfig};
use super::device::ComputeDevice;
use super::error::RunError;
use super::log::Log;
use super::record::RunRecord;
use super::trainer::{StepReport, Trainer};
use super::{checkpoint, record};
use rung_nn::file::{read_text, remove_old_temporary_files, remove_temporary_files, write_atomically};
pub use rung_nn::files::{RUN_CHECKPOINT as CHECKPOINT_FILE, RUN_RECORD as RECORD_FILE};
use rung_nn::files::{RUN_CONFIG, RUN_WEIGHTS};

/// File name of the seconds of training.
pub const TIMING_FILE: &str = "timing.json";
/// A longer `run.toml` is an error.
pub const MAX_CONFIG_BYTES: u64 = 4 << 20;
const LOCK_FILE: &str = ".lock";

/// Whether several processes may work on a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockMode {
    /// One process at a time, if the file system has locks.
    #[default]
    Exclusive,
    /// Any number of processes, without a lock; at worst the work is done twice.
    Shared,
}

/// How a run is executed. Neither changes its id.
#[derive(Clone, Debug, Default)]
pub struct ExecuteOptions {
    /// Whether other processes may work on the run at the same time.
    pub lock_mode: LockMode,
    /// The device of all remaining steps.
    pub device: ComputeDevice,
}

/// The outcome of executing a run.
#[derive(Debug)]
pub struct RunOutcome {
    /// The record; `None` if `on_step` stopped the run.
    pub record: Option<RunRecord>,
    /// Whether the record existed before.
    pub already_recorded: bool,
    /// Seconds of training, over all processes of the run; 0 if it was recorded already.
    pub seconds: f64,
}

/// Executes a run on the native engine, resuming from the directory's checkpoint if there is one. A run that is already recorded there is not repeated.
/// `on_step` is called after every step and returns whether to continue; if not, a checkpoint is written before this returns.
///
/// # Errors
/// The directory holds another run or cannot be written, or training fails.
pub fn execute(
    run: &Run,
    directory: Option<&Path>,
    on_step: &mut dyn FnMut(&StepReport<'_>) -> bool,
) -> Result<RunOutcome, RunError> {
    execute_with(run, directory, &ExecuteOptions::default(), on_step)
}

/// As [`execute`], with a lock or without, on any device. The checkpoint may have been written on another device.
///
/// # Errors
/// As [`execute`].
pub fn execute_with(
    run: &Run,
    directory: Option<&Path>,
    options: &ExecuteOptions,
    on_step: &mut dyn FnMut(&StepReport<'_>) -> bool,
) -> Result<RunOutcome, RunError> {
    let Some(directory) = directory else {
        let mut trainer = Trainer::on_device(run, &options.device)?;
        let finished = train(&mut trainer, on_step, |_| Ok(()))?;
        let record = if finished { Some(trainer.record()?) } else { None };
        return Ok(RunOutcome { record, already_recorded: false, seconds: trainer.seconds() });
    };
    fs::create_dir_all(directory).map_err(|error| RunError::file(directory, format!("cannot create: {error}")))?;
    let lock = if options.lock_mode == LockMode::Exclusive { lock(directory)? } else { None };
    if lock.is_some() {
        // No other process writes here as long as this one holds the lock.
        remove_temporary_files(directory);
    } else {
        remove_old_temporary_files(directory);
    }
    let already_recorded = |record| Ok(RunOutcome { record: Some(record), already_recorded: true, seconds: 0.0 });
    if let Some(record) = find_record(run, directory).map_err(RunError::into_run_file_invalid)? {
        return already_recorded(record);
    }
    let path = |name: &str| directory.join(name);
    match read_text(&path(RUN_CONFIG), MAX_CONFIG_BYTES) {
        Ok(text) if read_config(&text).as_ref() != Some(&run.config) => {
            let reason = "this directory belongs to another run; choose another directory".to_owned();
            return Err(RunError::RunFileInvalid { path: path(RUN_CONFIG), reason });
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::InvalidData => return Err(RunError::file(path(RUN_CONFIG), error)),
        Err(_) => write_atomically(&path(RUN_CONFIG), run.config.to_toml().as_bytes()).map_err(RunError::write)?,
    }
    let mut trainer = Trainer::on_device(run, &options.device)?;
    let checkpoint_path = path(CHECKPOINT_FILE);
    let earlier_seconds =
        match checkpoint::load(&checkpoint_path, &mut trainer).map_err(RunError::into_run_file_invalid)? {
            Some(seconds) => seconds,
            None => match find_record(run, directory).map_err(RunError::into_run_file_invalid)? {
                // Another process has finished the run since the check above.
                Some(record) => return already_recorded(record),
                None => 0.0,
            },
        };
    let log = Log::open(directory);
    log.write_start(run, &options.device, trainer.progress().step);
    let _panic_line = log.on_panic();
    let outcome = train_and_record(&mut trainer, directory, earlier_seconds, on_step);
    log.write(&match &outcome {
        Ok(RunOutcome { record: Some(record), .. }) => {
            format!("recorded after step {}: {:?}", record.steps, record.stop_reason).to_lowercase()
        }
        Ok(_) => format!("stopped at step {}, to be resumed", trainer.progress().step),
        Err(error) => format!("failed: {error}"),
    });
    outcome
}

/// Trains until the run is finished, and writes its weights, timing and record; or until `on_step` stops it, and writes a checkpoint.
fn train_and_record(
    trainer: &mut Trainer<'_>,
    directory: &Path,
    earlier_seconds: f64,
    on_step: &mut dyn FnMut(&StepReport<'_>) -> bool,
) -> Result<RunOutcome, RunError> {
    let run = trainer.run();
    let path = |name: &str| directory.join(name);
    let checkpoint_path = path(CHECKPOINT_FILE);
    let save = |trainer: &Trainer<'_>| checkpoint::save(&checkpoint_path, trainer, earlier_seconds + trainer.seconds());
    if !train(trainer, on_step, save)? {
        save(trainer)?;
        let seconds = earlier_seconds + trainer.seconds();
        return Ok(RunOutcome { record: None, already_recorded: false, seconds });
    }
    let record = trainer.record()?;
    let seconds = earlier_seconds + trainer.seconds();
    checkpoint::save_weights(&path(RUN_WEIGHTS), run, trainer.weights())?;
    let timing = serde_json::json!({"id": record.id, "seconds": seconds, "threads": run.config.train.threads});
    write_atomically(&path(TIMING_FILE), format!("{timing}\n").as_bytes()).map_err(RunError::write)?;
    write_atomically(&path(RECORD_FILE), record.to_json_line().as_bytes()).map_err(RunError::write)?;
    let _ = fs::remove_file(&checkpoint_path);
    Ok(RunOutcome { record: Some(record), already_recorded: false, seconds })
}

/// The resolved config in a `run.toml`; `None` if it is invalid.
fn read_config(text: &str) -> Option<RunConfig> {
    RunConfig::read(text).and_then(|config| config.resolve()).ok().map(|run| run.config)
}

/// Trains until the run is finished (true) or `on_step` stops it (false), with a checkpoint at every evaluation.
fn train(
    trainer: &mut Trainer<'_>,
    on_step: &mut dyn FnMut(&StepReport<'_>) -> bool,
    save: impl Fn(&Trainer<'_>) -> Result<(), RunError>,
) -> Result<bool, RunError> {
    while trainer.progress().stop_reason.is_none() {
        let report = trainer.step()?;
        let (evaluated, continues) = (report.evaluation.is_some(), on_step(&report));
        if evaluated {
            save(trainer)?;
        }
        if !continues && trainer.progress().stop_reason.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The record of this run, if the directory has one.
///
/// # Errors
/// The record is of another run or another version of the numerics, or cannot be read.
pub fn find_record(run: &Run, directory: &Path) -> Result<Option<RunRecord>, RunError> {
    let path = directory.join(RECORD_FILE);
    if !path.exists() {
        return Ok(None);
    }
    let record = RunRecord::read(&path)?;
    if record.numerics_version == record::NUMERICS_VERSION && record.config == run.config {
        return Ok(Some(record));
    }
    let found = if record.config == run.config {
        let version = record.numerics_version;
        format!("the record of this run by numerics version {version}, expected {}", record::NUMERICS_VERSION)
    } else {
        format!("the record of another run, {}", record.id)
    };
    Err(RunError::file(path, format!("{found}; choose another directory")))
}

/// Locks a run's directory until the returned file is dropped; `None` where the file system has no locks.
fn lock(directory: &Path) -> Result<Option<File>, RunError> {
    let path = directory.join(LOCK_FILE);
    // The lock file has no content. A symbolic link could point to a file that matters, so it is not followed.
    if fs::symlink_metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
        let reason = "found something other than a regular file, expected a lock file; delete it".to_owned();
        return Err(RunError::RunFileInvalid { path, reason });
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

    /// A short run, and the path of a directory for it that does not exist yet.
    fn run(name: &str) -> (Run, std::path::PathBuf) {
        let text = "stack = 'full'\ntask = 'funccomp{hops=1,m=3,queries=2}'\n[model]\nheads = 1\nhead = 8\n\
                    [train]\nsteps = 24\nbatch = 2\n[evaluate]\nevery = 2\nprompts = 2\nlast = 4\n";
        let directory = std::env::temp_dir().join(format!("rung-directory-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        (RunConfig::read(text).and_then(|config| config.resolve()).unwrap(), directory)
    }

    #[test]
    fn only_the_exclusive_mode_respects_a_lock() {
        let (run, directory) = run("lock");
        fs::create_dir_all(&directory).unwrap();
        let file_lock = lock(&directory).unwrap();
        assert!(file_lock.is_some());
        assert!(matches!(execute(&run, Some(&directory), &mut |_| true), Err(RunError::Busy { .. })));
        let options = ExecuteOptions { lock_mode: LockMode::Shared, ..ExecuteOptions::default() };
        let shared = execute_with(&run, Some(&directory), &options, &mut |_| true).unwrap();
        drop(file_lock);
        let again = execute(&run, Some(&directory), &mut |_| true).unwrap();
        assert!(again.already_recorded && again.record == shared.record);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_symbolic_link_is_rejected_as_a_lock_and_its_target_unchanged() {
        let (run, directory) = run("link");
        fs::create_dir_all(&directory).unwrap();
        let target = directory.join("target");
        fs::write(&target, "content").unwrap();
        std::os::unix::fs::symlink(&target, directory.join(LOCK_FILE)).unwrap();
        let result = execute(&run, Some(&directory), &mut |_| true);
        assert!(
            matches!(&result, Err(RunError::RunFileInvalid { path, .. }) if path.ends_with(LOCK_FILE)),
            "{result:?}"
        );
        assert_eq!(fs::read_to_string(&target).unwrap(), "content");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn temporary_files_of_a_killed_process_are_removed_and_starts_logged() {
        let (run, directory) = run("log");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(".record.json.123-0.part"), "{").unwrap();
        assert!(execute(&run, Some(&directory), &mut |report| report.step < 3).unwrap().record.is_none());
        assert!(!directory.join(".record.json.123-0.part").exists());
        execute(&run, Some(&directory), &mut |_| true).unwrap();
        let log = fs::read_to_string(directory.join(super::super::log::LOG_FILE)).unwrap();
        let lines: Vec<&str> = log.lines().map(|line| line.split_once("Z ").unwrap().1).collect();
        assert_eq!(lines.len(), 4, "{log}");
        assert!(lines[0].starts_with(&format!("started by rung {}", env!("CARGO_PKG_VERSION"))), "{log}");
        assert_eq!(lines[1], "stopped at step 3, to be resumed");
        assert!(lines[2].starts_with("resumed at step 3 by rung "), "{log}");
        assert!(lines[3].starts_with("recorded after step 24: "), "{log}");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn all_files_of_a_run_have_the_same_mode() {
        use std::os::unix::fs::PermissionsExt as _;
        let (run, directory) = run("modes");
        execute(&run, Some(&directory), &mut |_| true).unwrap();
        let modes =
            fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap().permissions().mode());
        let modes: std::collections::BTreeSet<u32> = modes.collect();
        assert_eq!(modes.len(), 1, "{modes:?}");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn concurrent_processes_without_locks_give_the_record_of_one_process() {
        let (run, directory) = run("shared");
        let expected = execute(&run, None, &mut |_| true).unwrap().record.unwrap();
        std::thread::scope(|scope| {
            for stop_at in [5, 9, usize::MAX, usize::MAX] {
                let (run, directory) = (&run, &directory);
                scope.spawn(move || {
                    let mut on_step = |report: &StepReport<'_>| report.step < stop_at;
                    let options = ExecuteOptions { lock_mode: LockMode::Shared, ..ExecuteOptions::default() };
                    execute_with(run, Some(directory), &options, &mut on_step).unwrap();
                });
            }
        });
        assert_eq!(fs::read_to_string(directory.join(RECORD_FILE)).unwrap(), expected.to_json_line());
        let again = execute(&run, Some(&directory), &mut |_| true).unwrap();
        assert!(again.already_recorded && again.record == Some(expected));
        fs::remove_dir_all(&directory).unwrap();
    }
}
