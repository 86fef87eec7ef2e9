//! `rung sweep FILE`: many training runs, on all cores or on a cluster.

mod slurm;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use rung_train::run::{ExecuteOptions, LockMode, RunError, record};
use rung_train::sweep::slurm::SubmittedJob;
use rung_train::sweep::{self, Shard, SweepConfig, SweepSummary};
use serde_json::json;

use super::device::DeviceOption;
use super::memory::MemoryOption;
use super::train::read_text;
use crate::output::{print, print_json};
use crate::watch::{Interrupt, SweepWatcher, duration_text, record_accuracy_text};

/// Run a grid of training runs, locally or on Slurm.
///
/// Finished runs are skipped and interrupted ones resumed. With `--on slurm` the sweep is submitted as a job array, and the command waits
/// for the records; run again, it finds its job or submits what is missing.
///
/// Exit codes: 0 all runs are recorded (with --no-wait: submitted), 1 some failed, 2 bad input, 130 interrupted (checkpoints were written;
/// Slurm jobs continue).
#[derive(Debug, clap::Args)]
pub struct Sweep {
    /// TOML sweep config: seeds, base, grid, runs.
    file: PathBuf,
    /// Directory of the runs, each in a directory of its own.
    #[arg(long, default_value = "runs", value_name = "DIR")]
    out: PathBuf,
    /// Runs in parallel, one thread each; does not change results [default: all cores; 1 per task on a cluster, and with --device]
    #[arg(long)]
    threads: Option<usize>,
    /// Run only the i-th of k parts, for several machines or jobs.
    #[arg(long, value_name = "i/k", default_value = "1/1", conflicts_with = "on")]
    shard: Shard,
    /// Do not lock runs, for shared file systems without reliable locks. Two processes on one run then both do its work and write the
    /// same record.
    #[arg(long, conflicts_with = "on")]
    no_lock: bool,
    #[command(flatten)]
    cluster: slurm::ClusterOptions,
    /// Check the sweep, list its runs, and stop.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    device: DeviceOption,
    #[command(flatten)]
    memory: MemoryOption,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl Sweep {
    /// Runs the command.
    ///
    /// # Errors
    /// The sweep is not valid.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.memory.apply();
        let text = read_text(&self.file)?;
        let path = || format!("{}", self.file.display());
        let sweep = SweepConfig::read(&text).and_then(|config| config.resolve()).with_context(path)?;
        if self.dry_run {
            return self.list(&sweep);
        }
        if self.threads == Some(0) {
            bail!("--threads: found 0, expected at least 1");
        }
        self.device.check()?;
        std::fs::create_dir_all(&self.out).with_context(|| format!("creating the directory {}", self.out.display()))?;
        if self.cluster.on.is_some() {
            let threads = self.threads.unwrap_or(1);
            return match self.cluster.execute(&sweep, &text, &self.out, (threads, self.device.name()), self.json)? {
                slurm::ClusterOutcome::Submitted => Ok(ExitCode::SUCCESS),
                slurm::ClusterOutcome::Results(summary, job) => self.report(&summary, sweep.runs.len(), job.as_ref()),
            };
        }
        let device = self.device.open()?;
        // Runs share a device other than the native engine, so by default one runs at a time.
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.threads.unwrap_or_else(|| if self.device.is_native() { cores() } else { 1 });
        sweep::check_memory(&sweep, &self.out, self.shard, threads).with_context(path)?;
        let seconds = sweep::estimate(&sweep, &self.out, self.shard, threads, &device)?;
        let run_count = (0..sweep.runs.len()).filter(|run_index| self.shard.contains(*run_index)).count();
        if !self.json {
            let estimate = duration_text(seconds);
            let on_device =
                if self.device.is_native() { String::new() } else { format!(" and device {}", device.name()) };
            print(&format!(
                "{run_count} runs on {threads} threads{on_device}, at most about {estimate}, into {}\n",
                self.out.display()
            ))?;
        }
        let interrupt = Interrupt::install();
        let watcher = SweepWatcher::new(&sweep, self.shard, !self.json);
        let lock_mode = if self.no_lock { LockMode::Shared } else { LockMode::Exclusive };
        let options = ExecuteOptions { lock_mode, device };
        let summary = sweep::execute_with(&sweep, &self.out, self.shard, threads, &options, &|event| {
            watcher.show(&event);
            !interrupt.requested()
        });
        watcher.finish();
        self.report(&summary, run_count, None)
    }

    /// Prints the results of the runs of this shard, `run_count` in number, and the Slurm job if there is one.
    fn report(&self, summary: &SweepSummary, run_count: usize, job: Option<&SubmittedJob>) -> anyhow::Result<ExitCode> {
        const MAX_FAILURES_SHOWN: usize = 20;
        let recorded = summary.records.iter().flatten().count();
        if self.json {
            let runs = summary.records.iter().flatten().map(|record| {
                json!({"id": record.id, "stack": record.config.stack, "task": record.config.task, "seed": record.config.seed,
                       "over": record.stop_reason, "steps": record.steps, "accuracy": record.accuracy})
            });
            let failed = summary
                .failed
                .iter()
                .map(|(run_index, error)| json!({"run": run_index + 1, "reason": error.to_string()}));
            let mut json = json!({
                "runs": run_count,
                "recorded": recorded,
                "recorded_before": summary.already_recorded,
                "interrupted": summary.interrupted,
                "failed": failed.collect::<Vec<_>>(),
                "records": runs.collect::<Vec<_>>(),
            });
            if let Some((seconds, runs)) = summary.pace() {
                json["seconds_per_run"] = json!(seconds);
                json["runs_per_hour"] = json!(runs);
            }
            if self.cluster.on.is_some() {
                json["job"] = json!(job);
            }
            print_json(&json)?;
        } else {
            let mut text = format!(
                "{recorded} of {run_count} recorded, {} of them already before this command\n",
                summary.already_recorded
            );
            text += &pace_text(summary);
            for (run_index, error) in summary.failed.iter().take(MAX_FAILURES_SHOWN) {
                writeln!(text, "run {} failed: {error}", run_index + 1)?;
            }
            if summary.failed.len() > MAX_FAILURES_SHOWN {
                writeln!(text, "and {} more failed", summary.failed.len() - MAX_FAILURES_SHOWN)?;
            }
            let next_step = match self.cluster.on {
                _ if recorded == run_count => "",
                Some(_) if summary.interrupted => "the job continues; the same command waits for it again\n",
                Some(_) => "the same command, without --collect, submits what is missing\n",
                None if summary.failed.is_empty() => "the same command resumes\n",
                None if summary.failed.iter().any(|(_, error)| matches!(error, RunError::File { .. })) => {
                    "stopped, since other runs could not be written either; nothing recorded is lost, and the same command resumes\n"
                }
                None => "",
            };
            text += next_step;
            print(&text)?;
        }
        Ok(match (summary.failed.is_empty(), recorded < run_count) {
            (false, _) => ExitCode::from(1),
            (true, true) => ExitCode::from(130),
            (true, false) => ExitCode::SUCCESS,
        })
    }

    fn list(&self, sweep: &sweep::Sweep) -> anyhow::Result<ExitCode> {
        let runs = sweep.runs.iter().enumerate().filter(|(run_index, _)| self.shard.contains(*run_index));
        if self.json {
            let run = |(run_index, run): (usize, &rung_train::run::Run)| {
                let config = &run.config;
                json!({"run": run_index + 1, "id": record::id(run), "stack": config.stack, "task": config.task, "seed": config.seed, "rate": config.train.rate})
            };
            print_json(&runs.map(run).collect())?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = String::new();
        for (run_index, run) in runs {
            let config = &run.config;
            let (stack, task, seed) = (&config.stack, &config.task, config.seed);
            writeln!(text, "{:4}  {stack}  {task}  seed {seed}  rate {}", run_index + 1, config.train.rate)?;
        }
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Seconds per run and runs per hour as text; empty if no run was finished.
pub fn pace_text(summary: &SweepSummary) -> String {
    summary
        .pace()
        .map_or_else(String::new, |(seconds, runs)| format!("{seconds:.1} s per run, {runs:.0} runs per hour\n"))
}

/// One line about a record.
pub fn record_line(record: &rung_train::run::RunRecord) -> String {
    format!("{}  {} steps  {}", record.id, record.steps, record_accuracy_text(record))
}
