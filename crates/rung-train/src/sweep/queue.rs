//! Executes the runs of a sweep.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::config::{Shard, Sweep};
use crate::run::{self, ComputeDevice, ExecuteOptions, Run, RunError, RunRecord, Trainer, directory, record};
use rung_nn::memory;

/// Pause before a run on which another process is working is tried again.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// An event during a sweep. `run` is the run's number in the sweep, from 0.
#[derive(Debug)]
pub enum Event<'a> {
    /// The run had a record already.
    AlreadyRecorded {
        /// The run.
        run: usize,
        /// Its record.
        record: &'a RunRecord,
    },
    /// The run finished a step.
    Step {
        /// The run.
        run: usize,
        /// Steps so far.
        step: usize,
        /// Steps in total.
        steps: usize,
    },
    /// The run ended and was recorded.
    Recorded {
        /// The run.
        run: usize,
        /// Its record.
        record: &'a RunRecord,
        /// Seconds of training.
        seconds: f64,
    },
    /// Another process is working on the run, and no other run is left to start.
    Waiting {
        /// The run.
        run: usize,
    },
}

/// The results of a sweep.
#[derive(Debug, Default)]
pub struct SweepSummary {
    /// Records by run number; `None` for runs of other shards and for unfinished runs.
    pub records: Vec<Option<RunRecord>>,
    /// How many of `records` existed before this call.
    pub already_recorded: usize,
    /// Runs that failed: number and reason.
    pub failed: Vec<(usize, RunError)>,
    /// Whether `on_event` returned false.
    pub interrupted: bool,
    /// Seconds of training in the runs that this call finished, including their seconds before an interruption.
    pub training_seconds: f64,
    /// Wall-clock seconds of this call.
    pub elapsed_seconds: f64,
}

impl SweepSummary {
    /// Mean seconds of training per run, and finished runs per hour; `None` if this call finished no run.
    pub fn pace(&self) -> Option<(f64, f64)> {
        let finished = self.records.iter().flatten().count() - self.already_recorded;
        (finished > 0 && self.elapsed_seconds > 0.0).then(|| {
            let finished = finished as f64;
            (self.training_seconds / finished, 3600.0 * finished / self.elapsed_seconds)
        })
    }
}

/// Executes the runs of a shard on `threads` threads of the native engine, longest first. `on_event` is called for every event and returns whether to continue.
///
/// A run that fails, or whose files are invalid, does not stop the others. A run that cannot write to the disk does, since the others
/// could not either. A run on which another process is working is tried again after all other runs, until it is recorded or free.
pub fn execute(
    sweep: &Sweep,
    directory: &Path,
    shard: Shard,
    threads: usize,
    on_event: &(dyn Fn(Event<'_>) -> bool + Sync),
) -> SweepSummary {
    execute_with(sweep, directory, shard, threads, &ExecuteOptions::default(), on_event)
}

/// As [`execute`], with locks or without, on any device, with `threads` runs at a time.
pub fn execute_with(
    sweep: &Sweep,
    directory: &Path,
    shard: Shard,
    threads: usize,
    options: &ExecuteOptions,
    on_event: &(dyn Fn(Event<'_>) -> bool + Sync),
) -> SweepSummary {
    let mut run_indices: Vec<usize> = (0..sweep.runs.len()).filter(|number| shard.contains(*number)).collect();
    run_indices.sort_by_key(|number| std::cmp::Reverse(cost(&sweep.runs[*number])));
    let (next_index, stop, started) = (AtomicUsize::new(0), AtomicBool::new(false), Instant::now());
    let empty = SweepSummary { records: sweep.runs.iter().map(|_| None).collect(), ..SweepSummary::default() };
    let (summary, busy_runs) = (Mutex::new(empty), Mutex::new(Vec::new()));
    // The next run to try, and whether another process was working on it before.
    let next_run = || {
        let untried = run_indices.get(next_index.fetch_add(1, Ordering::Relaxed)).copied();
        untried.map(|number| (number, false)).or_else(|| {
            let number = busy_runs.lock().unwrap_or_else(PoisonError::into_inner).pop();
            number.map(|number| (number, true))
        })
    };
    let worker = || {
        while let Some((number, was_busy)) = next_run() {
            if was_busy {
                log::debug!("run {}: another process works on it", number + 1);
                std::thread::sleep(POLL_INTERVAL);
                if !on_event(Event::Waiting { run: number }) {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let run = &sweep.runs[number];
            let run_directory = directory.join(record::id(run));
            log::info!("run {} of {}: {}", number + 1, sweep.runs.len(), run_directory.display());
            let outcome = run::execute_with(run, Some(&run_directory), options, &mut |report| {
                let continues = on_event(Event::Step { run: number, step: report.step, steps: report.steps });
                if !continues {
                    stop.store(true, Ordering::Relaxed);
                }
                !stop.load(Ordering::Relaxed)
            });
            let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
            match outcome {
                Ok(outcome) => {
                    summary.already_recorded += usize::from(outcome.already_recorded);
                    summary.interrupted |= outcome.record.is_none();
                    if let Some(record) = &outcome.record {
                        summary.training_seconds += outcome.seconds;
                        let event = if outcome.already_recorded {
                            Event::AlreadyRecorded { run: number, record }
                        } else {
                            Event::Recorded { run: number, record, seconds: outcome.seconds }
                        };
                        if !on_event(event) {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                    summary.records[number] = outcome.record;
                }
                Err(RunError::Busy { .. }) => busy_runs.lock().unwrap_or_else(PoisonError::into_inner).push(number),
                Err(error) => {
                    if matches!(error, RunError::File { .. }) {
                        stop.store(true, Ordering::Relaxed);
                    }
                    summary.failed.push((number, error));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, run_indices.len().max(1)) {
            scope.spawn(worker);
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.interrupted |= stop.load(Ordering::Relaxed);
    summary.failed.sort_by_key(|(number, _)| *number);
    summary.elapsed_seconds = started.elapsed().as_secs_f64();
    summary
}

/// A relative estimate of a run's work, to sort runs by.
fn cost(run: &Run) -> u128 {
    let train = &run.config.train;
    let tokens = (train.steps * train.batch) as u128 * run.max_tokens as u128;
    tokens * run.plan.layers.len() as u128 * (run.max_tokens as u128 + 16 * u128::from(run.plan.width))
}

/// Whether a run is recorded. An invalid record counts as none here; executing the run reports it.
fn is_recorded(run: &Run, directory: &Path) -> bool {
    directory::find_record(run, &directory.join(record::id(run))).is_ok_and(|record| record.is_some())
}

/// Rejects a shard whose `threads` largest unrecorded runs do not fit the memory together.
///
/// # Errors
/// They do not fit.
pub fn check_memory(sweep: &Sweep, directory: &Path, shard: Shard, threads: usize) -> Result<(), RunError> {
    let mut sizes = Vec::new();
    for (number, run) in sweep.runs.iter().enumerate() {
        if shard.contains(number) && !is_recorded(run, directory) {
            sizes.push((run.memory_bytes(), number));
        }
    }
    sizes.sort_unstable();
    let largest_runs = &sizes[sizes.len().saturating_sub(threads.max(1))..];
    let Some((_, largest)) = largest_runs.last() else { return Ok(()) };
    let bytes = largest_runs.iter().fold(0_u128, |sum, (bytes, _)| sum.saturating_add(*bytes));
    let name = sweep.runs[*largest].plan.mixer_names();
    let description = format!("{} runs at once, the largest number {} (`{name}`),", largest_runs.len(), largest + 1);
    Ok(memory::check(description, bytes, None)?)
}

/// Upper bound on the seconds that the unrecorded runs of a shard take with `threads` runs at a time, from a few timed steps of each
/// kind of run on the device. Curricula and early stopping make the real time shorter.
///
/// # Errors
/// A run cannot be started.
pub fn estimate(
    sweep: &Sweep,
    directory: &Path,
    shard: Shard,
    threads: usize,
    device: &ComputeDevice,
) -> Result<f64, RunError> {
    let mut step_seconds: Vec<(String, f64)> = Vec::new();
    let mut total_seconds = 0.0;
    for (number, run) in sweep.runs.iter().enumerate() {
        if !shard.contains(number) || is_recorded(run, directory) {
            continue;
        }
        // Runs whose steps cost the same are timed once.
        let train = &run.config.train;
        let kind = format!("{} {} {} {:?}", run.config.stack, run.config.task, train.batch, run.config.model);
        let earlier = step_seconds.iter().find(|(timed_kind, _)| *timed_kind == kind).map(|(_, step)| *step);
        let per_step = if let Some(per_step) = earlier {
            per_step
        } else {
            let per_step = seconds_per_step(run, device)?;
            log::info!("a step of run {}: {:.1} ms", number + 1, 1e3 * per_step);
            step_seconds.push((kind, per_step));
            per_step
        };
        total_seconds += per_step * train.steps as f64;
    }
    Ok(total_seconds / threads.max(1) as f64)
}

/// Measured seconds per step on the run's final task, after one warm-up step.
fn seconds_per_step(run: &Run, device: &ComputeDevice) -> Result<f64, RunError> {
    const STEPS: usize = 3;
    let mut config = run.config.clone();
    config.curriculum.clear();
    let run = config.resolve()?;
    let mut trainer = Trainer::on_device(&run, device)?;
    trainer.step()?;
    let started = Instant::now();
    for _ in 0..STEPS {
        trainer.step()?;
    }
    Ok(started.elapsed().as_secs_f64() / STEPS as f64)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::super::SweepConfig;
    use super::*;

    /// Four small runs, and an empty directory.
    fn sweep(name: &str) -> (Sweep, PathBuf) {
        let text = "seeds = [1, 2, 3, 4]\n[base]\nstack = 'full'\ntask = 'funccomp{hops=1,m=3,queries=2}'\n\
                    [base.model]\nheads = 1\nhead = 8\n[base.train]\nsteps = 12\nbatch = 2\n\
                    [base.evaluate]\nevery = 4\nprompts = 2\nlast = 4\n";
        let directory = std::env::temp_dir().join(format!("rung-queue-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        (SweepConfig::read(text).and_then(|sweep| sweep.resolve()).unwrap(), directory)
    }

    #[test]
    fn an_unreadable_checkpoint_fails_only_its_run() {
        let (sweep, directory) = sweep("checkpoint");
        let run_directory = directory.join(record::id(&sweep.runs[1]));
        fs::create_dir_all(&run_directory).unwrap();
        fs::write(run_directory.join(directory::CHECKPOINT_FILE), b"no checkpoint").unwrap();
        for _ in 0..2 {
            let summary = execute(&sweep, &directory, Shard::ALL, 1, &|_| true);
            assert_eq!(summary.records.iter().flatten().count(), 3);
            assert!(!summary.interrupted);
            let [(1, error)] = &summary.failed[..] else { panic!("{:?}", summary.failed) };
            assert!(error.to_string().contains("delete it to start the run again"), "{error}");
        }
        fs::remove_file(run_directory.join(directory::CHECKPOINT_FILE)).unwrap();
        let summary = execute(&sweep, &directory, Shard::ALL, 1, &|_| true);
        assert_eq!((summary.records.iter().flatten().count(), summary.failed.len()), (4, 0));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn two_concurrent_sweeps_on_one_directory_both_return_all_records() {
        let (sweep, directory) = sweep("two");
        let summaries: Vec<SweepSummary> = std::thread::scope(|scope| {
            let handles = [0, 1].map(|_| scope.spawn(|| execute(&sweep, &directory, Shard::ALL, 2, &|_| true)));
            handles.map(|handle| handle.join().unwrap()).into_iter().collect()
        });
        for summary in &summaries {
            assert!(summary.failed.is_empty() && !summary.interrupted, "{:?}", summary.failed);
            assert_eq!(summary.records.iter().flatten().count(), 4);
        }
        assert_eq!(summaries[0].records, summaries[1].records);
        fs::remove_dir_all(&directory).unwrap();
    }
}
