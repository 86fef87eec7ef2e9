//! `rung convert MODEL --to MIXER`: full layers replaced by recurrent ones, one by one.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use rung_figure::figure::Chart as _;
use rung_inspect::analysis::AnalysisOptions;
use rung_inspect::analysis::convert::text::{TextConvertOptions, convert_text};
use rung_inspect::analysis::convert::{ConvertOptions, convert};
use rung_nn::families::replaced_mixers;
use rung_nn::network::files::RUN_CONFIG;
use rung_nn::{Network, Provenance};
use serde_json::json;

use super::memory::MemoryOption;
use super::text_prompts::{
    CheckpointPromptOptions, ForwardPasses, PromptsArgument, is_external_checkpoint, open_network, print_estimate,
};
use crate::output::{check_destination, print, print_json, progress_bar, write_file};

/// Replace full layers of a trained network by recurrent ones.
///
/// Each full layer is distilled on its own inputs and outputs; then layers are replaced greedily while accuracy stays above the
/// threshold. See `rung explain convert`.
///
/// An external checkpoint is distilled on prompts as text, and layers are replaced while perplexity stays below the threshold
/// times the teacher's.
#[derive(Debug, clap::Args)]
pub struct Convert {
    /// The directory of a finished run, a folder written by `rung construct --out`, a Hugging Face directory or a GGUF file.
    model: PathBuf,
    /// Mixer that replaces full attention, such as `gdn` or `window{size=8}`.
    #[arg(long, value_name = "MIXER")]
    to: String,
    /// Distil and score on another task that fits the model.
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// For a checkpoint: a file with a prompt on each line.
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// For a checkpoint: layers that may be replaced, from 0 [default: all full ones]
    #[arg(long, value_delimiter = ',', value_name = "LIST", requires = "prompts")]
    layers: Vec<usize>,
    /// For a checkpoint: the most layers that are replaced.
    #[arg(long, default_value_t = 2, value_name = "N")]
    replace: usize,
    /// Stop where accuracy would fall below this (`-inf` never, `inf` at once) [default: two points below the teacher's]. For a
    /// checkpoint: where perplexity would exceed this times the teacher's [default: 1.5]
    #[arg(long, value_name = "ACCURACY", allow_hyphen_values = true)]
    threshold: Option<f64>,
    /// Distillation steps per layer.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    /// Prompts per step.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    batch: u32,
    /// Peak learning rate of distillation.
    #[arg(long, default_value_t = 3e-3)]
    rate: f64,
    /// Seed of the prompts and of the new layers' initial weights.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write the networks `best` and `most-linear` to this directory; of a checkpoint, the mixers that replaced layers. Commands take
    /// that directory as a checkpoint for as long as the one that was converted stays where it is.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write a chart of the orders of replacement to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    memory: MemoryOption,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl Convert {
    /// Runs the command.
    ///
    /// # Errors
    /// The model cannot be read, the mixer or the task does not fit, or a file cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.memory.apply();
        if let Some(path) = &self.svg {
            check_destination("--svg", path, &["svg"])?;
        }
        if self.threshold.is_some_and(f64::is_nan) {
            bail!("--threshold: found NaN, expected an accuracy such as 0.9, or -inf, or inf");
        }
        if !(self.rate.is_finite() && self.rate > 0.0) {
            bail!("--rate: found {}, expected a positive number", self.rate);
        }
        if is_external_checkpoint(&self.model) {
            return self.convert_text();
        }
        if let Some(file) = &self.prompts {
            bail!("--prompts: found {}, expected an external checkpoint with it", file.display());
        }
        let network = Network::<f32>::open(&self.model)?;
        if self.out.is_some() && !matches!(network.provenance, Provenance::Run(_)) {
            let config = self.model.join(RUN_CONFIG);
            bail!("--out: found no {}, expected a run: only runs can be written as runs", config.display());
        }
        let options = ConvertOptions {
            to: self.to.clone(),
            analysis: AnalysisOptions { task: self.task.clone(), seed: self.seed, ..AnalysisOptions::default() },
            threshold: self.threshold,
            steps: self.steps as usize,
            batch: self.batch as usize,
            rate: self.rate,
        };
        let full_layers = network.plan.full_layers() as u64;
        let bar = progress_bar(full_layers * u64::from(self.steps)).with_message("distilling");
        let (conversion, students) = convert(&network, &options, &|| bar.inc(1))?;
        bar.finish_and_clear();
        if let Some(path) = &self.svg {
            write_file(path, conversion.chart().svg())?;
        }
        let mut directories = Vec::new();
        for (name, student) in ["best", "most-linear"].iter().zip(&students) {
            let Some(out) = &self.out else { break };
            let directory = out.join(name);
            student.save(&directory)?;
            directories.push(directory);
        }
        if self.json {
            let mut value = serde_json::to_value(&conversion)?;
            value["written"] = json!(directories);
            print_json(&value)?;
        } else {
            let mut text = conversion.text();
            for directory in &directories {
                let _ = writeln!(text, "  {}", directory.display());
            }
            print(&text)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Converts an external checkpoint, on prompts as text.
    fn convert_text(&self) -> anyhow::Result<ExitCode> {
        if self.svg.is_some() {
            bail!("--svg: expected a run, found an external checkpoint");
        }
        let prompts = self.prompts.clone().map(PromptsArgument::File);
        let (tasks, seed): (Vec<String>, u64) = (self.task.clone().into_iter().collect(), self.seed);
        let text =
            CheckpointPromptOptions { prompts: prompts.as_ref(), tasks: &tasks, shots: 2, seed }.read(&self.model)?;
        let network = open_network::<f32>(&self.model)?;
        let candidates = if self.layers.is_empty() { network.plan.full_layers() } else { self.layers.len() };
        // A distillation step costs about three passes over its prompt; in each round of replacement every candidate is run on a fifth of the
        // prompts, for validation. Measuring the perplexities before and after costs at most two passes over all prompts.
        let validation_prompts = text.prompts.len().div_ceil(5);
        let passes = 2
            + (3 * self.steps as usize).div_ceil(text.prompts.len())
            + self.replace * candidates * validation_prompts / text.prompts.len();
        let passes = ForwardPasses { max_prompts: None, passes_per_prompt: passes };
        print_estimate("convert", &network, &text, passes)?;
        let options = TextConvertOptions {
            to: self.to.clone(),
            layers: self.layers.clone(),
            max_replaced: self.replace,
            max_perplexity_ratio: self.threshold.unwrap_or(1.5),
            steps: self.steps as usize,
            rate: self.rate,
            seed,
        };
        let bar = progress_bar(u64::from(self.steps) + (self.replace * candidates) as u64).with_message("distilling");
        let result = convert_text(&network, &text, &options, &|| bar.inc(1));
        bar.finish_and_clear();
        let (conversion, replaced_layers) = result?;
        if let Some(out) = &self.out {
            replaced_mixers::save(out, &self.model, &replaced_layers)?;
        }
        if self.json {
            let mut value = serde_json::to_value(&conversion)?;
            value["written"] = json!(self.out);
            print_json(&value)?;
        } else {
            let directory = self.out.as_ref().map(|out| format!("\n  {}\n", out.display())).unwrap_or_default();
            print(&format!("{}{directory}", conversion.text()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
