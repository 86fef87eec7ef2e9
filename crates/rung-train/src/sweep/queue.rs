//! Executes the runs of a sweep.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::list::{Shard, Sweep};
use crate::run::{self, LockMode, Run, RunError, RunRecord, Trainer, directory, record};
use rung_nn::memory;

/// Between two looks at a run that another process works on.
const POLL: Duration = Duration::from_millis(300);

/// What happens during a sweep, as it happens. Runs are named by their number in the sweep.
#[derive(Debug)]
pub enum Event<'a> {
    /// A run was recorded before.
    AlreadyRecorded(usize, &'a RunRecord),
    /// A run took a step: done, in all.
    Step(usize, usize, usize),
    /// A run is over.
    Recorded(usize, &'a RunRecord, f64),
    /// Another process has the run, and this one has nothing else to do.
    Waiting(usize),
}

/// The results of a sweep.
#[derive(Debug, Default)]
pub struct SweepSummary {
    /// Records by number of run; none for other shards and for what was not finished.
    pub records: Vec<Option<RunRecord>>,
    /// How many of them had been recorded before.
    pub already_recorded: usize,
    /// Runs that failed: number and reason.
    pub failed: Vec<(usize, RunError)>,
    /// Whether `watch` asked to stop.
    pub interrupted: bool,
    /// Seconds of work in the runs that were finished here, including those before an interruption.
    pub work: f64,
    /// Seconds from the first to the last.
    pub elapsed: f64,
}

impl SweepSummary {
    /// Seconds that a run took, and runs in an hour; nothing if none was finished here.
    pub fn pace(&self) -> Option<(f64, f64)> {
        let finished = self.records.iter().flatten().count() - self.already_recorded;
        (finished > 0 && self.elapsed > 0.0).then(|| {
            let finished = finished as f64;
            (self.work / finished, 3600.0 * finished / self.elapsed)
        })
    }
}

/// Executes the runs of a shard on `threads` threads, longest first. `watch` is called for every event and returns whether to continue.
///
/// A run that fails does not stop the others, nor does one whose own files cannot be used; one that cannot write to the disk does,
/// since the others could not either. A run that another process works on is left to it, and checked again when there is nothing else
/// to do, until it is recorded or free.
pub fn execute(
    sweep: &Sweep,
    directory: &Path,
    shard: Shard,
    threads: usize,
    watch: &(dyn Fn(Event<'_>) -> bool + Sync),
) -> SweepSummary {
    execute_with(sweep, directory, shard, threads, LockMode::Exclusive, watch)
}

/// As [`execute`], with locks or without.
pub fn execute_with(
    sweep: &Sweep,
    directory: &Path,
    shard: Shard,
    threads: usize,
    lock_mode: LockMode,
    watch: &(dyn Fn(Event<'_>) -> bool + Sync),
) -> SweepSummary {
    let mut order: Vec<usize> = (0..sweep.runs.len()).filter(|number| shard.has(*number)).collect();
    order.sort_by_key(|number| std::cmp::Reverse(cost(&sweep.runs[*number])));
    let (next, stop, started) = (AtomicUsize::new(0), AtomicBool::new(false), Instant::now());
    let empty = SweepSummary { records: sweep.runs.iter().map(|_| None).collect(), ..SweepSummary::default() };
    let (summary, busy) = (Mutex::new(empty), Mutex::new(Vec::new()));
    let next_number = || {
        let fresh = order.get(next.fetch_add(1, Ordering::Relaxed)).copied();
        fresh.map(|number| (number, false)).or_else(|| {
            let number = busy.lock().unwrap_or_else(PoisonError::into_inner).pop();
            number.map(|number| (number, true))
        })
    };
    let work = || {
        while let Some((number, again)) = next_number() {
            if again {
                log::debug!("run {}: another process works on it", number + 1);
                std::thread::sleep(POLL);
                if !watch(Event::Waiting(number)) {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let run = &sweep.runs[number];
            let run_directory = directory.join(record::id(run));
            log::info!("run {} of {}: {}", number + 1, sweep.runs.len(), run_directory.display());
            let outcome = run::execute_with(run, Some(&run_directory), lock_mode, &mut |report| {
                let go_on = watch(Event::Step(number, report.step, report.steps));
                if !go_on {
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
                        let known = outcome.already_recorded;
                        summary.work += outcome.seconds;
                        let event = if known {
                            Event::AlreadyRecorded(number, record)
                        } else {
                            Event::Recorded(number, record, outcome.seconds)
                        };
                        if !watch(event) {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                    summary.records[number] = outcome.record;
                }
                Err(RunError::Busy { .. }) => busy.lock().unwrap_or_else(PoisonError::into_inner).push(number),
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
        for _ in 0..threads.clamp(1, order.len().max(1)) {
            scope.spawn(work);
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.interrupted |= stop.load(Ordering::Relaxed);
    summary.failed.sort_by_key(|(number, _)| *number);
    summary.elapsed = started.elapsed().as_secs_f64();
    summary
}

/// Work of a run, in units that only compare.
fn cost(run: &Run) -> u128 {
    let train = &run.config.train;
    let tokens = (train.steps * train.batch) as u128 * run.longest as u128;
    tokens * run.plan.layers.len() as u128 * (run.longest as u128 + 16 * u128::from(run.plan.width))
}

/// Whether a run is recorded. A record that cannot be used is the failure of its run, and reported when its turn comes.
fn is_recorded(run: &Run, directory: &Path) -> bool {
    directory::recorded(run, &directory.join(record::id(run))).is_ok_and(|record| record.is_some())
}

/// Refuses the unrecorded runs of a shard if those that may run at the same time, the largest ones, do not fit the memory together.
///
/// # Errors
/// They do not fit.
pub fn check_memory(sweep: &Sweep, directory: &Path, shard: Shard, threads: usize) -> Result<(), RunError> {
    let mut sizes = Vec::new();
    for (number, run) in sweep.runs.iter().enumerate() {
        if shard.has(number) && !is_recorded(run, directory) {
            sizes.push((run.bytes(), number));
        }
    }
    sizes.sort_unstable();
    let together = &sizes[sizes.len().saturating_sub(threads.max(1))..];
    let Some((_, largest)) = together.last() else { return Ok(()) };
    let bytes = together.iter().fold(0_u128, |sum, (bytes, _)| sum.saturating_add(*bytes));
    let name = sweep.runs[*largest].plan.outline();
    let what = format!("{} runs at once, the largest number {} (`{name}`),", together.len(), largest + 1);
    Ok(memory::check(what, bytes, None)?)
}

/// Seconds that the unrecorded runs of a shard take at most, from a few steps of each kind of run on one thread. Stages of a
/// curriculum and early stops make it less.
///
/// # Errors
/// A run cannot be started.
pub fn estimate(sweep: &Sweep, directory: &Path, shard: Shard, threads: usize) -> Result<f64, RunError> {
    let mut kinds: Vec<(String, f64)> = Vec::new();
    let mut seconds = 0.0;
    for (number, run) in sweep.runs.iter().enumerate() {
        if !shard.has(number) || is_recorded(run, directory) {
            continue;
        }
        // Runs that differ in nothing that costs time are timed once.
        let train = &run.config.train;
        let kind = format!("{} {} {} {:?}", run.config.stack, run.config.task, train.batch, run.config.model);
        let known = kinds.iter().find(|(known, _)| *known == kind).map(|(_, step)| *step);
        let step = if let Some(step) = known {
            step
        } else {
            let step = seconds_per_step(run)?;
            log::info!("a step of run {}: {:.1} ms", number + 1, 1e3 * step);
            kinds.push((kind, step));
            step
        };
        seconds += step * train.steps as f64;
    }
    Ok(seconds / threads.max(1) as f64)
}

/// Seconds of a step on the task itself, after one to warm up.
fn seconds_per_step(run: &Run) -> Result<f64, RunError> {
    const STEPS: usize = 3;
    let mut config = run.config.clone();
    config.curriculum.clear();
    let run = config.resolve()?;
    let mut trainer = Trainer::new(&run)?;
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

    fn all() -> Shard {
        "1/1".parse().unwrap()
    }

    #[test]
    fn an_unreadable_checkpoint_is_the_failure_of_its_run_alone() {
        let (sweep, directory) = sweep("checkpoint");
        let place = directory.join(record::id(&sweep.runs[1]));
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join(directory::RESUME), b"no checkpoint").unwrap();
        for _ in 0..2 {
            let summary = execute(&sweep, &directory, all(), 1, &|_| true);
            assert_eq!(summary.records.iter().flatten().count(), 3);
            assert!(!summary.interrupted);
            let [(1, error)] = &summary.failed[..] else { panic!("{:?}", summary.failed) };
            assert!(error.to_string().contains("delete it to start the run again"), "{error}");
        }
        fs::remove_file(place.join(directory::RESUME)).unwrap();
        let summary = execute(&sweep, &directory, all(), 1, &|_| true);
        assert_eq!((summary.records.iter().flatten().count(), summary.failed.len()), (4, 0));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn two_sweeps_on_one_directory_both_end_with_all_records() {
        let (sweep, directory) = sweep("two");
        let summaries: Vec<SweepSummary> = std::thread::scope(|scope| {
            let both = [0, 1].map(|_| scope.spawn(|| execute(&sweep, &directory, all(), 2, &|_| true)));
            both.map(|one| one.join().unwrap()).into_iter().collect()
        });
        for summary in &summaries {
            assert!(summary.failed.is_empty() && !summary.interrupted, "{:?}", summary.failed);
            assert_eq!(summary.records.iter().flatten().count(), 4);
        }
        assert_eq!(summaries[0].records, summaries[1].records);
        fs::remove_dir_all(&directory).unwrap();
    }
}
