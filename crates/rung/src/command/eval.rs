//! `rung eval MODEL`: evaluates a trained model, also on longer prompts than in training, or an external checkpoint.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use rung_nn::Network;
use rung_nn::memory::BatchShape;
use rung_nn::network::files::RUN_CONFIG;
use rung_theory::task;
use rung_train::network::initial_network;
use rung_train::run::evaluate::{BATCH_SIZE, EvaluationResult};
use rung_train::run::source::{PromptPurpose, PromptSource};
use rung_train::run::{RunConfig, RunError};
use serde_json::{Value, json};

use super::device::DeviceOption;
use super::eval_text;
use super::memory::MemoryOption;
use super::text_prompts::{CheckpointPromptOptions, PromptsArgument, is_external_checkpoint};
use super::train::read_text;
use crate::output::{print, print_json, spinner};

/// Evaluate a trained model on any task that fits it.
///
/// Also on longer prompts and larger tables than in training. Larger tables need a model with a vocabulary for them: its config
/// must have set `model.largest` to the task with the largest tables.
///
/// An external checkpoint is evaluated on prompts as text: the next tokens of every line of a file (perplexity), or the answers to
/// built-in tasks (`rung task prompt` shows them).
#[derive(Debug, clap::Args)]
pub struct Eval {
    /// The directory of a run, with run.toml and weights.safetensors; or a Hugging Face directory or GGUF file.
    #[arg(value_name = "MODEL")]
    directory: PathBuf,
    /// Task to evaluate; may be given several times [default: the run's own; a checkpoint has none]
    #[arg(long)]
    task: Vec<String>,
    /// Number of prompts of each task [default: 256; 64 for a checkpoint], or for a checkpoint a file with one on each line.
    #[arg(long, value_name = "COUNT|FILE")]
    prompts: Option<PromptsArgument>,
    /// Worked examples before each question of a task as text, for a checkpoint.
    #[arg(long, default_value_t = 2, value_name = "K", value_parser = clap::value_parser!(u16).range(0..=16))]
    shots: u16,
    /// Seed for the evaluation prompts. They never overlap with training prompts.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Weights to use instead of the run's, as safetensors.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceOption,
    #[command(flatten)]
    memory: MemoryOption,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

/// Default number of prompts of each task of a run.
const DEFAULT_PROMPTS: usize = 256;

/// The evaluation of one task.
struct TaskEvaluation {
    task: String,
    /// Length of a prompt.
    tokens: usize,
    /// Accuracy of guessing.
    baseline: f64,
    /// Whether the groups of `result` are numbers of hops.
    has_hops: bool,
    result: EvaluationResult,
}

impl Eval {
    /// Runs the command.
    ///
    /// # Errors
    /// The run cannot be read, or a task does not fit its model.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.memory.apply();
        if is_external_checkpoint(&self.directory) {
            if self.weights.is_some() || !self.device.is_native() {
                bail!("--weights and --device: expected a run, found an external checkpoint");
            }
            let (prompts, shots) = (self.prompts.as_ref(), self.shots.into());
            let request = CheckpointPromptOptions { prompts, tasks: &self.task, shots, seed: self.seed };
            return eval_text::evaluate(&self.directory, &request, self.json);
        }
        let prompts = PromptsArgument::count(self.prompts.as_ref(), &self.directory)?.unwrap_or(DEFAULT_PROMPTS);
        let path = self.directory.join(RUN_CONFIG);
        let run = RunConfig::read(&read_text(&path)?).and_then(|config| config.resolve());
        let run = run.with_context(|| format!("{}", path.display()))?;
        let tasks = if self.task.is_empty() { std::slice::from_ref(&run.config.task) } else { &self.task };
        let parse_source = |text: &String| -> Result<PromptSource, RunError> {
            let task = task::parse(text).map_err(|error| RunError::invalid_task("--task", error))?;
            PromptSource::new("--task", task, &run.fields, run.classes)
        };
        let mut sources = tasks.iter().map(parse_source).collect::<Result<Vec<_>, _>>()?;
        let network = match &self.weights {
            Some(file) => {
                let mut network = initial_network(&run)?;
                rung_nn::load(file, &mut network.weights)?;
                network
            }
            None => Network::open(&self.directory)?,
        };
        for source in &sources {
            let batch = BatchShape { prompts: prompts.min(BATCH_SIZE), tokens: source.task().length() };
            network.check_inference_memory("evaluation", batch)?;
        }
        let Network { model, weights, .. } = network;
        let device = self.device.open()?;
        let mut evaluations = Vec::new();
        for source in &mut sources {
            let bar = spinner(source.task().spec());
            let seed_and_purpose = (self.seed, PromptPurpose::Testing);
            let result = device.evaluate(&model, &weights, source, seed_and_purpose, prompts);
            bar.finish_and_clear();
            let task = source.task();
            evaluations.push(TaskEvaluation {
                task: task.spec(),
                tokens: task.length(),
                baseline: task.baseline(),
                has_hops: task.groups_by_hops(),
                result: result?,
            });
        }
        if self.json {
            let to_json = |TaskEvaluation { task, tokens, baseline, result, .. }: &TaskEvaluation| {
                json!({"run": self.directory, "stack": run.config.stack, "task": task, "tokens": tokens, "baseline": baseline,
                       "prompts": prompts, "seed": self.seed, "device": device.name(),
                       "loss": result.loss, "accuracy": result.accuracy})
            };
            let values: Vec<Value> = evaluations.iter().map(to_json).collect();
            // The output is an object for one task, and a list for several.
            let [value] = &values[..] else { return print_json(&Value::Array(values)).map(|()| ExitCode::SUCCESS) };
            print_json(value)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = format!("{} ({}, on {})\n", run.config.stack, self.directory.display(), device.name());
        for TaskEvaluation { task, tokens, baseline, has_hops, result } in &evaluations {
            writeln!(text, "{task}, {tokens} tokens, guessing scores {:.1}%", 100.0 * baseline)?;
            for (group, answers) in &result.accuracy {
                let (low, high) = answers.interval();
                let name = if *has_hops { format!("hop {group}") } else { "all".to_owned() };
                let percent = [answers.accuracy(), low, high].map(|fraction| format!("{:.2}%", 100.0 * fraction));
                let [mean, low, high] = percent;
                writeln!(text, "  {name:6} {mean:>8}  ({low} to {high}, {} questions, measured)", answers.count)?;
            }
        }
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
