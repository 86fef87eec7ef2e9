//! A sweep as a job array of Slurm.
//!
//! ```text
//! OUT/slurm/rung-HASH/sweep.toml   the sweep as it was submitted; later edits of the user's file have no effect
//!                     job.sh       what every task runs: rung sweep sweep.toml --shard TASK/TASKS
//!                     jobs.json    job id and task count of every submitted job: which runs a queued task has, and its log
//!                     12-3.log     output of task 3 of job 12, over all its starts
//! OUT/RUN/record.json ..           as in any sweep
//! ```
//!
//! The records are the only stored state of a sweep. Slurm says whether a job is queued or running. Slurm is asked by the job's name, a
//! hash of the runs and of the output directory, so the same command finds its job again, even if it was killed between submitting the job
//! and writing `jobs.json`. A task that is requeued or submitted again skips recorded runs and resumes others from their checkpoints.
//! Files are renamed into place and nothing is locked, so this works on any file system that the nodes share.

use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::config::Sweep;
use crate::run::device::NATIVE;
use crate::run::{RunError, record};
use rung_nn::file::write_atomically;
use rung_theory::task::splitmix64;

const JOBS_FILE: &str = "jobs.json";

/// The Slurm job array of a sweep.
#[derive(Debug)]
pub struct JobArray {
    /// The job's name in Slurm.
    pub name: String,
    /// Absolute path of the job's script and logs.
    pub directory: PathBuf,
    output_directory: PathBuf,
}

/// A job that was submitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmittedJob {
    /// The job id that `sbatch` printed.
    #[serde(rename = "job")]
    pub job_id: String,
    /// Number of shards of the sweep. Shards whose runs were all recorded were not submitted.
    pub tasks: usize,
}

/// A task that is queued or running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedTask {
    /// Slurm's id: job, `_` and array index.
    pub id: String,
    /// `PENDING`, `RUNNING` and so on.
    pub state: String,
    /// Why it is pending.
    pub reason: String,
}

/// A job to submit.
#[derive(Clone, Debug)]
pub struct SlurmRequest<'a> {
    /// The sweep's TOML.
    pub sweep_toml: &'a str,
    /// Absolute path of the `rung` program.
    pub program: &'a Path,
    /// Number of shards, one task each.
    pub tasks: usize,
    /// Threads of each task.
    pub threads: usize,
    /// Name of the device of each task.
    pub device: &'a str,
    /// GPUs of each task.
    pub gpus: Option<u32>,
    /// The user's options of `sbatch`, after those that rung sets.
    pub options: &'a [String],
}

impl JobArray {
    /// The job of a sweep whose records go to an existing directory.
    ///
    /// # Errors
    /// The directory cannot be found, or has a name that cannot be passed to Slurm.
    pub fn new(sweep: &Sweep, output_directory: &Path) -> Result<Self, RunError> {
        let output_directory =
            output_directory.canonicalize().map_err(|error| RunError::file(output_directory, error))?;
        let path = slurm_safe_path(&output_directory)?;
        let ids = sweep.runs.iter().flat_map(|run| record::id(run).into_bytes());
        let hash = ids.chain(path.bytes()).fold(0, |hash, byte| splitmix64(hash ^ u64::from(byte)));
        let name = format!("rung-{:012x}", hash & 0xFFFF_FFFF_FFFF);
        Ok(Self { directory: output_directory.join("slurm").join(&name), name, output_directory })
    }

    /// The tasks of this job that are queued or running.
    ///
    /// # Errors
    /// `squeue` is not installed or fails.
    pub fn queued_tasks(&self) -> Result<Vec<QueuedTask>, RunError> {
        let name = format!("--name={}", self.name);
        let text = run_command("squeue", &["--me", "--noheader", "--array", &name, "--format=%i|%T|%r"])?;
        Ok(text.lines().filter_map(parse_queued_task).collect())
    }

    /// Submits the shards of a sweep that have runs in `missing_runs`: the numbers, from 0, of the runs without a record.
    ///
    /// # Errors
    /// A file cannot be written, or `sbatch` is not installed or fails.
    pub fn submit(&self, request: &SlurmRequest<'_>, missing_runs: &[usize]) -> Result<SubmittedJob, RunError> {
        std::fs::create_dir_all(&self.directory).map_err(|error| RunError::file(&self.directory, error))?;
        let (sweep, script) = (self.directory.join("sweep.toml"), self.directory.join("job.sh"));
        let write = |path: &Path, text: &str| write_atomically(path, text.as_bytes()).map_err(RunError::write);
        write(&sweep, request.sweep_toml)?;
        write(&script, &self.script(request, &sweep)?)?;
        let mut arguments = vec![
            "--parsable".to_owned(),
            format!("--job-name={}", self.name),
            format!("--array={}", array_ranges(missing_runs, request.tasks)),
            format!("--cpus-per-task={}", request.threads),
            // Tasks of a failed node are queued again, and each start appends to the log of the previous one.
            "--requeue".to_owned(),
            "--open-mode=append".to_owned(),
            format!("--output={}/%A-%a.log", slurm_safe_path(&self.directory)?.replace('%', "%%")),
        ];
        if let Some(gpus) = request.gpus {
            // Slurm accepts GPUs per task only with an explicit number of tasks: those of one element of the array.
            arguments.extend(["--ntasks=1".to_owned(), format!("--gpus-per-task={gpus}")]);
        }
        arguments.extend_from_slice(request.options);
        arguments.push(slurm_safe_path(&script)?.to_owned());
        let output = run_command("sbatch", &arguments)?;
        let job_id = output.trim().split(';').next().unwrap_or_default().to_owned();
        if job_id.is_empty() || !job_id.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(command_failed(
                "sbatch",
                format!("found the answer `{:.200}`, expected the number of a job", output.trim()),
            ));
        }
        let submitted = SubmittedJob { job_id, tasks: request.tasks };
        let mut jobs = self.submitted_jobs();
        // A restarted controller may reuse the id of an earlier job.
        jobs.retain(|earlier| earlier.job_id != submitted.job_id);
        jobs.push(submitted.clone());
        write(&self.directory.join(JOBS_FILE), &(serde_json::to_string(&jobs).unwrap_or_default() + "\n"))?;
        Ok(submitted)
    }

    /// The jobs in `jobs.json`, in the order of submission; empty if the file cannot be read.
    pub fn submitted_jobs(&self) -> Vec<SubmittedJob> {
        let text = std::fs::read_to_string(self.directory.join(JOBS_FILE)).unwrap_or_default();
        let mut jobs: Vec<SubmittedJob> = serde_json::from_str(&text).unwrap_or_default();
        jobs.retain(|job| job.tasks > 0);
        jobs
    }

    /// The queued tasks whose shard has a run in `missing_runs`. A controller that was killed may still list tasks that ended long ago; they
    /// have no missing run, so they are left out.
    pub fn unfinished_tasks(&self, queued: Vec<QueuedTask>, missing_runs: &[usize]) -> Vec<QueuedTask> {
        let jobs = self.submitted_jobs();
        let has_missing_run = |queued: &QueuedTask| {
            let (job_id, task) = queued.id.split_once('_').unwrap_or((&queued.id, ""));
            let job_and_task = jobs.iter().find(|job| job.job_id == job_id).zip(task.parse::<usize>().ok());
            // A task that is not in `jobs.json` may have any run.
            job_and_task.is_none_or(|(job, task)| missing_runs.iter().any(|number| number % job.tasks + 1 == task))
        };
        queued.into_iter().filter(has_missing_run).collect()
    }

    /// Why run `number` has no record although its job has ended, from the log of its task.
    pub fn missing_record_error(&self, job: Option<&SubmittedJob>, number: usize) -> RunError {
        let Some(job) = job else {
            return RunError::file(&self.directory, "no record, and no job was submitted");
        };
        let path = self.directory.join(format!("{}-{}.log", job.job_id, number % job.tasks + 1));
        let reason = match read_tail(&path) {
            Ok(text) => failure_reason(&text, number),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                "the task left no log; it was ended before it started, or its node does not see this directory"
                    .to_owned()
            }
            Err(error) => error.to_string(),
        };
        RunError::file(path, reason)
    }

    fn script(&self, request: &SlurmRequest<'_>, sweep: &Path) -> Result<String, RunError> {
        let [program, sweep, out] =
            [request.program, sweep, &self.output_directory].map(|path| slurm_safe_path(path).map(shell_quote));
        let device =
            if request.device == NATIVE { String::new() } else { format!(" --device {}", shell_quote(request.device)) };
        Ok(format!(
            "#!/bin/sh\n\
             # One shard of a sweep. Recorded runs are skipped and interrupted ones resumed, so it may run any number of times.\n\
             exec {} sweep {} --out {} --shard \"$SLURM_ARRAY_TASK_ID/{}\" --threads {} --no-lock{device}\n",
            program?, sweep?, out?, request.tasks, request.threads
        ))
    }
}

/// The largest array index that Slurm allows, one below its `MaxArraySize`; `None` if `scontrol` does not say.
pub fn max_array_tasks() -> Option<usize> {
    parse_max_array_tasks(&run_command("scontrol", &["show", "config"]).ok()?)
}

fn parse_max_array_tasks(config: &str) -> Option<usize> {
    let line = config.lines().find(|line| line.trim_start().starts_with("MaxArraySize"))?;
    line.split_once('=')?.1.trim().parse::<usize>().ok()?.checked_sub(1)
}

/// Parses a line of `squeue`: id, state and reason.
fn parse_queued_task(line: &str) -> Option<QueuedTask> {
    let mut fields = line.trim().splitn(3, '|').map(str::to_owned);
    Some(QueuedTask { id: fields.next()?, state: fields.next()?, reason: fields.next()? })
}

/// The array indices of the tasks that have these runs, in the syntax of `--array`: `1-3,7`.
fn array_ranges(missing_runs: &[usize], tasks: usize) -> String {
    /// Arguments of a command are limited in length. Beyond this all tasks are submitted; those without runs end at once.
    const MAX_CHARS: usize = 100_000;
    let mut indices: Vec<usize> = missing_runs.iter().map(|number| number % tasks + 1).collect();
    indices.sort_unstable();
    indices.dedup();
    let ranges = indices.chunk_by(|a, b| a + 1 == *b).map(|range| match range {
        [index] => index.to_string(),
        _ => format!("{}-{}", range[0], range[range.len() - 1]),
    });
    let text = ranges.collect::<Vec<_>>().join(",");
    if text.len() > MAX_CHARS { format!("1-{tasks}") } else { text }
}

/// Runs one of Slurm's commands and returns its standard output.
fn run_command(program: &str, arguments: &[impl AsRef<std::ffi::OsStr>]) -> Result<String, RunError> {
    let output = Command::new(program).args(arguments).output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => command_failed(program, "found no such program on the PATH, expected Slurm's commands"),
        _ => command_failed(program, error),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let reason = if stderr.trim().is_empty() { output.status.to_string() } else { stderr.trim().to_owned() };
    Err(command_failed(program, format!("refused: {reason:.2000}")))
}

fn command_failed(program: &str, reason: impl std::fmt::Display) -> RunError {
    RunError::Command { program: program.to_owned(), reason: reason.to_string() }
}

/// A path as text, rejected if it has characters that Slurm's file name patterns or a line of the script cannot hold.
fn slurm_safe_path(path: &Path) -> Result<&str, RunError> {
    let text = path.to_str().filter(|text| !text.contains(|letter: char| letter == '\\' || letter.is_control()));
    text.ok_or_else(|| {
        RunError::file(path, "found a path with backslashes, line breaks or bytes that are not UTF-8, expected none")
    })
}

/// A text as one single-quoted word of the shell.
fn shell_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The last 64 KiB of a log.
fn read_tail(path: &Path) -> std::io::Result<String> {
    const MAX_BYTES: u64 = 1 << 16;
    let mut file = std::fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The reason that a log gives for the failure of a run, or else the log's last line.
fn failure_reason(log: &str, number: usize) -> String {
    let prefix = format!("run {} failed: ", number + 1);
    let reason = log.lines().rev().find_map(|line| line.strip_prefix(&prefix));
    let last_line = || log.lines().rev().map(str::trim).find(|line| !line.is_empty());
    format!("{:.500}", reason.or_else(last_line).unwrap_or("the log is empty"))
}

#[cfg(test)]
mod tests {
    use super::super::{Shard, SweepConfig};
    use super::*;

    #[test]
    fn array_ranges_list_the_shards_with_missing_runs() {
        assert_eq!(array_ranges(&[0, 1, 2, 6], 8), "1-3,7");
        assert_eq!(array_ranges(&[0, 4, 8, 9], 4), "1-2");
        assert_eq!(array_ranges(&[5], 1), "1");
        let (many_runs, tasks) = ((0..90_000).step_by(2).collect::<Vec<_>>(), 90_000);
        assert_eq!(array_ranges(&many_runs, tasks), "1-90000");
        for number in 0..40 {
            let shard: Shard = format!("{}/7", array_ranges(&[number], 7)).parse().unwrap();
            assert!(shard.contains(number));
        }
    }

    #[test]
    fn output_of_squeue_and_scontrol_is_parsed() {
        let task = parse_queued_task("12_3|PENDING|Resources|or so\n").unwrap();
        assert_eq!(
            (task.id.as_str(), task.state.as_str(), task.reason.as_str()),
            ("12_3", "PENDING", "Resources|or so")
        );
        assert_eq!(parse_queued_task("nonsense"), None);
        assert_eq!(parse_max_array_tasks("A = 1\nMaxArraySize            = 1001\nMaxDBDMsgs = 5\n"), Some(1000));
        assert_eq!(parse_max_array_tasks("MaxArraySize = 0"), None);
        assert_eq!(parse_max_array_tasks("nothing of the kind"), None);
    }

    #[test]
    fn unfinished_tasks_are_those_with_missing_runs() {
        let directory = std::env::temp_dir().join(format!("rung-jobs-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let job =
            JobArray { name: "rung-0".to_owned(), directory: directory.clone(), output_directory: directory.clone() };
        let running = |ids: &[&str]| -> Vec<QueuedTask> {
            ids.iter().map(|id| parse_queued_task(&format!("{id}|RUNNING|None")).unwrap()).collect()
        };
        let unfinished_tasks = |ids: &[&str], missing_runs: &[usize]| job.unfinished_tasks(running(ids), missing_runs);
        // Without jobs.json any task may have a missing run.
        assert_eq!(unfinished_tasks(&["5_2", "9_1"], &[0]), running(&["5_2", "9_1"]));
        std::fs::write(
            directory.join(JOBS_FILE),
            r#"[{"job":"5","tasks":4},{"job":"9","tasks":2},{"job":"7","tasks":0}]"#,
        )
        .unwrap();
        assert_eq!(unfinished_tasks(&["5_2", "5_3", "9_1", "9_2", "8_1"], &[2, 6]), running(&["5_3", "9_1", "8_1"]));
        assert_eq!(unfinished_tasks(&["5_2", "9", "7_1"], &[2]), running(&["9", "7_1"]));
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn failure_reason_is_the_line_of_the_run_or_the_last_line() {
        let log = "starting\nrun 3 failed: out of memory\nrun 4 failed: the loss is not finite\n1 of 3 recorded\n\n";
        assert_eq!(failure_reason(log, 2), "out of memory");
        assert_eq!(failure_reason(log, 7), "1 of 3 recorded");
        assert_eq!(failure_reason("\n \n", 0), "the log is empty");
    }

    #[test]
    fn job_name_depends_on_the_runs_and_the_directory() {
        let sweep = |seeds: &str| {
            let text = format!("seeds = {seeds}\n[base]\nstack = 'full'\ntask = 'funccomp{{hops=1,m=4}}'\n");
            SweepConfig::read(&text).and_then(|sweep| sweep.resolve()).unwrap()
        };
        let (first, second) = (std::env::temp_dir(), std::env::current_dir().unwrap());
        let name = |seeds: &str, out: &Path| JobArray::new(&sweep(seeds), out).unwrap().name;
        assert_eq!(name("[1, 2]", &first), name("[1, 2]", &first));
        assert_ne!(name("[1, 2]", &first), name("[1, 3]", &first));
        assert_ne!(name("[1, 2]", &first), name("[1, 2]", &second));
        assert!(JobArray::new(&sweep("[1]"), Path::new("/nowhere/at/all")).is_err());
    }

    #[test]
    fn paths_are_shell_quoted_or_rejected() {
        assert_eq!(shell_quote("it's $HOME"), r"'it'\''s $HOME'");
        assert!(slurm_safe_path(Path::new("/a b/%c'")).is_ok());
        assert!(slurm_safe_path(Path::new("/a\\b")).is_err() && slurm_safe_path(Path::new("/a\nb")).is_err());
    }
}
