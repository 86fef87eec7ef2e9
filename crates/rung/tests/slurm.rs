//! Sweeps on a cluster: with scripts in place of Slurm's commands, and on a real Slurm of one machine if Slurm is installed.
#![cfg(unix)]

mod common;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{output_text, path_str, records, scratch_directory};
use serde_json::Value;

/// Writes a sweep of four runs of `steps` steps, with a checkpoint every `checkpoint_interval` steps.
fn write_sweep(directory: &Path, steps: usize, checkpoint_interval: usize) -> PathBuf {
    let path = directory.join("sweep.toml");
    let sweep = format!(
        "seeds = [0, 1]\n[base]\ntask = 'funccomp{{hops=2,m=4,n=[2],queries=4,mixed=yes}}'\n\
         [base.model]\nheads = 1\nhead = 16\n[base.train]\nsteps = {steps}\nbatch = 4\n\
         [base.evaluate]\nevery = {checkpoint_interval}\nprompts = 4\nlast = 16\nstop_at = 2.0\n\
         [grid]\nstack = ['gdn{{heads=1,key=2,value=8,conv=2}} full', 'mamba2{{heads=1,head=8,state=4}} full full']\n"
    );
    std::fs::write(&path, sweep).unwrap();
    path
}

/// `rung sweep SWEEP --out OUT ..`, with one environment variable set.
fn sweep_command(variable: (&str, &str), sweep: &Path, out: &Path, extra_args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rung"));
    command.args(["sweep", path_str(sweep), "--out", path_str(out)]).args(extra_args).env(variable.0, variable.1);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The JSON of a command that ends with this exit code.
fn json(command: &mut Command, code: i32) -> Value {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", output_text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts exit code 2, an error that contains `expected`, and empty standard output.
fn assert_fails(command: &mut Command, expected: &str) {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
    assert!(
        output_text(&output).contains(expected) && output.stdout.is_empty(),
        "{expected}: {}",
        output_text(&output)
    );
}

/// Writes a shell script in place of one of Slurm's commands.
fn write_script(directory: &Path, name: &str, script: &str) {
    let path = directory.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The option that submits to Slurm.
const ON_SLURM: [&str; 2] = ["--on", "slurm"];

#[test]
fn errors_name_why_a_sweep_cannot_be_submitted() {
    let directory = scratch_directory("slurm-errors");
    let (sweep, out, bin) = (write_sweep(&directory, 4, 2), directory.join("out"), directory.join("bin"));
    std::fs::create_dir(&bin).unwrap();
    let path = ("PATH", path_str(&bin));
    let fails_with = |extra_args: &[&str], expected: &str| {
        assert_fails(&mut sweep_command(path, &sweep, &out, extra_args), expected)
    };
    fails_with(&["--on", "slrm"], "possible values: slurm");
    fails_with(&["--on", "slurm", "--shard", "1/2"], "cannot be used with");
    fails_with(&["--tasks", "2"], "--on");
    fails_with(&["--on", "slurm", "--collect", "--no-wait"], "cannot be used with");
    fails_with(&ON_SLURM, "squeue: found no such program on the PATH");
    assert_fails(&mut sweep_command(path, &directory.join("none.toml"), &out, &ON_SLURM), "none.toml");
    write_script(&bin, "squeue", "");
    fails_with(&ON_SLURM, "sbatch: found no such program on the PATH");
    fails_with(&["--on", "slurm", "--tasks", "0"], "--tasks: found 0");
    write_script(&bin, "scontrol", "echo 'MaxArraySize            = 33'");
    fails_with(&["--on", "slurm", "--tasks", "33"], "--tasks: found 33, expected at most 32");
    write_script(&bin, "sbatch", "echo 'sbatch: error: invalid partition specified: nowhere' >&2; exit 1");
    fails_with(
        &["--on", "slurm", "--tasks", "32"],
        "sbatch: refused: sbatch: error: invalid partition specified: nowhere",
    );
    write_script(&bin, "sbatch", "echo 'Submitted batch job'");
    fails_with(&ON_SLURM, "expected the number of a job");
    write_script(&bin, "squeue", "echo 'squeue: error: Unable to contact slurm controller' >&2; exit 1");
    fails_with(&ON_SLURM, "Unable to contact slurm controller");
    let odd = directory.join("back\\slash");
    assert_fails(&mut sweep_command(path, &sweep, &odd, &ON_SLURM), "found a path with backslashes");
}

/// GPUs are requested for each array task, and the device is that of the script. This machine need not have it.
#[test]
fn gpus_per_task_are_requested_with_the_device_of_the_script() {
    let directory = scratch_directory("slurm-gpus");
    let (sweep, out, bin) = (write_sweep(&directory, 4, 2), directory.join("out"), directory.join("bin"));
    std::fs::create_dir(&bin).unwrap();
    let path = ("PATH", path_str(&bin));
    write_script(&bin, "squeue", "");
    write_script(&bin, "scontrol", "exit 1");
    write_script(&bin, "sbatch", "printf '%s\\n' \"$@\" > sbatch.txt; echo 77");
    let submit = |extra_args: &[&str]| {
        let mut command =
            sweep_command(path, &sweep, &out, &[&ON_SLURM[..], &["--no-wait", "--json"], extra_args].concat());
        json(command.current_dir(&directory), 0);
        let options = std::fs::read_to_string(directory.join("sbatch.txt")).unwrap();
        let script = std::fs::read_to_string(options.lines().last().unwrap()).unwrap();
        (options, script)
    };
    let (options, script) = submit(&[]);
    assert!(
        !options.contains("--gpus") && !options.contains("--ntasks") && !script.contains("--device"),
        "{options}{script}"
    );
    let (options, script) = submit(&["--gpus-per-task", "2", "--sbatch=--time=5"]);
    assert!(options.contains("\n--ntasks=1\n--gpus-per-task=2\n--time=5\n"), "{options}");
    assert!(script.ends_with(" --no-lock\n"), "{script}");
    let fails_with = |extra_args: &[&str], expected: &str| {
        assert_fails(&mut sweep_command(path, &sweep, &out, extra_args), expected)
    };
    fails_with(&["--gpus-per-task", "1"], "--on");
    fails_with(&["--on", "slurm", "--gpus-per-task", "0"], "0 is not in 1..");
    fails_with(&["--on", "slurm", "--gpus-per-task", "1", "--collect"], "cannot be used with");
    fails_with(&["--on", "slurm", "--device", "abacus"], "--device: found device \"abacus\", expected native");
    if cfg!(feature = "gpu") {
        let (_, script) = submit(&["--device", "cpu"]);
        assert!(script.ends_with(" --no-lock --device 'cpu'\n"), "{script}");
    }
}

/// Runs the submitted script for each array task and compares the records with those of a local sweep.
#[test]
fn submitted_script_writes_the_records_of_a_local_run() {
    let directory = scratch_directory("slurm-stand-in");
    // A directory name with characters that are special for the shell and for Slurm.
    let (sweep, out, bin) = (write_sweep(&directory, 20, 5), directory.join("it's 100%a $out"), directory.join("bin"));
    let local = directory.join("local");
    json(&mut sweep_command(("LANG", "C"), &sweep, &local, &["--json"]), 0);
    std::fs::create_dir(&bin).unwrap();
    let path = ("PATH", path_str(&bin));
    write_script(&bin, "squeue", "exec /bin/cat queue 2>/dev/null");
    write_script(&bin, "scontrol", "exit 1");
    write_script(&bin, "sbatch", "printf '%s\\n' \"$@\" > sbatch.txt; echo '77_1|RUNNING|None' > queue; echo '77;far'");
    let run = |extra_args: &[&str]| {
        let mut command = sweep_command(path, &sweep, &out, &[&ON_SLURM[..], extra_args].concat());
        command.current_dir(&directory);
        command
    };
    std::fs::write(directory.join("queue"), "").unwrap();
    let extra_args =
        ["--no-wait", "--tasks", "3", "--threads", "2", "--sbatch=--time=5", "--sbatch", "-p long", "--json"];
    let submitted = json(&mut run(&extra_args), 0);
    assert_eq!((&submitted["status"], &submitted["recorded"]), (&"submitted".into(), &0.into()));
    assert_eq!((&submitted["job"]["job"], &submitted["job"]["tasks"]), (&"77".into(), &3.into()));
    let sbatch_args = std::fs::read_to_string(directory.join("sbatch.txt")).unwrap();
    let sbatch_args: Vec<&str> = sbatch_args.lines().collect();
    let job_directory = PathBuf::from(sbatch_args[9]).parent().unwrap().to_owned();
    assert_eq!(sbatch_args[1], format!("--job-name={}", path_str(&job_directory).rsplit('/').next().unwrap()));
    assert_eq!((sbatch_args[0], sbatch_args[2], sbatch_args[3]), ("--parsable", "--array=1-3", "--cpus-per-task=2"));
    assert_eq!((sbatch_args[4], sbatch_args[5]), ("--requeue", "--open-mode=append"));
    assert_eq!(sbatch_args[6], format!("--output={}/%A-%a.log", path_str(&job_directory).replace('%', "%%")));
    assert_eq!((&sbatch_args[7..9], sbatch_args.len()), (&["--time=5", "-p long"][..], 10));
    assert_eq!(std::fs::read(job_directory.join("sweep.toml")).unwrap(), std::fs::read(&sweep).unwrap());

    // A running job is found and not submitted again.
    std::fs::remove_file(directory.join("sbatch.txt")).unwrap();
    assert_eq!(json(&mut run(&["--no-wait", "--json"]), 0)["status"], "found");
    let run_task = |number: &str| {
        let output = Command::new("/bin/sh").arg(sbatch_args[9]).env("SLURM_ARRAY_TASK_ID", number).output().unwrap();
        assert!(output.status.success(), "{}", output_text(&output));
    };
    run_task("2");
    run_task("3");
    // The job has left the queue and two of four runs have no record.
    std::fs::write(directory.join("queue"), "").unwrap();
    let failed = json(&mut run(&["--collect", "--json"]), 1);
    assert_eq!((&failed["recorded"], failed["failed"].as_array().unwrap().len()), (&2.into(), 2));
    let reasons = failed["failed"].to_string();
    assert!(reasons.contains("77-1.log: the task left no log"), "{reasons}");
    std::fs::write(job_directory.join("77-1.log"), "run 1 failed: too hot\nslurmstepd: error: CANCELLED\n").unwrap();
    let output = run(&["--collect"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output_text(&output).contains("77-1.log: too hot") && output_text(&output).contains("error: CANCELLED"));
    assert!(!directory.join("sbatch.txt").exists());
    // The same command submits only the missing runs.
    json(&mut run(&["--no-wait", "--tasks", "3", "--json"]), 0);
    assert!(std::fs::read_to_string(directory.join("sbatch.txt")).unwrap().contains("--array=1\n"));
    run_task("1");
    let summary = json(&mut run(&["--json"]), 0);
    assert_eq!((&summary["recorded_before"], &summary["job"]["job"]), (&4.into(), &"77".into()));
    assert_eq!(records(&out), records(&local));
}

/// A running Slurm on this machine, stopped when it is dropped.
struct Slurm {
    directory: PathBuf,
}

impl Slurm {
    /// Starts Slurm; none if it is not installed.
    fn start() -> Option<Self> {
        let check = run_slurm_script(&["check"]);
        if !check.status.success() {
            // Written to standard error directly, because the test runner hides the output of passing tests.
            let _ = writeln!(std::io::stderr(), "skipped: the test on a real Slurm ({})", output_text(&check).trim());
            return None;
        }
        let slurm = Self { directory: std::env::temp_dir().join(format!("rung-slurm-{}", std::process::id())) };
        let started = run_slurm_script(&["start", path_str(&slurm.directory)]);
        assert!(started.status.success(), "{}", output_text(&started));
        Some(slurm)
    }

    fn config_path(&self) -> String {
        format!("{}/slurm.conf", self.directory.display())
    }

    /// Runs one of Slurm's commands and returns its output.
    fn run(&self, program: &str, arguments: &[&str]) -> String {
        output_text(&Command::new(program).args(arguments).env("SLURM_CONF", self.config_path()).output().unwrap())
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        run_slurm_script(&["stop", path_str(&self.directory)]);
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

/// Runs the script that controls the Slurm of one machine. Its daemons write to files, so that the script's output ends when it does.
fn run_slurm_script(arguments: &[&str]) -> Output {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slurm/single_node.sh");
    Command::new("bash").arg(path).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Waits until a condition holds, for at most a minute.
fn wait_until(description: &str, condition: impl Fn() -> bool) {
    for _ in 0..600 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("timeout: waited until {description}");
}

/// Process ids and shards of the running tasks of the sweep that writes to `out`.
fn running_tasks(out: &Path) -> Vec<(String, String)> {
    let shard_of = |id: &str| -> Option<String> {
        let line = std::fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?;
        let words: Vec<&str> = line.split('\0').collect();
        let shard = words.iter().position(|word| *word == "--shard")?;
        (words.get(1) == Some(&"sweep") && words[2].starts_with(path_str(out))).then(|| words[shard + 1].to_owned())
    };
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    processes.filter_map(|id| shard_of(&id).map(|shard| (id, shard))).collect()
}

fn send_signal(signal: &str, id: &str) {
    assert!(Command::new("kill").args([signal, id]).status().unwrap().success());
}

#[test]
fn a_sweep_on_a_real_slurm_writes_the_records_of_a_local_run() {
    let Some(slurm) = Slurm::start() else { return };
    let conf = slurm.config_path();
    let directory = scratch_directory("slurm-real");
    let (short, local, out) = (write_sweep(&directory, 30, 5), directory.join("local"), directory.join("out"));
    let run = |sweep: &Path, out: &Path, extra_args: &[&str]| {
        sweep_command(("SLURM_CONF", &conf), sweep, out, &[&ON_SLURM[..], extra_args, &["--json"]].concat())
    };
    json(&mut sweep_command(("LANG", "C"), &short, &local, &["--json"]), 0);
    let summary = json(&mut run(&short, &out, &["--tasks", "3"]), 0);
    assert_eq!((&summary["recorded"], &summary["recorded_before"]), (&4.into(), &0.into()));
    assert_eq!(records(&out), records(&local));
    let again = json(&mut run(&short, &out, &[]), 0);
    assert_eq!((&again["recorded_before"], &again["job"]), (&4.into(), &summary["job"]));

    let other = directory.join("other");
    assert_fails(&mut run(&short, &other, &["--sbatch=--partition=nowhere"]), "invalid partition");
    assert_fails(&mut run(&short, &other, &["--tasks", "33"]), "expected at most 32");
    // The config file is deleted before the held job is released, so that its task fails.
    let held_job = json(&mut run(&short, &other, &["--no-wait", "--tasks", "1", "--sbatch=--hold"]), 0);
    let copies = std::fs::read_dir(other.join("slurm")).unwrap().map(|entry| entry.unwrap().path().join("sweep.toml"));
    copies.for_each(|copy| std::fs::remove_file(copy).unwrap());
    slurm.run("scontrol", &["release", held_job["job"]["job"].as_str().unwrap()]);
    let failed = json(&mut run(&short, &other, &["--collect"]), 1);
    assert!(failed["failed"][0]["reason"].as_str().unwrap().contains("sweep.toml: No such file"), "{failed}");

    assert_killed_tasks_and_controller_lose_no_record(&slurm, &directory);
}

fn assert_killed_tasks_and_controller_lose_no_record(slurm: &Slurm, directory: &Path) {
    let (long, local, out) = (write_sweep(directory, 1500, 20), directory.join("long"), directory.join("killed"));
    json(&mut sweep_command(("LANG", "C"), &long, &local, &["--json"]), 0);
    let conf = slurm.config_path();
    let run = |extra_args: &[&str]| {
        sweep_command(("SLURM_CONF", &conf), &long, &out, &[&ON_SLURM[..], extra_args, &["--json"]].concat())
    };
    let submitted = json(&mut run(&["--no-wait"]), 0);
    let job = submitted["job"]["job"].as_str().unwrap();
    let started_runs = || {
        std::fs::read_dir(&out)
            .unwrap()
            .filter(|run| run.as_ref().unwrap().path().join("resume.safetensors").exists())
            .count()
    };
    wait_until("all four runs have a checkpoint", || started_runs() == 4 && running_tasks(&out).len() == 4);
    let waiting = run(&["--collect"]).spawn().unwrap();

    let (id, _) = running_tasks(&out).into_iter().find(|(_, shard)| shard == "1/4").expect("task 1 at work");
    send_signal("-KILL", &id);
    assert_eq!(slurm.run("scontrol", &["requeue", &format!("{job}_2")]), "");
    slurm.run("scancel", &[&format!("{job}_3")]);
    // The waiting command reports the killed and the cancelled task; the requeued one has finished.
    let collected = waiting.wait_with_output().unwrap();
    assert_eq!(collected.status.code(), Some(1), "{}", output_text(&collected));
    let summary: Value = serde_json::from_slice(&collected.stdout).unwrap();
    let failed: Vec<u64> =
        summary["failed"].as_array().unwrap().iter().map(|run| run["run"].as_u64().unwrap()).collect();
    assert_eq!(failed, [1, 3], "{summary}");
    let logs = std::fs::read_dir(out.join("slurm")).unwrap().next().unwrap().unwrap().path();
    let requeued_log = std::fs::read_to_string(logs.join(format!("{job}-2.log"))).unwrap();
    assert_eq!(requeued_log.matches("1 runs on 1 threads").count(), 2, "{requeued_log}");

    // The same command submits the missing runs. Now the controller is killed; its tasks and the waiting command survive it.
    let mut waiting = run(&[]).spawn().unwrap();
    wait_until("tasks 1 and 3 are at work again", || running_tasks(&out).len() == 2);
    // The tasks are stopped until the controller is killed, so that they cannot finish before. The controller is killed after it has saved its
    // state: one that loses a job assigns the job's number again, which needs an administrator to repair.
    let stopped_tasks = running_tasks(&out);
    for (id, _) in &stopped_tasks {
        send_signal("-STOP", id);
    }
    let now = std::time::SystemTime::now();
    let jobs: Value = serde_json::from_slice(&std::fs::read(logs.join("jobs.json")).unwrap()).unwrap();
    let task = format!("JobId={}_1", jobs[1]["job"].as_str().unwrap());
    assert_eq!(slurm.run("scontrol", &["update", &task, "Comment=noted"]), "");
    let state_file = slurm.directory.join("state/job_state");
    wait_until("the controller has saved its state", || state_file.metadata().unwrap().modified().unwrap() > now);
    let controller = std::fs::read_to_string(slurm.directory.join("slurmctld.pid")).unwrap();
    send_signal("-KILL", controller.trim());
    for (id, _) in &stopped_tasks {
        send_signal("-CONT", id);
    }
    assert_eq!(waiting.try_wait().unwrap(), None);
    std::thread::sleep(Duration::from_secs(2));
    let restarted = run_slurm_script(&["controller", path_str(&slurm.directory)]);
    assert!(restarted.status.success(), "{}", output_text(&restarted));
    let collected = waiting.wait_with_output().unwrap();
    assert_eq!(collected.status.code(), Some(0), "{}", output_text(&collected));
    assert_eq!(json(&mut run(&[]), 0)["recorded_before"], 4);
    assert_eq!(records(&out), records(&local));
}
