//! `rung trace DIR`: the attention edges of one forward pass, and the values of the registers.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use rung_engine::Scalar;
use rung_figure::figure::Chart as _;
use rung_inspect::trace::{AnswerTrace, TraceLimits};
use rung_nn::Network;
use rung_theory::task::{AnyTask, Prompt, seeded};

use super::construct::FloatFormat;
use super::memory::MemoryOption;
use super::text_prompts::{
    CheckpointPromptOptions, ForwardPasses, PromptsArgument, is_external_checkpoint, open_network, print_estimate,
};
use crate::output::{check_destination, print, print_json, with_spinner, write_file};

/// Show one forward pass: attention edges and register values.
///
/// Layer by layer: which token reads from which, with the attention weights or shares of the pass itself, and what the registers then hold.
#[derive(Debug, clap::Args)]
pub struct Trace {
    /// A folder written by `rung construct --out`, the directory of a finished run, a Hugging Face directory or a GGUF file.
    folder: PathBuf,
    /// For an external checkpoint: a file whose first line is the prompt, since it has no instances of a task.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["instance", "seed"])]
    prompts: Option<PathBuf>,
    #[command(flatten)]
    prompt: InstanceOptions,
    /// Position of the token whose answer is traced back, from 0 [default: the last question]
    #[arg(long, value_name = "POSITION")]
    position: Option<usize>,
    /// Smallest share that is followed: the attention weight or, in a recurrence or convolution, the norm of weight times value as a
    /// fraction of the sum over tokens.
    #[arg(long = "min-weight", alias = "least", default_value_t = TraceLimits::default().min_share, value_name = "SHARE", value_parser = parse_fraction)]
    min_share: f64,
    /// Largest number of tokens shown.
    #[arg(long, alias = "most", default_value_t = TraceLimits::default().max_tokens, value_name = "TOKENS")]
    max_tokens: usize,
    /// Floating-point format to run in.
    #[arg(long, value_enum, default_value_t = FloatFormat::F32)]
    precision: FloatFormat,
    /// Write a drawing to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a self-contained HTML page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    memory: MemoryOption,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

/// Options that select a prompt of a task.
#[derive(Debug, clap::Args)]
pub struct InstanceOptions {
    /// Index of the prompt in the task's enumeration, from 0, or the token ids of a prompt separated by commas.
    #[arg(long, value_name = "INDEX|IDS", conflicts_with = "seed")]
    instance: Option<String>,
    /// Seed of the prompt, where --instance is not given.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl InstanceOptions {
    /// The token ids of the prompt.
    ///
    /// # Errors
    /// There is no such instance.
    pub fn tokens(&self, task: &dyn AnyTask) -> anyhow::Result<Vec<u32>> {
        let mut prompt = Prompt::new();
        let Some(text) = &self.instance else {
            task.sample_prompt(&mut seeded(self.seed), &mut prompt);
            return Ok(prompt.tokens().to_vec());
        };
        if let Ok(index) = text.trim().parse::<u128>() {
            if !task.nth_prompt(index, &mut prompt) {
                match task.instance_count() {
                    Some(count) => {
                        bail!("--instance: found {index}, expected less than {count}, as {task} has no more")
                    }
                    None => bail!("--instance: instances of {task} cannot be enumerated; give --seed, or all ids"),
                }
            }
            return Ok(prompt.tokens().to_vec());
        }
        let ids = text.split(',').map(|id| id.trim().parse::<u32>());
        ids.collect::<Result<_, _>>()
            .with_context(|| format!("--instance: found {text:?}, expected an index, or ids such as 0,3,1"))
    }

    /// The option that selects the same prompt.
    pub fn option(&self) -> String {
        self.instance.as_ref().map_or_else(|| format!("--seed {}", self.seed), |text| format!("--instance {text}"))
    }
}

fn parse_fraction(text: &str) -> Result<f64, String> {
    let fraction: f64 = text.parse().map_err(|_| format!("found {text:?}, expected a fraction such as 0.05"))?;
    if (0.001..=1.0).contains(&fraction) { Ok(fraction) } else { Err(format!("found {fraction}, expected 0.001 to 1")) }
}

impl Trace {
    /// Runs the command.
    ///
    /// # Errors
    /// The folder cannot be read, there is no such instance or position, or a file cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.memory.apply();
        for (option, path, ending) in [("--svg", &self.svg, "svg"), ("--html", &self.html, "html")] {
            if let Some(path) = path {
                check_destination(option, path, &[ending])?;
            }
        }
        match self.precision {
            FloatFormat::F32 => self.trace::<f32>(),
            FloatFormat::F64 => self.trace::<f64>(),
        }
    }

    fn trace<S: Scalar>(&self) -> anyhow::Result<ExitCode> {
        let trace =
            if is_external_checkpoint(&self.folder) { self.trace_checkpoint::<S>()? } else { self.trace_task::<S>()? };
        if let Some(path) = &self.svg {
            write_file(path, trace.svg())?;
        }
        if let Some(path) = &self.html {
            let prompt = self.prompts.as_ref().map(|file| format!("--prompts {}", file.display()));
            let option = prompt.unwrap_or_else(|| self.prompt.option());
            let command = format!("rung trace {} {option}", self.folder.display());
            write_file(path, trace.html(&command)?)?;
        }
        if self.json {
            print_json(&serde_json::to_value(&trace)?)?;
        } else {
            print(&trace.text())?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Traces a network on a prompt of its task.
    fn trace_task<S: Scalar>(&self) -> anyhow::Result<AnswerTrace> {
        if let Some(file) = &self.prompts {
            bail!("--prompts: found {}, expected --instance or --seed: this model has a task", file.display());
        }
        let network = Network::<S>::open(&self.folder)?;
        let tokens = self.prompt.tokens(network.task()?)?;
        let trace = with_spinner("tracing", || {
            AnswerTrace::record(&network.name, &network, &tokens, self.position, self.limits())
        });
        Ok(trace?)
    }

    /// Traces an external checkpoint, which has no registers.
    fn trace_checkpoint<S: Scalar>(&self) -> anyhow::Result<AnswerTrace> {
        let Some(file) = &self.prompts else {
            bail!(
                "{} is an external checkpoint, without registers and instances of a task: give --prompts FILE, and the first line is traced",
                self.folder.display()
            );
        };
        let file = PromptsArgument::File(file.clone());
        let prompts =
            CheckpointPromptOptions { prompts: Some(&file), tasks: &[], shots: 0, seed: 0 }.read(&self.folder)?;
        let network = open_network::<S>(&self.folder)?;
        print_estimate("trace", &network, &prompts, ForwardPasses { max_prompts: Some(1), passes_per_prompt: 1 })?;
        let trace = with_spinner("tracing", || {
            AnswerTrace::record_text(&network, &prompts.prompts[0], self.position, self.limits())
        });
        Ok(trace?)
    }

    fn limits(&self) -> TraceLimits {
        TraceLimits { min_share: self.min_share, max_tokens: self.max_tokens }
    }
}
