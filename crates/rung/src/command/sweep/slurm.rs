//! `rung sweep FILE --on slurm`: submit, wait, collect.
//!
//! The waiting process only polls: the records, and whether Slurm still has the job. It may be stopped, started again on another machine,
//! or find that the controller does not answer for a while; the job does not depend on it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use rung_train::run::{directory, record};
use rung_train::sweep::slurm::{JobArray, QueuedTask, SlurmRequest, SubmittedJob, max_array_tasks};
use rung_train::sweep::{Event, Shard, Sweep, SweepSummary};
use serde_json::{Value, json};

use crate::output::{print, print_json, print_note};
use crate::watch::{Interrupt, SweepWatcher};

/// Where and how a sweep is submitted.
#[derive(Debug, clap::Args)]
pub struct ClusterOptions {
    /// Submit the sweep as a job array instead of running it here. --out must be on a file system that the nodes share.
    #[arg(long, value_enum, value_name = "WHERE")]
    pub on: Option<Scheduler>,
    /// Number of array tasks, each a shard of the runs [default: one per run, at most Slurm's MaxArraySize]
    #[arg(long, value_name = "K", requires = "on")]
    tasks: Option<usize>,
    /// GPUs of each array task, for --device.
    #[arg(long, value_name = "N", requires = "on", value_parser = clap::value_parser!(u32).range(1..))]
    gpus_per_task: Option<u32>,
    /// Option for sbatch, such as --sbatch=--time=8:00:00; may be given several times.
    #[arg(long, value_name = "OPTION", requires = "on", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// Submit and exit without waiting.
    #[arg(long, requires = "on")]
    no_wait: bool,
    /// Wait for a submitted job and report its results; never submit.
    #[arg(long, requires = "on", conflicts_with_all = ["no_wait", "tasks", "gpus_per_task", "sbatch"])]
    collect: bool,
}

/// Cluster schedulers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Scheduler {
    /// A cluster under Slurm.
    Slurm,
}

/// The result of running a sweep on a cluster.
pub enum ClusterOutcome {
    /// A job is queued or running; the command does not wait for it.
    Submitted,
    /// What is recorded when the command ends: after all runs, after the last job, or at Ctrl-C. With the last job, if known.
    Results(SweepSummary, Option<SubmittedJob>),
}

/// Reads the records of a sweep as they appear.
struct RecordPoller<'a> {
    sweep: &'a Sweep,
    out: &'a Path,
    summary: SweepSummary,
}

impl ClusterOptions {
    /// Submits the runs without a record, unless a job already works on them, and waits for the records. `sweep_toml` is the text of the
    /// sweep config. Each array task has `threads` threads and runs on `device`, which this machine need not have.
    ///
    /// # Errors
    /// Slurm is not installed or rejects the job; or a record cannot be read.
    pub fn execute(
        &self,
        sweep: &Sweep,
        sweep_toml: &str,
        out: &Path,
        (threads, device): (usize, &str),
        json: bool,
    ) -> anyhow::Result<ClusterOutcome> {
        let job = JobArray::new(sweep, out)?;
        let records = sweep.runs.iter().map(|_| None).collect();
        let mut poller = RecordPoller { sweep, out, summary: SweepSummary { records, ..SweepSummary::default() } };
        let watcher = SweepWatcher::new(sweep, Shard::ALL, !json);
        poller.poll(&mut |run_index, record| watcher.show(&Event::AlreadyRecorded { run: run_index, record }))?;
        poller.summary.already_recorded = poller.summary.records.iter().flatten().count();
        let missing = poller.missing();
        if missing.is_empty() {
            watcher.finish();
            return Ok(ClusterOutcome::Results(poller.summary, job.submitted_jobs().pop()));
        }
        let queued = job.unfinished_tasks(job.queued_tasks()?, &missing);
        let submitted_job = if !queued.is_empty() {
            job.submitted_jobs().pop()
        } else if self.collect {
            watcher.finish();
            return Ok(poller.fail_missing(&job, job.submitted_jobs().pop()));
        } else {
            Some(self.submit(&job, sweep, sweep_toml, (threads, device), &missing)?)
        };
        let job_id = submitted_job.as_ref().map_or("?", |submitted_job| &submitted_job.job_id);
        let verb = if queued.is_empty() { "submitted" } else { "found" };
        if self.no_wait {
            watcher.finish();
            report_submitted(json, verb, &job, submitted_job.as_ref(), &poller.summary)?;
            return Ok(ClusterOutcome::Submitted);
        }
        if !json {
            let (missing_runs, directory) = (missing.len(), job.directory.display());
            print(&format!(
                "{verb} job {job_id}, {}, for {missing_runs} runs; its logs are in {directory}\n",
                job.name
            ))?;
        }
        let interrupted = wait(&job, &mut poller, &watcher)?;
        watcher.finish();
        if interrupted {
            poller.summary.interrupted = true;
            return Ok(ClusterOutcome::Results(poller.summary, submitted_job));
        }
        Ok(poller.fail_missing(&job, submitted_job))
    }

    fn submit(
        &self,
        job: &JobArray,
        sweep: &Sweep,
        sweep_toml: &str,
        (threads, device): (usize, &str),
        missing: &[usize],
    ) -> anyhow::Result<SubmittedJob> {
        let runs = sweep.runs.len();
        let max = max_array_tasks().unwrap_or(usize::MAX);
        let tasks = match self.tasks {
            Some(0) => bail!("--tasks: found 0, expected at least 1"),
            Some(tasks) if tasks > max => {
                bail!("--tasks: found {tasks}, expected at most {max}, one below this Slurm's MaxArraySize")
            }
            // More tasks than runs would have nothing to do.
            Some(tasks) => tasks.min(runs),
            None => runs.min(max).max(1),
        };
        let program = match crate::call::context().and_then(|context| context.executable()) {
            Some(program) => program,
            None => std::env::current_exe()?,
        };
        let (gpus, options) = (self.gpus_per_task, &self.sbatch);
        let request = SlurmRequest { sweep_toml, program: &program, tasks, threads, device, gpus, options };
        Ok(job.submit(&request, missing)?)
    }
}

/// Prints the result of `--no-wait`.
fn report_submitted(
    json: bool,
    verb: &str,
    job: &JobArray,
    submitted_job: Option<&SubmittedJob>,
    summary: &SweepSummary,
) -> anyhow::Result<()> {
    let (recorded, runs) = (summary.already_recorded, summary.records.len());
    if json {
        return print_json(&json!({"status": verb, "runs": runs, "recorded": recorded, "job": submitted_job}));
    }
    let job_id = submitted_job.map_or("?", |submitted_job| &submitted_job.job_id);
    print(&format!(
        "{verb} job {job_id}, {}; {recorded} of {runs} recorded\n\
         the same command with --collect instead of --no-wait waits for the rest; `scancel --name={}` ends it\n",
        job.name, job.name
    ))
}

impl RecordPoller<'_> {
    /// Indices of the runs without a record.
    fn missing(&self) -> Vec<usize> {
        let records = self.summary.records.iter().enumerate();
        records.filter(|(_, record)| record.is_none()).map(|(run_index, _)| run_index).collect()
    }

    /// Reads the records written since the last poll.
    fn poll(&mut self, show: &mut dyn FnMut(usize, &rung_train::run::RunRecord)) -> anyhow::Result<()> {
        for run_index in self.missing() {
            let run = &self.sweep.runs[run_index];
            let directory = self.out.join(record::id(run));
            // Network file systems cache that a file is missing; opening its directory refreshes the cache.
            let _ = std::fs::read_dir(&directory);
            if let Some(record) = directory::find_record(run, &directory)? {
                show(run_index, &record);
                self.summary.records[run_index] = Some(record);
            }
        }
        Ok(())
    }

    /// No job works on the sweep any more: runs without a record have failed.
    fn fail_missing(mut self, job: &JobArray, submitted_job: Option<SubmittedJob>) -> ClusterOutcome {
        let missing = self.missing().into_iter();
        self.summary.failed =
            missing.map(|run_index| (run_index, job.missing_record_error(submitted_job.as_ref(), run_index))).collect();
        ClusterOutcome::Results(self.summary, submitted_job)
    }
}

/// Waits until every run is recorded or Slurm no longer has the job (false), or until Ctrl-C (true).
fn wait(job: &JobArray, poller: &mut RecordPoller<'_>, watcher: &SweepWatcher) -> anyhow::Result<bool> {
    /// The longest pause between two requests to the controller.
    const MAX_PAUSE: Duration = Duration::from_secs(10);
    let interrupt = Interrupt::with_message("leaving; the job continues");
    let (mut pause, mut reported_error) = (Duration::from_millis(500), false);
    loop {
        let started = Instant::now();
        while started.elapsed() < pause {
            if interrupt.requested() {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        pause = (pause * 3 / 2).min(MAX_PAUSE);
        // The queue is read before the records: a task that has left the queue has written its records.
        let queued = job.queued_tasks();
        let out = poller.out;
        poller.poll(&mut |run_index, record| {
            let seconds = read_seconds(&out.join(&record.id).join(directory::TIMING_FILE));
            watcher.show(&Event::Recorded { run: run_index, record, seconds });
        })?;
        let missing = poller.missing();
        if missing.is_empty() {
            return Ok(false);
        }
        match queued.map(|tasks| job.unfinished_tasks(tasks, &missing)) {
            Ok(tasks) if tasks.is_empty() => return Ok(false),
            Ok(tasks) => {
                reported_error = false;
                watcher.set_message(count_states(&tasks));
            }
            // The tasks continue without their controller, so the wait continues too.
            Err(error) => {
                if !reported_error && !interrupt.requested() {
                    print_note(&format!("{error}\ntrying again; records are still read from the file system"));
                }
                reported_error = true;
            }
        }
    }
}

/// Counts tasks by state: "2 running, 5 pending (Resources)".
fn count_states(tasks: &[QueuedTask]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for task in tasks {
        let state = task.state.to_lowercase();
        let name = if state == "pending" { format!("{state} ({})", task.reason) } else { state };
        *counts.entry(name).or_default() += 1;
    }
    counts.iter().map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>().join(", ")
}

/// The duration of a run in seconds, from its timing file.
fn read_seconds(path: &Path) -> f64 {
    let timing = std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    timing.and_then(|timing| timing["seconds"].as_f64()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_counted_by_state() {
        let task =
            |state: &str, reason: &str| QueuedTask { id: "1".into(), state: state.into(), reason: reason.into() };
        let tasks = [task("PENDING", "Resources"), task("RUNNING", "None"), task("PENDING", "Resources")];
        assert_eq!(count_states(&tasks), "2 pending (Resources), 1 running");
    }
}
