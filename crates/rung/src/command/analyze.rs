//! `rung analyze NAME MODEL`: applies one of the instruments to a network.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use rung_inspect::analysis::{self, Finding, Instrument, InstrumentFn, InstrumentOptions};
use rung_nn::Network;
use rung_theory::spec;

use super::memory::MemoryOption;
use super::text_prompts::{PromptsArgument, TextRequest, announce, reads_text};
use crate::output::{check_destination, print, print_json, spinner, write_file};

/// Apply an instrument to a network: probe, ablate, lens and others.
#[derive(Debug, clap::Args)]
pub struct Analyze {
    /// Instrument; `rung explain` lists them, and `rung explain NAME` has its page.
    name: String,
    /// A folder written by `rung construct --out`, the directory of a finished run, a Hugging Face directory or a GGUF file.
    model: PathBuf,
    /// Use prompts of another task that fits the model, such as one with smaller tables. For a checkpoint of another program: as text, and
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
    /// Runs it.
    ///
    /// # Errors
    /// There is no such instrument, the folder cannot be read, the instrument does not fit, or a file cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        self.memory.apply();
        if let Some(path) = &self.svg {
            check_destination("--svg", path, &["svg"])?;
        }
        let names = || analysis::INSTRUMENTS.iter().map(|one| one.name);
        let Some(instrument) = analysis::instrument(&self.name) else {
            let hint = spec::nearest(&self.name, names());
            let hint = hint.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            bail!(
                "there is no instrument `{}`{hint} (there are {})",
                self.name,
                names().collect::<Vec<_>>().join(", ")
            );
        };
        let found = if reads_text(&self.model) { self.find_in_text(instrument)? } else { self.find(instrument)? };
        for (number, chart) in found.charts.iter().enumerate() {
            let Some(path) = &self.svg else { break };
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let name = if number == 0 { format!("{stem}.svg") } else { format!("{stem}-{}.svg", number + 1) };
            write_file(&path.with_file_name(name), chart.svg())?;
        }
        if self.json {
            print_json(&found.data)?;
        } else {
            print(&found.text)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Applies an instrument to a network with a task.
    fn find(&self, instrument: &Instrument) -> anyhow::Result<Finding> {
        let task = match &self.task[..] {
            [] => None,
            [task] => Some(task.clone()),
            tasks => {
                bail!("--task: found {}, expected one: several are for checkpoints of other programs", tasks.len())
            }
        };
        let prompts = PromptsArgument::count(self.prompts.as_ref(), &self.model)?;
        let options = InstrumentOptions { task, prompts, seed: self.seed, text: None };
        let bar = spinner("analyzing".to_owned());
        let found = match instrument.run {
            InstrumentFn::Single(run) => run(&Network::open(&self.model)?, &options),
            InstrumentFn::Double(run, _) => run(&Network::open(&self.model)?, &options),
        };
        bar.finish_and_clear();
        Ok(found?)
    }

    /// Applies an instrument to a checkpoint of another program, in single precision.
    fn find_in_text(&self, instrument: &Instrument) -> anyhow::Result<Finding> {
        let (prompts, shots) = (self.prompts.as_ref(), self.shots.into());
        let text = TextRequest { prompts, tasks: &self.task, shots, seed: self.seed }.read(&self.model)?;
        let bar = spinner(format!("opening {}", self.model.display()));
        let network = Network::<f32>::open(&self.model)?;
        bar.finish_and_clear();
        let cost = (instrument.prompts(), instrument.passes(network.model.depth()));
        announce(instrument.name, &network, &text, cost)?;
        let prompts = self.prompts.as_ref().map(|_| text.prompts.len());
        let options = InstrumentOptions { task: None, prompts, seed: self.seed, text: Some(Arc::new(text)) };
        let bar = spinner("analyzing".to_owned());
        let (InstrumentFn::Single(run) | InstrumentFn::Double(_, run)) = instrument.run;
        let found = run(&network, &options);
        bar.finish_and_clear();
        Ok(found?)
    }
}
