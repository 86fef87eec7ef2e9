//! `rung sweep FILE`: many runs, on all cores or on a cluster, interrupted or not.

mod slurm;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use rung_train::run::Keeping;
use rung_train::sweep::slurm::Ticket;
use rung_train::sweep::{self, Shard, SweepConfig, Tally};
use serde_json::json;

use super::train::read_text;
use crate::output::{print, print_json};
use crate::watch::{Interrupt, SweepWatcher, accuracy_text, duration};

/// Carry out every run of a sweep; what is recorded is skipped, what was interrupted goes on.
///
/// With `--on slurm` the sweep submits itself as a job array and waits for the records; the same command given again finds its job, or
/// submits what is missing.
///
/// Exit codes: 0 all runs are recorded (with --no-wait: submitted), 1 some failed, 2 bad input, 130 interrupted (checkpoints were written;
/// jobs go on).
#[derive(Debug, clap::Args)]
pub struct Sweep {
    /// The sweep as TOML: seeds, [base], [grid], [[runs]].
    file: PathBuf,
    /// Where to keep the runs, each in a directory of its own.
    #[arg(long, default_value = "runs", value_name = "DIR")]
    out: PathBuf,
    /// Runs at the same time; all cores if not given. On a cluster: in each task, and 1 if not given.
    #[arg(long)]
    threads: Option<usize>,
    /// Only the i-th of k parts, for several machines or jobs.
    #[arg(long, value_name = "i/k", default_value = "1/1", conflicts_with = "on")]
    shard: Shard,
    /// Do not lock runs: for shared file systems, whose locks may be missing or outlive a machine. Two processes at one run then do its
    /// work twice, and record the same.
    #[arg(long, conflicts_with = "on")]
    no_lock: bool,
    #[command(flatten)]
    cluster: slurm::Cluster,
    /// Check the sweep, list its runs, and stop.
    #[arg(long)]
    dry_run: bool,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl Sweep {
    /// Runs it.
    ///
    /// # Errors
    /// The sweep makes no sense.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let text = read_text(&self.file)?;
        let place = || format!("{}", self.file.display());
        let sweep = SweepConfig::read(&text).and_then(|config| config.resolve()).with_context(place)?;
        if self.dry_run {
            return self.list(&sweep);
        }
        if self.threads == Some(0) {
            bail!("--threads: found 0, expected at least 1");
        }
        std::fs::create_dir_all(&self.out).with_context(|| format!("making the directory {}", self.out.display()))?;
        if self.cluster.on.is_some() {
            let threads = self.threads.unwrap_or(1);
            return match self.cluster.carry_out(&sweep, &text, &self.out, threads, self.json)? {
                slurm::Ending::Submitted => Ok(ExitCode::SUCCESS),
                slurm::Ending::Collected(tally, ticket) => self.tell(&tally, sweep.runs.len(), ticket.as_ref()),
            };
        }
        let threads = self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let seconds = sweep::estimate(&sweep, &self.out, self.shard, threads)?;
        let mine = (0..sweep.runs.len()).filter(|number| self.shard.has(*number)).count();
        if !self.json {
            let least = duration(seconds);
            print(&format!("{mine} runs on {threads} threads, at most about {least}, into {}\n", self.out.display()))?;
        }
        let interrupt = Interrupt::install();
        let watcher = SweepWatcher::new(&sweep, self.shard, !self.json);
        let keeping = if self.no_lock { Keeping::Shared } else { Keeping::Locked };
        let tally = sweep::carry_out_kept(&sweep, &self.out, self.shard, threads, keeping, &|event| {
            watcher.show(&event);
            !interrupt.seen()
        });
        watcher.finish();
        self.tell(&tally, mine, None)
    }

    /// Says what came of `mine` runs, and of which job, if that is known.
    fn tell(&self, tally: &Tally, mine: usize, job: Option<&Ticket>) -> anyhow::Result<ExitCode> {
        /// More reasons than this are seldom other reasons.
        const TOLD: usize = 20;
        let recorded = tally.records.iter().flatten().count();
        if self.json {
            let runs = tally.records.iter().flatten().map(|record| {
                json!({"id": record.id, "stack": record.config.stack, "task": record.config.task, "seed": record.config.seed,
                       "over": record.over, "steps": record.steps, "accuracy": record.accuracy})
            });
            let failed =
                tally.failed.iter().map(|(number, error)| json!({"run": number + 1, "reason": error.to_string()}));
            let mut told = json!({
                "runs": mine,
                "recorded": recorded,
                "recorded_before": tally.known,
                "interrupted": tally.interrupted,
                "failed": failed.collect::<Vec<_>>(),
                "records": runs.collect::<Vec<_>>(),
            });
            if let Some((seconds, runs)) = tally.pace() {
                told["seconds_per_run"] = json!(seconds);
                told["runs_per_hour"] = json!(runs);
            }
            if self.cluster.on.is_some() {
                told["job"] = json!(job);
            }
            print_json(&told)?;
        } else {
            let mut text = format!("{recorded} of {mine} recorded, {} of them before\n", tally.known);
            text += &pace(tally);
            for (number, error) in tally.failed.iter().take(TOLD) {
                writeln!(text, "run {} failed: {error}", number + 1)?;
            }
            if tally.failed.len() > TOLD {
                writeln!(text, "and {} more failed", tally.failed.len() - TOLD)?;
            }
            let advice = match self.cluster.on {
                _ if recorded == mine => "",
                Some(_) if tally.interrupted => "the job goes on; the same command waits for it again\n",
                Some(_) => "the same command, without --collect, submits what is missing\n",
                None if tally.failed.is_empty() => "the same command goes on where this one stopped\n",
                None => "",
            };
            text += advice;
            print(&text)?;
        }
        Ok(match (tally.failed.is_empty(), recorded < mine) {
            (false, _) => ExitCode::from(1),
            (true, true) => ExitCode::from(130),
            (true, false) => ExitCode::SUCCESS,
        })
    }

    fn list(&self, sweep: &sweep::Sweep) -> anyhow::Result<ExitCode> {
        let mine = sweep.runs.iter().enumerate().filter(|(number, _)| self.shard.has(*number));
        let mut text = String::new();
        for (number, run) in mine {
            let config = &run.config;
            let (stack, task, seed) = (&config.stack, &config.task, config.seed);
            writeln!(text, "{:4}  {stack}  {task}  seed {seed}  rate {}", number + 1, config.train.rate)?;
        }
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// How fast it went, in a line; nothing if nothing was finished.
pub fn pace(tally: &Tally) -> String {
    tally.pace().map_or_else(String::new, |(seconds, runs)| format!("{seconds:.1} s a run, {runs:.0} runs an hour\n"))
}

/// One line for a record.
pub fn line(record: &rung_train::run::Record) -> String {
    format!("{}  {} steps  {}", record.id, record.steps, accuracy_text(&record.accuracy))
}
