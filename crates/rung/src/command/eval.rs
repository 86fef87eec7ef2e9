//! `rung eval DIR`: a trained model asked questions, also beyond what it was trained on.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use rung_theory::task;
use rung_train::network::load_weights;
use rung_train::run::initial::fresh;
use rung_train::run::place::CONFIG;
use rung_train::run::source::{Purpose, Source};
use rung_train::run::{RunConfig, RunError};
use serde_json::{Value, json};

use super::device;
use super::train::read_text;
use crate::output::{print, print_json, spinner};

/// Ask a trained model questions: any task whose tokens it can read, also longer prompts and larger tables than it was trained on.
///
/// Larger tables need a model that was made for them: `model.largest` in its config.
#[derive(Debug, clap::Args)]
pub struct Eval {
    /// The directory of a run, with run.toml and weights.safetensors.
    directory: PathBuf,
    /// A task; the run's own if not given. May be given several times.
    #[arg(long)]
    task: Vec<String>,
    /// Prompts of each task.
    #[arg(long, default_value_t = 256)]
    prompts: usize,
    /// Which prompts. Those of training are others for every seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Other weights than the run's, as safetensors.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Where to run: `cpu` is the native engine. Builds with a feature of its name have cuda, rocm, metal, vulkan, webgpu or wgpu, and
    /// all of these flex, Burn's processor device. No graphics card was at hand to try any: they ran on processors only.
    #[arg(long, value_name = "NAME", default_value = device::NATIVE)]
    device: String,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl Eval {
    /// Runs it.
    ///
    /// # Errors
    /// The run cannot be read, or a task does not fit its model.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        if !(1..=1 << 24).contains(&self.prompts) {
            bail!("--prompts: found {}, expected 1 to {}", self.prompts, 1 << 24);
        }
        let path = self.directory.join(CONFIG);
        let run = RunConfig::read(&read_text(&path)?).and_then(|config| config.resolve());
        let run = run.with_context(|| format!("{}", path.display()))?;
        let tasks = if self.task.is_empty() { std::slice::from_ref(&run.config.task) } else { &self.task };
        let read = |text: &String| -> Result<Source, RunError> {
            let task = task::parse(text).map_err(|error| RunError::task("--task", error))?;
            Source::new("--task", task, &run.fields, run.classes)
        };
        let mut sources = tasks.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let (model, mut weights) = fresh(&run)?;
        match &self.weights {
            Some(file) => rung_nn::load(file, &mut weights)?,
            None => load_weights(&self.directory, &run, &mut weights)?,
        }
        let executor = device::open(&self.device, &weights)?;
        let mut found = Vec::new();
        for source in &mut sources {
            let bar = spinner(source.task().spec());
            let numbers = (self.seed, Purpose::Testing);
            let outcome = executor.evaluate(&model, source, numbers, self.prompts);
            bar.finish_and_clear();
            found.push((source.task().spec(), source.task().length(), source.task().baseline(), outcome?));
        }
        if self.json {
            let one = |(task, tokens, baseline, found): &(String, usize, f64, rung_train::run::evaluate::Found)| {
                json!({"run": self.directory, "stack": run.config.stack, "task": task, "tokens": tokens, "baseline": baseline,
                       "prompts": self.prompts, "seed": self.seed, "device": self.device,
                       "loss": found.loss, "accuracy": found.accuracy})
            };
            let all: Vec<Value> = found.iter().map(one).collect();
            // One task, one object; several, a list.
            let [only] = &all[..] else { return print_json(&Value::Array(all)).map(|()| ExitCode::SUCCESS) };
            print_json(only)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = format!("{} ({}, on {})\n", run.config.stack, shown(&self.directory), self.device);
        for (task, tokens, baseline, found) in &found {
            writeln!(text, "{task}, {tokens} tokens, guessing scores {:.1}%", 100.0 * baseline)?;
            for (group, tally) in &found.accuracy {
                let (low, high) = tally.interval();
                let name = if *group == 0 { "all".to_owned() } else { format!("hop {group}") };
                let percent = [tally.mean(), low, high].map(|share| format!("{:.2}%", 100.0 * share));
                let [mean, low, high] = percent;
                writeln!(text, "  {name:6} {mean:>8}  ({low} to {high}, {} questions, measured)", tally.count)?;
            }
        }
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
