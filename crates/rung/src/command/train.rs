//! `rung train`: a stack trained on a task.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use rung_nn::network::files::RUN_CONFIG;
use rung_train::run::device::NATIVE;
use rung_train::run::directory::{CHECKPOINT_FILE, RECORD_FILE};
use rung_train::run::{ComputeDevice, ExecuteOptions, Run, RunConfig, RunRecord, execute_with, record};
use serde_json::{Value, json};

use super::device::DeviceOption;
use super::memory::MemoryOption;
use crate::output::{print, print_json, print_note};
use crate::watch::{Interrupt, RunWatcher, record_accuracy_text};

/// Train a stack on a task and record what it learned.
///
/// Exit codes: 0 the run is finished and recorded, 2 bad input, 130 interrupted (a checkpoint was written).
#[derive(Debug, clap::Args)]
pub struct Train {
    /// Stack such as `gdn full`.
    #[arg(long, required_unless_present_any = ["config", "resume"])]
    stack: Option<String>,
    /// Task such as `funccomp{hops=1,m=32,queries=16}`; `rung task list` has them all.
    #[arg(long, required_unless_present_any = ["config", "resume"])]
    task: Option<String>,
    /// TOML run config. Command-line options override values in the file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the run [default: runs/ID]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Resume from the checkpoint in a run's directory.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["config", "stack", "task", "out", "seed", "steps", "batch", "rate", "set"])]
    resume: Option<PathBuf>,
    /// Seed of the initial weights and of the prompts.
    #[arg(long)]
    seed: Option<u64>,
    /// Training steps.
    #[arg(long)]
    steps: Option<usize>,
    /// Prompts per step.
    #[arg(long)]
    batch: Option<usize>,
    /// Peak learning rate.
    #[arg(long)]
    rate: Option<f64>,
    /// Threads per run [default: all cores]. Changes floating-point summation order, so results are reproducible only with the same number.
    #[arg(long)]
    threads: Option<usize>,
    /// Set any other config key, such as `model.head=16`; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Check the config, print it with every default as TOML (or JSON with --json), and stop.
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

impl Train {
    /// Runs the command.
    ///
    /// # Errors
    /// The config is not valid, a file cannot be written, or training fails.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.memory.apply();
        self.device.check()?;
        let run = self.resolve()?;
        if self.dry_run {
            if self.json {
                print_json(&serde_json::to_value(&run.config)?)?;
            } else {
                print(&run.config.to_toml())?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let directory = self.directory(&run)?;
        let options = ExecuteOptions { device: self.device.open()?, ..ExecuteOptions::default() };
        if !self.json {
            print_note(run_header(&run, &options.device, &directory).trim_end());
        }
        let interrupt = Interrupt::install();
        let mut watcher = RunWatcher::new(&run.config, !self.json);
        let outcome = execute_with(&run, Some(&directory), &options, &mut |report| {
            watcher.show(report);
            !interrupt.requested()
        });
        watcher.finish();
        let outcome = outcome?;
        let Some(record) = outcome.record else {
            let mut resume_command = format!("rung train --resume {}", directory.display());
            if !self.device.is_native() {
                write!(resume_command, " --device {}", self.device.name())?;
            }
            if self.json {
                print_json(&json!({"status": "interrupted", "directory": directory, "resume": resume_command}))?;
            } else {
                print(&format!("interrupted; a checkpoint was written. Resume with\n  {resume_command}\n"))?;
            }
            return Ok(ExitCode::from(130));
        };
        if self.json {
            print_json(&record_json(&record, &directory, outcome.seconds, outcome.already_recorded))?;
        } else {
            let note = if outcome.already_recorded { " (already recorded)" } else { "" };
            let (stop_reason, steps) = (format!("{:?}", record.stop_reason).to_lowercase(), record.steps);
            let accuracy = record_accuracy_text(&record);
            let seconds = if outcome.already_recorded { String::new() } else { format!(", {:.0} s", outcome.seconds) };
            let path = directory.join(RECORD_FILE);
            print(&format!(
                "{stop_reason} after {steps} steps{seconds}{note}: {accuracy} (measured)\n{}\n",
                path.display()
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn resolve(&self) -> anyhow::Result<Run> {
        if let Some(directory) = &self.resume {
            let path = directory.join(RUN_CONFIG);
            if !path.is_file() {
                bail!("--resume: found no {} in {}, expected the directory of a run", RUN_CONFIG, directory.display());
            }
            return Ok(read_config(&path)?.resolve()?);
        }
        let mut config = match &self.config {
            Some(path) => read_config(path)?,
            None => RunConfig::new("", ""),
        };
        if let Some(stack) = &self.stack {
            config.stack.clone_from(stack);
        }
        if let Some(task) = &self.task {
            config.task.clone_from(task);
        }
        config.seed = self.seed.unwrap_or(config.seed);
        config.train.steps = self.steps.unwrap_or(config.train.steps);
        config.train.batch = self.batch.unwrap_or(config.train.batch);
        config.train.rate = self.rate.unwrap_or(config.train.rate);
        // A config file fixes the number of threads; without one all cores are used.
        let threads = if self.config.is_some() { config.train.threads } else { core_count() };
        config.train.threads = self.threads.unwrap_or(threads);
        for setting in &self.set {
            config = config.with(setting)?;
        }
        Ok(config.resolve()?)
    }

    fn directory(&self, run: &Run) -> anyhow::Result<PathBuf> {
        if let Some(directory) = &self.resume {
            return Ok(directory.clone());
        }
        let directory = self.out.clone().unwrap_or_else(|| Path::new("runs").join(record::id(run)));
        if directory.join(CHECKPOINT_FILE).exists() {
            let path = directory.display();
            bail!("{path}: found a checkpoint; resume with `rung train --resume {path}`, or choose another --out");
        }
        Ok(directory)
    }
}

fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Reads a run config from a file.
fn read_config(path: &Path) -> anyhow::Result<RunConfig> {
    let text = read_text(path)?;
    RunConfig::read(&text).with_context(|| format!("{}", path.display()))
}

/// Reads a file, or standard input for `-`, of at most 1 MiB as text.
pub fn read_text(path: &Path) -> anyhow::Result<String> {
    use std::io::Read as _;
    const MAX_BYTES: u64 = 1 << 20;
    let reader: Box<dyn std::io::Read> = if path == Path::new("-") {
        crate::call::input()
    } else {
        Box::new(std::fs::File::open(path).with_context(|| format!("{}", path.display()))?)
    };
    let mut text = String::new();
    reader.take(MAX_BYTES + 1).read_to_string(&mut text).with_context(|| format!("{}", path.display()))?;
    if text.len() as u64 > MAX_BYTES {
        bail!("{}: found more than {MAX_BYTES} bytes, expected a config", path.display());
    }
    Ok(text)
}

/// Stack, task, size and directory of a run, printed before it starts, and its device if it is not the native engine.
fn run_header(run: &Run, device: &ComputeDevice, directory: &Path) -> String {
    let capacity = run.plan.capacity();
    let device = if device.name() == NATIVE { String::new() } else { format!("  device {}\n", device.name()) };
    format!(
        "{} on {}\n  {} weights, {} tokens per prompt, {} prompts per step; the layout has {} (proved, for large tables)\n{device}  directory {}\n",
        run.config.stack,
        run.config.task,
        crate::output::with_commas(run.weight_count),
        run.task.task().length(),
        run.config.train.batch,
        crate::output::count_noun(capacity.rungs, "rung"),
        directory.display()
    )
}

/// The JSON output about a record.
fn record_json(record: &RunRecord, directory: &Path, seconds: f64, already_recorded: bool) -> Value {
    json!({
        "status": "recorded",
        "id": record.id,
        "directory": directory,
        "device": record.device,
        "over": record.stop_reason,
        "steps": record.steps,
        "loss": record.loss,
        "accuracy": record.accuracy,
        "rungs": record.facts.rungs,
        "recorded_before": already_recorded,
        "seconds": seconds,
    })
}
