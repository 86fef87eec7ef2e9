//! `rung sweep FILE --on slurm`: submit, wait, collect.
//!
//! The one who waits only looks: at the records, and at whether Slurm still has the job. It may be stopped, started again on another
//! machine, or find that the controller does not answer for a while; the job does not depend on it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use rung_train::run::{place, record};
use rung_train::sweep::slurm::{Job, Queued, Request, Ticket, most_tasks};
use rung_train::sweep::{Event, Shard, Sweep, Tally};
use serde_json::{Value, json};

use crate::output::{print, print_json};
use crate::watch::{Interrupt, SweepWatcher};

/// How a sweep goes to other machines.
#[derive(Debug, clap::Args)]
pub struct Cluster {
    /// Submit the sweep as a job array instead of running it here. --out must be on a file system that the nodes share.
    #[arg(long, value_enum, value_name = "WHERE")]
    pub on: Option<Where>,
    /// Tasks of the array, each a shard of the runs; one for each run if not given, or as many as Slurm allows.
    #[arg(long, value_name = "K", requires = "on")]
    tasks: Option<usize>,
    /// An option for sbatch, such as --sbatch=--time=8:00:00; may be given several times.
    #[arg(long, value_name = "OPTION", requires = "on", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// Submit and leave.
    #[arg(long, requires = "on")]
    no_wait: bool,
    /// Wait for a job that was submitted and tell what came of it; never submit.
    #[arg(long, requires = "on", conflicts_with_all = ["no_wait", "tasks", "sbatch"])]
    collect: bool,
}

/// Where else a sweep can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Where {
    /// A cluster under Slurm.
    Slurm,
}

/// What came of it.
pub enum Ending {
    /// A job is under way, and nobody waits for it.
    Submitted,
    /// Every run is recorded, or nothing works on those that are not. The last job, if known.
    Collected(Tally, Option<Ticket>),
}

/// The records as they come in.
struct Board<'a> {
    sweep: &'a Sweep,
    out: &'a Path,
    tally: Tally,
}

impl Cluster {
    /// Submits what is not recorded, unless a job is at it, and waits for the records.
    ///
    /// # Errors
    /// Slurm is not there or refuses; a record cannot be read.
    pub fn carry_out(
        &self,
        sweep: &Sweep,
        text: &str,
        out: &Path,
        threads: usize,
        json: bool,
    ) -> anyhow::Result<Ending> {
        let job = Job::of(sweep, out)?;
        let records = sweep.runs.iter().map(|_| None).collect();
        let mut board = Board { sweep, out, tally: Tally { records, ..Tally::default() } };
        let watcher = SweepWatcher::new(sweep, Shard::WHOLE, !json);
        board.look(&mut |number, record| watcher.show(&Event::Known(number, record)))?;
        board.tally.known = board.tally.records.iter().flatten().count();
        let missing = board.missing();
        if missing.is_empty() {
            watcher.finish();
            return Ok(Ending::Collected(board.tally, job.tickets().pop()));
        }
        let queued = job.at_work(job.queued()?, &missing);
        let ticket = if !queued.is_empty() {
            job.tickets().pop()
        } else if self.collect {
            watcher.finish();
            return Ok(board.give_up(&job, job.tickets().pop()));
        } else {
            Some(self.submit(&job, sweep, text, threads, &missing)?)
        };
        let number = ticket.as_ref().map_or("?", |ticket| &ticket.job);
        let verb = if queued.is_empty() { "submitted" } else { "found" };
        if self.no_wait {
            watcher.finish();
            leave(json, verb, &job, ticket.as_ref(), &board.tally)?;
            return Ok(Ending::Submitted);
        }
        if !json {
            let (left, place) = (missing.len(), job.place.display());
            print(&format!("{verb} job {number}, {}, for {left} runs; its logs are in {place}\n", job.name))?;
        }
        let stopped = wait(&job, &mut board, &watcher)?;
        watcher.finish();
        if stopped {
            board.tally.interrupted = true;
            return Ok(Ending::Collected(board.tally, ticket));
        }
        Ok(board.give_up(&job, ticket))
    }

    fn submit(
        &self,
        job: &Job,
        sweep: &Sweep,
        text: &str,
        threads: usize,
        missing: &[usize],
    ) -> anyhow::Result<Ticket> {
        let runs = sweep.runs.len();
        let most = most_tasks().unwrap_or(usize::MAX);
        let tasks = match self.tasks {
            Some(0) => bail!("--tasks: found 0, expected at least 1"),
            Some(tasks) if tasks > most => {
                bail!("--tasks: found {tasks}, expected at most {most}, one below this Slurm's MaxArraySize")
            }
            // More tasks than runs would have nothing to do.
            Some(tasks) => tasks.min(runs),
            None => runs.min(most).max(1),
        };
        let program = std::env::current_exe()?;
        let request = Request { text, program: &program, tasks, threads, options: &self.sbatch };
        Ok(job.submit(&request, missing)?)
    }
}

/// What `--no-wait` says.
fn leave(json: bool, verb: &str, job: &Job, ticket: Option<&Ticket>, tally: &Tally) -> anyhow::Result<()> {
    let (recorded, runs) = (tally.known, tally.records.len());
    if json {
        return print_json(&json!({"status": verb, "runs": runs, "recorded": recorded, "job": ticket}));
    }
    let number = ticket.map_or("?", |ticket| &ticket.job);
    print(&format!(
        "{verb} job {number}, {}; {recorded} of {runs} recorded\n\
         the same command with --collect instead of --no-wait waits for the rest; `scancel --name={}` ends it\n",
        job.name, job.name
    ))
}

impl Board<'_> {
    /// Runs without a record, by number.
    fn missing(&self) -> Vec<usize> {
        let records = self.tally.records.iter().enumerate();
        records.filter(|(_, record)| record.is_none()).map(|(number, _)| number).collect()
    }

    /// Takes in what was recorded since the last look.
    fn look(&mut self, show: &mut dyn FnMut(usize, &rung_train::run::Record)) -> anyhow::Result<()> {
        for number in self.missing() {
            let run = &self.sweep.runs[number];
            let directory = self.out.join(record::id(run));
            // Network file systems remember for a while that a file was not there; opening its directory makes them ask.
            let _ = std::fs::read_dir(&directory);
            if let Some(record) = place::recorded(run, &directory)? {
                show(number, &record);
                self.tally.records[number] = Some(record);
            }
        }
        Ok(())
    }

    /// Nobody works on the sweep any more: what is missing has failed.
    fn give_up(mut self, job: &Job, ticket: Option<Ticket>) -> Ending {
        let missing = self.missing().into_iter();
        self.tally.failed = missing.map(|number| (number, job.why_missing(ticket.as_ref(), number))).collect();
        Ending::Collected(self.tally, ticket)
    }
}

/// Waits until every run is recorded or Slurm has done with the job (false), or somebody says stop (true).
fn wait(job: &Job, board: &mut Board<'_>, watcher: &SweepWatcher) -> anyhow::Result<bool> {
    /// Between two questions to the controller, which many people ask.
    const LONGEST: Duration = Duration::from_secs(10);
    let interrupt = Interrupt::saying("leaving; the job goes on");
    let (mut pause, mut silent) = (Duration::from_millis(500), false);
    loop {
        let started = Instant::now();
        while started.elapsed() < pause {
            if interrupt.seen() {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        pause = (pause * 3 / 2).min(LONGEST);
        // Asked before the look: a task that is gone by now has written its records.
        let queued = job.queued();
        let out = board.out;
        board.look(&mut |number, record| {
            let seconds = seconds(&out.join(&record.id).join(place::TIMING));
            watcher.show(&Event::Recorded(number, record, seconds));
        })?;
        let missing = board.missing();
        if missing.is_empty() {
            return Ok(false);
        }
        match queued.map(|tasks| job.at_work(tasks, &missing)) {
            Ok(tasks) if tasks.is_empty() => return Ok(false),
            Ok(tasks) => {
                silent = false;
                watcher.say(states(&tasks));
            }
            // The tasks go on without their controller, and so does the wait.
            Err(error) => {
                if !silent && !interrupt.seen() {
                    eprintln!("{error}\nasking again; the records count, whoever is silent");
                }
                silent = true;
            }
        }
    }
}

/// "2 running, 5 pending (Resources)".
fn states(tasks: &[Queued]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for task in tasks {
        let state = task.state.to_lowercase();
        let name = if state == "pending" { format!("{state} ({})", task.reason) } else { state };
        *counts.entry(name).or_default() += 1;
    }
    counts.iter().map(|(state, count)| format!("{count} {state}")).collect::<Vec<_>>().join(", ")
}

/// Seconds of work that a run says it took.
fn seconds(path: &Path) -> f64 {
    let timing = std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    timing.and_then(|timing| timing["seconds"].as_f64()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_counted() {
        let task = |state: &str, reason: &str| Queued { id: "1".into(), state: state.into(), reason: reason.into() };
        let tasks = [task("PENDING", "Resources"), task("RUNNING", "None"), task("PENDING", "Resources")];
        assert_eq!(states(&tasks), "2 pending (Resources), 1 running");
    }
}
