//! Sweeps on a cluster: against stand-ins for Slurm's commands, and against a real Slurm of one machine where its packages are.
#![cfg(unix)]

mod common;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{scratch, text};
use serde_json::Value;

/// A sweep of four runs of so many steps, with a checkpoint every few.
fn sweep(directory: &Path, steps: usize, every: usize) -> PathBuf {
    let path = directory.join("sweep.toml");
    let sweep = format!(
        "seeds = [0, 1]\n[base]\ntask = 'funccomp{{hops=2,m=4,n=[2],queries=4,mixed=yes}}'\n\
         [base.model]\nheads = 1\nhead = 16\n[base.train]\nsteps = {steps}\nbatch = 4\n\
         [base.evaluate]\nevery = {every}\nprompts = 4\nlast = 16\nstop_at = 2.0\n\
         [grid]\nstack = ['gdn{{heads=1,key=2,value=8,conv=2}} full', 'mamba2{{heads=1,head=8,state=4}} full full']\n"
    );
    std::fs::write(&path, sweep).unwrap();
    path
}

/// Every record below a directory, byte for byte.
fn records(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let runs = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let named = runs.filter(|run| run.join("record.json").exists());
    let named = named.map(|run| (run.file_name().unwrap().to_owned(), std::fs::read(run.join("record.json")).unwrap()));
    named.map(|(name, bytes)| (name.into_string().unwrap(), bytes)).collect()
}

/// `rung sweep SWEEP --out OUT ..`, with one variable of its environment changed.
fn command(variable: (&str, &str), sweep: &Path, out: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rung"));
    command.args(["sweep", text(sweep), "--out", text(out)]).args(more).env(variable.0, variable.1);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn output_text(output: &Output) -> String {
    let [out, error] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{error}")
}

/// The JSON of a command that ends with this exit code.
fn json(command: &mut Command, code: i32) -> Value {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{}", output_text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Fails with exit code 2 and these words, and says nothing on standard output.
fn fails(command: &mut Command, expected: &str) {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", output_text(&output));
    assert!(
        output_text(&output).contains(expected) && output.stdout.is_empty(),
        "{expected}: {}",
        output_text(&output)
    );
}

/// Programs of a directory that is the whole PATH.
fn stand_in(directory: &Path, name: &str, script: &str) {
    let path = directory.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

const ON: [&str; 2] = ["--on", "slurm"];

#[test]
fn what_cannot_be_submitted_is_named() {
    let directory = scratch("slurm-errors");
    let (sweep, out, bin) = (sweep(&directory, 4, 2), directory.join("out"), directory.join("bin"));
    std::fs::create_dir(&bin).unwrap();
    let path = ("PATH", text(&bin));
    let refused = |more: &[&str], expected: &str| fails(&mut command(path, &sweep, &out, more), expected);
    refused(&["--on", "slrm"], "possible values: slurm");
    refused(&["--on", "slurm", "--shard", "1/2"], "cannot be used with");
    refused(&["--tasks", "2"], "--on");
    refused(&["--on", "slurm", "--collect", "--no-wait"], "cannot be used with");
    refused(&ON, "squeue: found no such program on the PATH");
    fails(&mut command(path, &directory.join("none.toml"), &out, &ON), "none.toml");
    stand_in(&bin, "squeue", "");
    refused(&ON, "sbatch: found no such program on the PATH");
    refused(&["--on", "slurm", "--tasks", "0"], "--tasks: found 0");
    stand_in(&bin, "scontrol", "echo 'MaxArraySize            = 33'");
    refused(&["--on", "slurm", "--tasks", "33"], "--tasks: found 33, expected at most 32");
    stand_in(&bin, "sbatch", "echo 'sbatch: error: invalid partition specified: nowhere' >&2; exit 1");
    refused(
        &["--on", "slurm", "--tasks", "32"],
        "sbatch: refused: sbatch: error: invalid partition specified: nowhere",
    );
    stand_in(&bin, "sbatch", "echo 'Submitted batch job'");
    refused(&ON, "expected the number of a job");
    stand_in(&bin, "squeue", "echo 'squeue: error: Unable to contact slurm controller' >&2; exit 1");
    refused(&ON, "Unable to contact slurm controller");
    let odd = directory.join("back\\slash");
    fails(&mut command(path, &sweep, &odd, &ON), "found a path with backslashes");
}

/// The command line and the script are right if running the script for each task of the array gives the records of a sweep here.
#[test]
fn what_is_submitted_makes_the_records_of_a_local_run() {
    let directory = scratch("slurm-stand-in");
    // A name that a shell and Slurm would both like to read in their own way.
    let (sweep, out, bin) = (sweep(&directory, 20, 5), directory.join("it's 100%a $out"), directory.join("bin"));
    let whole = directory.join("whole");
    json(&mut command(("LANG", "C"), &sweep, &whole, &["--json"]), 0);
    std::fs::create_dir(&bin).unwrap();
    let path = ("PATH", text(&bin));
    stand_in(&bin, "squeue", "exec /bin/cat queue 2>/dev/null");
    stand_in(&bin, "scontrol", "exit 1");
    stand_in(&bin, "sbatch", "printf '%s\\n' \"$@\" > sbatch.txt; echo '77_1|RUNNING|None' > queue; echo '77;far'");
    let run = |more: &[&str]| {
        let mut command = command(path, &sweep, &out, &[&ON[..], more].concat());
        command.current_dir(&directory);
        command
    };
    std::fs::write(directory.join("queue"), "").unwrap();
    let more = ["--no-wait", "--tasks", "3", "--threads", "2", "--sbatch=--time=5", "--sbatch", "-p long", "--json"];
    let submitted = json(&mut run(&more), 0);
    assert_eq!((&submitted["status"], &submitted["recorded"]), (&"submitted".into(), &0.into()));
    assert_eq!((&submitted["job"]["job"], &submitted["job"]["tasks"]), (&"77".into(), &3.into()));
    let line = std::fs::read_to_string(directory.join("sbatch.txt")).unwrap();
    let line: Vec<&str> = line.lines().collect();
    let place = PathBuf::from(line[9]).parent().unwrap().to_owned();
    assert_eq!(line[1], format!("--job-name={}", text(&place).rsplit('/').next().unwrap()));
    assert_eq!((line[0], line[2], line[3]), ("--parsable", "--array=1-3", "--cpus-per-task=2"));
    assert_eq!((line[4], line[5]), ("--requeue", "--open-mode=append"));
    assert_eq!(line[6], format!("--output={}/%A-%a.log", text(&place).replace('%', "%%")));
    assert_eq!((&line[7..9], line.len()), (&["--time=5", "-p long"][..], 10));
    assert_eq!(std::fs::read(place.join("sweep.toml")).unwrap(), std::fs::read(&sweep).unwrap());

    // A job that is under way is found, not submitted again.
    std::fs::remove_file(directory.join("sbatch.txt")).unwrap();
    assert_eq!(json(&mut run(&["--no-wait", "--json"]), 0)["status"], "found");
    let task = |number: &str| {
        let output = Command::new("/bin/sh").arg(line[9]).env("SLURM_ARRAY_TASK_ID", number).output().unwrap();
        assert!(output.status.success(), "{}", output_text(&output));
    };
    task("2");
    task("3");
    // The job is gone and two runs of four are missing: of one there is a log, of the other there is none.
    std::fs::write(directory.join("queue"), "").unwrap();
    let failed = json(&mut run(&["--collect", "--json"]), 1);
    assert_eq!((&failed["recorded"], failed["failed"].as_array().unwrap().len()), (&2.into(), 2));
    let reasons = failed["failed"].to_string();
    assert!(reasons.contains("77-1.log: the task left no log"), "{reasons}");
    std::fs::write(place.join("77-1.log"), "run 1 failed: too hot\nslurmstepd: error: CANCELLED\n").unwrap();
    let output = run(&["--collect"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output_text(&output).contains("77-1.log: too hot") && output_text(&output).contains("error: CANCELLED"));
    assert!(!directory.join("sbatch.txt").exists());
    // The same command submits what is missing and no more.
    json(&mut run(&["--no-wait", "--tasks", "3", "--json"]), 0);
    assert!(std::fs::read_to_string(directory.join("sbatch.txt")).unwrap().contains("--array=1\n"));
    task("1");
    let all = json(&mut run(&["--json"]), 0);
    assert_eq!((&all["recorded_before"], &all["job"]["job"]), (&4.into(), &"77".into()));
    assert_eq!(records(&out), records(&whole));
}

/// A Slurm of one machine, stopped when it goes out of scope.
struct Slurm {
    place: PathBuf,
}

impl Slurm {
    /// None where Slurm's programs are not installed.
    fn start() -> Option<Self> {
        let check = script(&["check"]);
        if !check.status.success() {
            // Past the test runner, which keeps to itself what passing tests say.
            let _ = writeln!(std::io::stderr(), "skipped: the test on a real Slurm ({})", output_text(&check).trim());
            return None;
        }
        let slurm = Self { place: std::env::temp_dir().join(format!("rung-slurm-{}", std::process::id())) };
        let started = script(&["start", text(&slurm.place)]);
        assert!(started.status.success(), "{}", output_text(&started));
        Some(slurm)
    }

    fn conf(&self) -> String {
        format!("{}/slurm.conf", self.place.display())
    }

    /// What one of Slurm's commands says.
    fn ask(&self, program: &str, arguments: &[&str]) -> String {
        output_text(&Command::new(program).args(arguments).env("SLURM_CONF", self.conf()).output().unwrap())
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        script(&["stop", text(&self.place)]);
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.place);
        }
    }
}

/// Runs our script. Its daemons outlive it; they write to files, so that its own output ends when it does.
fn script(arguments: &[&str]) -> Output {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slurm/single_node.sh");
    Command::new("bash").arg(path).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Looks until it is so; a minute at most.
fn until(what: &str, so: impl Fn() -> bool) {
    for _ in 0..600 {
        if so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("waited in vain until {what}");
}

/// Ids of the processes that carry out a shard of what was submitted for `out`.
fn tasks(out: &Path) -> Vec<(String, String)> {
    let ours = |id: &str| -> Option<String> {
        let line = std::fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?;
        let words: Vec<&str> = line.split('\0').collect();
        let shard = words.iter().position(|word| *word == "--shard")?;
        (words.get(1) == Some(&"sweep") && words[2].starts_with(text(out))).then(|| words[shard + 1].to_owned())
    };
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    processes.filter_map(|id| ours(&id).map(|shard| (id, shard))).collect()
}

fn signal(signal: &str, id: &str) {
    assert!(Command::new("kill").args([signal, id]).status().unwrap().success());
}

#[test]
fn a_real_slurm_gives_the_records_of_a_local_run() {
    let Some(slurm) = Slurm::start() else { return };
    let conf = slurm.conf();
    let directory = scratch("slurm-real");
    let (short, whole, out) = (sweep(&directory, 30, 5), directory.join("whole"), directory.join("out"));
    let run = |sweep: &Path, out: &Path, more: &[&str]| {
        command(("SLURM_CONF", &conf), sweep, out, &[&ON[..], more, &["--json"]].concat())
    };
    json(&mut command(("LANG", "C"), &short, &whole, &["--json"]), 0);
    let found = json(&mut run(&short, &out, &["--tasks", "3"]), 0);
    assert_eq!((&found["recorded"], &found["recorded_before"]), (&4.into(), &0.into()));
    assert_eq!(records(&out), records(&whole));
    let again = json(&mut run(&short, &out, &[]), 0);
    assert_eq!((&again["recorded_before"], &again["job"]), (&4.into(), &found["job"]));

    let other = directory.join("other");
    fails(&mut run(&short, &other, &["--sbatch=--partition=nowhere"]), "invalid partition");
    fails(&mut run(&short, &other, &["--tasks", "33"]), "expected at most 32");
    // A sweep that the nodes cannot read.
    let held = json(&mut run(&short, &other, &["--no-wait", "--tasks", "1", "--sbatch=--hold"]), 0);
    let copies = std::fs::read_dir(other.join("slurm")).unwrap().map(|entry| entry.unwrap().path().join("sweep.toml"));
    copies.for_each(|copy| std::fs::remove_file(copy).unwrap());
    slurm.ask("scontrol", &["release", held["job"]["job"].as_str().unwrap()]);
    let failed = json(&mut run(&short, &other, &["--collect"]), 1);
    assert!(failed["failed"][0]["reason"].as_str().unwrap().contains("sweep.toml: No such file"), "{failed}");

    killed_tasks_and_a_killed_controller_lose_nothing(&slurm, &directory);
}

fn killed_tasks_and_a_killed_controller_lose_nothing(slurm: &Slurm, directory: &Path) {
    let (many, whole, out) = (sweep(directory, 1500, 20), directory.join("long"), directory.join("killed"));
    json(&mut command(("LANG", "C"), &many, &whole, &["--json"]), 0);
    let conf = slurm.conf();
    let run = |more: &[&str]| command(("SLURM_CONF", &conf), &many, &out, &[&ON[..], more, &["--json"]].concat());
    let submitted = json(&mut run(&["--no-wait"]), 0);
    let job = submitted["job"]["job"].as_str().unwrap();
    let begun = || {
        std::fs::read_dir(&out)
            .unwrap()
            .filter(|run| run.as_ref().unwrap().path().join("resume.safetensors").exists())
            .count()
    };
    until("all four runs have a checkpoint", || begun() == 4 && tasks(&out).len() == 4);
    let waiting = run(&["--collect"]).spawn().unwrap();

    let (id, _) = tasks(&out).into_iter().find(|(_, shard)| shard == "1/4").expect("task 1 at work");
    signal("-KILL", &id);
    assert_eq!(slurm.ask("scontrol", &["requeue", &format!("{job}_2")]), "");
    slurm.ask("scancel", &[&format!("{job}_3")]);
    // The one who waited tells what was ended for good; what was requeued has come to its end.
    let waited = waiting.wait_with_output().unwrap();
    assert_eq!(waited.status.code(), Some(1), "{}", output_text(&waited));
    let found: Value = serde_json::from_slice(&waited.stdout).unwrap();
    let failed: Vec<u64> = found["failed"].as_array().unwrap().iter().map(|run| run["run"].as_u64().unwrap()).collect();
    assert_eq!(failed, [1, 3], "{found}");
    let logs = std::fs::read_dir(out.join("slurm")).unwrap().next().unwrap().unwrap().path();
    let said = std::fs::read_to_string(logs.join(format!("{job}-2.log"))).unwrap();
    assert_eq!(said.matches("1 runs on 1 threads").count(), 2, "{said}");

    // The same command submits the rest; now the controller dies, and its tasks and the one who waits outlive it.
    let mut waiting = run(&[]).spawn().unwrap();
    until("tasks 1 and 3 are at work again", || tasks(&out).len() == 2);
    // They are held until it is dead, so that it dies in the midst of the sweep; and it dies when it has saved what it knows, for one
    // that forgets a job gives the job's number away again, and then Slurm wants its administrator.
    let held = tasks(&out);
    for (id, _) in &held {
        signal("-STOP", id);
    }
    let now = std::time::SystemTime::now();
    let jobs: Value = serde_json::from_slice(&std::fs::read(logs.join("jobs.json")).unwrap()).unwrap();
    let task = format!("JobId={}_1", jobs[1]["job"].as_str().unwrap());
    assert_eq!(slurm.ask("scontrol", &["update", &task, "Comment=noted"]), "");
    let saved = slurm.place.join("state/job_state");
    until("the controller has saved its state", || saved.metadata().unwrap().modified().unwrap() > now);
    let controller = std::fs::read_to_string(slurm.place.join("slurmctld.pid")).unwrap();
    signal("-KILL", controller.trim());
    for (id, _) in &held {
        signal("-CONT", id);
    }
    assert_eq!(waiting.try_wait().unwrap(), None);
    std::thread::sleep(Duration::from_secs(2));
    let restarted = script(&["controller", text(&slurm.place)]);
    assert!(restarted.status.success(), "{}", output_text(&restarted));
    let waited = waiting.wait_with_output().unwrap();
    assert_eq!(waited.status.code(), Some(0), "{}", output_text(&waited));
    assert_eq!(json(&mut run(&[]), 0)["recorded_before"], 4);
    assert_eq!(records(&out), records(&whole));
}
