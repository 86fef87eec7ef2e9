//! `rung analyze NAME MODEL`: runs one of the analyses of a network.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use rung_inspect::analysis::{self, Analysis, AnalysisFn, AnalysisOptions, AnalysisOutput};
use rung_nn::Network;
use rung_theory::spec;

use super::memory::MemoryOption;
use super::text_prompts::{
    CheckpointPromptOptions, ForwardPasses, PromptsArgument, is_external_checkpoint, open_network, print_estimate,
    prompt_progress,
};
use crate::output::{check_destination, print, print_json, progress_bar, spinner, write_file};

/// Run an analysis of a network: probe, ablate, lens and others.
#[derive(Debug, clap::Args)]
pub struct Analyze {
    /// Analysis; `rung explain` lists them, and `rung explain NAME` has its page.
    name: String,
    /// A folder written by `rung construct --out`, the directory of a finished run, a Hugging Face directory or a GGUF file.
    model: PathBuf,
    /// Use prompts of another task that fits the model, such as one with smaller tables. For an external checkpoint: as text, and
    /// may be given several times.
    #[arg(long, value_name = "TASK")]
    task: Vec<String>,
    /// Number of prompts [default: as many as take a few seconds], or for a checkpoint a file with one on each line.
    #[arg(long, value_name = "COUNT|FILE")]
    prompts: Option<PromptsArgument>,
    /// Worked examples before each question of a task as text, for a checkpoint.
    #[arg(long, default_value_t = 2, value_name = "K", value_parser = clap::value_parser!(u16).range(0..=16))]
    shots: u16,
    /// Seed of the prompts.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write the chart to this file; further charts get -2, -3 before the ending.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    memory: MemoryOption,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl Analyze {
    /// Runs the command.
    ///
    /// # Errors
    /// There is no such analysis, the folder cannot be read, the analysis does not fit, or a file cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.memory.apply();
        if let Some(path) = &self.svg {
            check_destination("--svg", path, &["svg"])?;
        }
        let names = || analysis::ANALYSES.iter().map(|analysis| analysis.name);
        let Some(analysis) = analysis::find_analysis(&self.name) else {
            let nearest = spec::nearest(&self.name, names());
            let hint = nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
            bail!("there is no analysis `{}`{hint} (there are {})", self.name, names().collect::<Vec<_>>().join(", "));
        };
        let output =
            if is_external_checkpoint(&self.model) { self.run_on_text(analysis)? } else { self.run_on_task(analysis)? };
        for (number, chart) in output.charts.iter().enumerate() {
            let Some(path) = &self.svg else { break };
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let name = if number == 0 { format!("{stem}.svg") } else { format!("{stem}-{}.svg", number + 1) };
            write_file(&path.with_file_name(name), chart.svg())?;
        }
        if self.json {
            print_json(&output.data)?;
        } else {
            print(&output.text)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Runs an analysis of a network with a task.
    fn run_on_task(&self, analysis: &Analysis) -> anyhow::Result<AnalysisOutput> {
        let task = match &self.task[..] {
            [] => None,
            [task] => Some(task.clone()),
            tasks => {
                bail!("--task: found {}, expected one: several are for external checkpoints", tasks.len())
            }
        };
        let prompts = PromptsArgument::count(self.prompts.as_ref(), &self.model)?;
        let options = AnalysisOptions { task, prompts, seed: self.seed, ..AnalysisOptions::default() };
        let bar = spinner("analyzing".to_owned());
        let output = match analysis.run {
            AnalysisFn::F32(run) => run(&Network::open(&self.model)?, &options),
            AnalysisFn::F64WithF32Fallback(run, _) => run(&Network::open(&self.model)?, &options),
        };
        bar.finish_and_clear();
        Ok(output?)
    }

    /// Runs an analysis of an external checkpoint, in single precision.
    fn run_on_text(&self, analysis: &Analysis) -> anyhow::Result<AnalysisOutput> {
        let (prompts, shots) = (self.prompts.as_ref(), self.shots.into());
        let text = CheckpointPromptOptions { prompts, tasks: &self.task, shots, seed: self.seed }.read(&self.model)?;
        let network = open_network::<f32>(&self.model)?;
        let passes = ForwardPasses {
            max_prompts: analysis.max_text_prompts(),
            passes_per_prompt: analysis.forward_passes(network.model.depth()),
        };
        print_estimate(analysis.name, &network, &text, passes)?;
        let prompts = self.prompts.as_ref().map(|_| text.prompts.len());
        let count = text.prompts.len().min(passes.max_prompts.unwrap_or(usize::MAX));
        let bar = progress_bar((count * passes.passes_per_prompt) as u64).with_message("prompts analyzed");
        let progress = prompt_progress(&bar);
        let options = AnalysisOptions { task: None, prompts, seed: self.seed, text: Some(Arc::new(text)), progress };
        let (AnalysisFn::F32(run) | AnalysisFn::F64WithF32Fallback(_, run)) = analysis.run;
        let output = run(&network, &options);
        bar.finish_and_clear();
        Ok(output?)
    }
}
