//! A sweep as a job array of Slurm.
//!
//! ```text
//! OUT/slurm/rung-HASH/sweep.toml   the sweep as it was submitted; what happens to the user's file later changes nothing
//!                     job.sh       what every task runs: rung sweep sweep.toml --shard TASK/TASKS
//!                     jobs.json    every job: its number, and its tasks; tells what a queued task is for, and which log to read
//!                     12-3.log     what task 3 of job 12 said, in all its starts
//! OUT/RUN/record.json ..           as in any sweep
//! ```
//!
//! Nothing about the state of a sweep is kept but its records. Whether a job is under way is asked of Slurm by the job's name, a
//! hash of the runs and of the directory, so the same command finds its job again from anywhere, also when it was killed between
//! submitting and writing that down. A task that is requeued, or submitted again, skips what is recorded and goes on from
//! checkpoints. Files are renamed into place and nothing is locked, so any file system that the nodes share will do.

use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::list::Sweep;
use crate::run::{RunError, record};
use rung_nn::file::write_atomically;
use rung_theory::task::splitmix64;

const JOBS: &str = "jobs.json";

/// A sweep's place on a cluster.
#[derive(Debug)]
pub struct Job {
    /// What Slurm calls it.
    pub name: String,
    /// Where its files are, from the root.
    pub place: PathBuf,
    out: PathBuf,
}

/// A job that was submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobHandle {
    /// Its number.
    pub job: String,
    /// Parts that the sweep was divided into; those with nothing left to do were not submitted.
    pub tasks: usize,
}

/// A task that Slurm has not done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedTask {
    /// Its number: job, `_` and task.
    pub id: String,
    /// `PENDING`, `RUNNING` and so on.
    pub state: String,
    /// Why it is pending.
    pub reason: String,
}

/// How to submit.
#[derive(Clone, Debug)]
pub struct SlurmRequest<'a> {
    /// The sweep's text.
    pub text: &'a str,
    /// The program, from the root.
    pub program: &'a Path,
    /// Parts to divide the sweep into.
    pub tasks: usize,
    /// Threads of each task.
    pub threads: usize,
    /// More options of `sbatch`; they go before ours.
    pub options: &'a [String],
}

impl Job {
    /// The job of a sweep whose records go to `out`, which exists.
    ///
    /// # Errors
    /// The directory cannot be found, or has a name that cannot be passed to Slurm.
    pub fn of(sweep: &Sweep, out: &Path) -> Result<Self, RunError> {
        let out = out.canonicalize().map_err(|error| RunError::file(out, error))?;
        let path = plain(&out)?;
        let ids = sweep.runs.iter().flat_map(|run| record::id(run).into_bytes());
        let hash = ids.chain(path.bytes()).fold(0, |hash, byte| splitmix64(hash ^ u64::from(byte)));
        let name = format!("rung-{:012x}", hash & 0xFFFF_FFFF_FFFF);
        Ok(Self { place: out.join("slurm").join(&name), name, out })
    }

    /// What Slurm has not done with.
    ///
    /// # Errors
    /// `squeue` is not there or refuses.
    pub fn queued(&self) -> Result<Vec<QueuedTask>, RunError> {
        let name = format!("--name={}", self.name);
        let text = ask("squeue", &["--me", "--noheader", "--array", &name, "--format=%i|%T|%r"])?;
        Ok(text.lines().filter_map(queued_task).collect())
    }

    /// Submits the parts of a sweep that have runs in `missing`, by number.
    ///
    /// # Errors
    /// A file cannot be written, or `sbatch` is not there or refuses.
    pub fn submit(&self, request: &SlurmRequest<'_>, missing: &[usize]) -> Result<JobHandle, RunError> {
        std::fs::create_dir_all(&self.place).map_err(|error| RunError::file(&self.place, error))?;
        let (sweep, script) = (self.place.join("sweep.toml"), self.place.join("job.sh"));
        let keep = |path: &Path, text: &str| write_atomically(path, text.as_bytes()).map_err(RunError::write);
        keep(&sweep, request.text)?;
        keep(&script, &self.script(request, &sweep)?)?;
        let mut arguments = vec![
            "--parsable".to_owned(),
            format!("--job-name={}", self.name),
            format!("--array={}", array(missing, request.tasks)),
            format!("--cpus-per-task={}", request.threads),
            // A node that fails gives its tasks back; each start adds to the log of the one before.
            "--requeue".to_owned(),
            "--open-mode=append".to_owned(),
            format!("--output={}/%A-%a.log", plain(&self.place)?.replace('%', "%%")),
        ];
        arguments.extend_from_slice(request.options);
        arguments.push(plain(&script)?.to_owned());
        let answer = ask("sbatch", &arguments)?;
        let job = answer.trim().split(';').next().unwrap_or_default().to_owned();
        if job.is_empty() || !job.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(command_failed(
                "sbatch",
                format!("found the answer `{:.200}`, expected the number of a job", answer.trim()),
            ));
        }
        let ticket = JobHandle { job, tasks: request.tasks };
        let mut tickets = self.submitted_jobs();
        // A controller that forgot a job gives its number away again.
        tickets.retain(|known| known.job != ticket.job);
        tickets.push(ticket.clone());
        keep(&self.place.join(JOBS), &(serde_json::to_string(&tickets).unwrap_or_default() + "\n"))?;
        Ok(ticket)
    }

    /// The jobs that were submitted, the last one last, as far as that was written down.
    pub fn submitted_jobs(&self) -> Vec<JobHandle> {
        let text = std::fs::read_to_string(self.place.join(JOBS)).unwrap_or_default();
        let mut tickets: Vec<JobHandle> = serde_json::from_str(&text).unwrap_or_default();
        tickets.retain(|ticket| ticket.tasks > 0);
        tickets
    }

    /// The queued tasks that may still record one of these runs. A controller that was killed may take tasks for running which are
    /// long over; those are not waited for.
    pub fn at_work(&self, queued: Vec<QueuedTask>, missing: &[usize]) -> Vec<QueuedTask> {
        let tickets = self.submitted_jobs();
        let may_help = |queued: &QueuedTask| {
            let (job, task) = queued.id.split_once('_').unwrap_or((&queued.id, ""));
            let known = tickets.iter().find(|ticket| ticket.job == job).zip(task.parse::<usize>().ok());
            known.is_none_or(|(ticket, task)| missing.iter().any(|number| number % ticket.tasks + 1 == task))
        };
        queued.into_iter().filter(may_help).collect()
    }

    /// Why a run has no record though its job is gone: what the log of its task says last.
    pub fn why_missing(&self, ticket: Option<&JobHandle>, number: usize) -> RunError {
        let Some(ticket) = ticket else {
            return RunError::file(&self.place, "no record, and no job was submitted");
        };
        let path = self.place.join(format!("{}-{}.log", ticket.job, number % ticket.tasks + 1));
        let reason = match tail(&path) {
            Ok(text) => last_word(&text, number),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                "the task left no log; it was ended before it started, or its node does not see this directory"
                    .to_owned()
            }
            Err(error) => error.to_string(),
        };
        RunError::file(path, reason)
    }

    fn script(&self, request: &SlurmRequest<'_>, sweep: &Path) -> Result<String, RunError> {
        let [program, sweep, out] = [request.program, sweep, &self.out].map(|path| plain(path).map(quoted));
        Ok(format!(
            "#!/bin/sh\n\
             # One part of a sweep. What is recorded is skipped, what was interrupted goes on, so it may run any number of times.\n\
             exec {} sweep {} --out {} --shard \"$SLURM_ARRAY_TASK_ID/{}\" --threads {} --no-lock\n",
            program?, sweep?, out?, request.tasks, request.threads
        ))
    }
}

/// The most tasks of an array, if Slurm says: its numbers run from 1 to one below its `MaxArraySize`.
pub fn most_tasks() -> Option<usize> {
    largest_array(&ask("scontrol", &["show", "config"]).ok()?)
}

fn largest_array(text: &str) -> Option<usize> {
    let line = text.lines().find(|line| line.trim_start().starts_with("MaxArraySize"))?;
    line.split_once('=')?.1.trim().parse::<usize>().ok()?.checked_sub(1)
}

fn queued_task(line: &str) -> Option<QueuedTask> {
    let mut parts = line.trim().splitn(3, '|').map(str::to_owned);
    Some(QueuedTask { id: parts.next()?, state: parts.next()?, reason: parts.next()? })
}

/// The tasks that these runs fall to, as `--array` has it: `1-3,7`.
fn array(missing: &[usize], tasks: usize) -> String {
    /// An argument of a command has an end; beyond this all tasks are submitted, and those with nothing to do end at once.
    const LONGEST: usize = 100_000;
    let mut numbers: Vec<usize> = missing.iter().map(|number| number % tasks + 1).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let ranges = numbers.chunk_by(|a, b| a + 1 == *b).map(|range| match range {
        [one] => one.to_string(),
        _ => format!("{}-{}", range[0], range[range.len() - 1]),
    });
    let text = ranges.collect::<Vec<_>>().join(",");
    if text.len() > LONGEST { format!("1-{tasks}") } else { text }
}

/// Runs one of Slurm's commands and returns what it says.
fn ask(program: &str, arguments: &[impl AsRef<std::ffi::OsStr>]) -> Result<String, RunError> {
    let output = Command::new(program).args(arguments).output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => command_failed(program, "found no such program on the PATH, expected Slurm's commands"),
        _ => command_failed(program, error),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let words = if words.trim().is_empty() { output.status.to_string() } else { words.trim().to_owned() };
    Err(command_failed(program, format!("refused: {words:.2000}")))
}

fn command_failed(program: &str, reason: impl std::fmt::Display) -> RunError {
    RunError::Text { place: program.to_owned(), reason: reason.to_string() }
}

/// A path as text that survives Slurm's patterns and a line of a script.
fn plain(path: &Path) -> Result<&str, RunError> {
    let text = path.to_str().filter(|text| !text.contains(|letter: char| letter == '\\' || letter.is_control()));
    text.ok_or_else(|| {
        RunError::file(path, "found a path with backslashes, line breaks or bytes that are no text, expected none")
    })
}

/// One word of a shell's line.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The end of a log.
fn tail(path: &Path) -> std::io::Result<String> {
    const MOST: u64 = 1 << 16;
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MOST)))?;
    let mut bytes = Vec::new();
    file.take(MOST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What a log says about a run, or else its last line.
fn last_word(log: &str, number: usize) -> String {
    let about = format!("run {} failed: ", number + 1);
    let reason = log.lines().rev().find_map(|line| line.strip_prefix(&about));
    let last = || log.lines().rev().map(str::trim).find(|line| !line.is_empty());
    format!("{:.500}", reason.or_else(last).unwrap_or("the task said nothing"))
}

#[cfg(test)]
mod tests {
    use super::super::{Shard, SweepConfig};
    use super::*;

    #[test]
    fn arrays_name_the_shards_that_have_something_left() {
        assert_eq!(array(&[0, 1, 2, 6], 8), "1-3,7");
        assert_eq!(array(&[0, 4, 8, 9], 4), "1-2");
        assert_eq!(array(&[5], 1), "1");
        let (many, tasks) = ((0..90_000).step_by(2).collect::<Vec<_>>(), 90_000);
        assert_eq!(array(&many, tasks), "1-90000");
        for number in 0..40 {
            let shard: Shard = format!("{}/7", array(&[number], 7)).parse().unwrap();
            assert!(shard.has(number));
        }
    }

    #[test]
    fn slurm_is_understood() {
        let found = queued_task("12_3|PENDING|Resources|or so\n").unwrap();
        assert_eq!(
            (found.id.as_str(), found.state.as_str(), found.reason.as_str()),
            ("12_3", "PENDING", "Resources|or so")
        );
        assert_eq!(queued_task("nonsense"), None);
        assert_eq!(largest_array("A = 1\nMaxArraySize            = 1001\nMaxDBDMsgs = 5\n"), Some(1000));
        assert_eq!(largest_array("MaxArraySize = 0"), None);
        assert_eq!(largest_array("nothing of the kind"), None);
    }

    #[test]
    fn only_tasks_with_missing_runs_are_waited_for() {
        let place = std::env::temp_dir().join(format!("rung-jobs-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let job = Job { name: "rung-0".to_owned(), place: place.clone(), out: place.clone() };
        let queue = |ids: &[&str]| -> Vec<QueuedTask> {
            ids.iter().map(|id| queued_task(&format!("{id}|RUNNING|None")).unwrap()).collect()
        };
        let at_work = |ids: &[&str], missing: &[usize]| job.at_work(queue(ids), missing);
        // As long as nothing is written down any task may help.
        assert_eq!(at_work(&["5_2", "9_1"], &[0]), queue(&["5_2", "9_1"]));
        std::fs::write(place.join(JOBS), r#"[{"job":"5","tasks":4},{"job":"9","tasks":2},{"job":"7","tasks":0}]"#)
            .unwrap();
        assert_eq!(at_work(&["5_2", "5_3", "9_1", "9_2", "8_1"], &[2, 6]), queue(&["5_3", "9_1", "8_1"]));
        assert_eq!(at_work(&["5_2", "9", "7_1"], &[2]), queue(&["9", "7_1"]));
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn logs_are_searched_for_the_run_and_else_end_with_the_reason() {
        let log = "starting\nrun 3 failed: no room\nrun 4 failed: too hot\n1 of 3 recorded\n\n";
        assert_eq!(last_word(log, 2), "no room");
        assert_eq!(last_word(log, 7), "1 of 3 recorded");
        assert_eq!(last_word("\n \n", 0), "the task said nothing");
    }

    #[test]
    fn names_follow_the_runs_and_the_directory() {
        let sweep = |seeds: &str| {
            let text = format!("seeds = {seeds}\n[base]\nstack = 'full'\ntask = 'funccomp{{hops=1,m=4}}'\n");
            SweepConfig::read(&text).and_then(|sweep| sweep.resolve()).unwrap()
        };
        let (here, there) = (std::env::temp_dir(), std::env::current_dir().unwrap());
        let name = |seeds: &str, out: &Path| Job::of(&sweep(seeds), out).unwrap().name;
        assert_eq!(name("[1, 2]", &here), name("[1, 2]", &here));
        assert_ne!(name("[1, 2]", &here), name("[1, 3]", &here));
        assert_ne!(name("[1, 2]", &here), name("[1, 2]", &there));
        assert!(Job::of(&sweep("[1]"), Path::new("/nowhere/at/all")).is_err());
    }

    #[test]
    fn paths_are_quoted_or_refused() {
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        assert!(plain(Path::new("/a b/%c'")).is_ok());
        assert!(plain(Path::new("/a\\b")).is_err() && plain(Path::new("/a\nb")).is_err());
    }
}
