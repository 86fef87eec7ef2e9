//! `rung analyze NAME MODEL`: applies one of the instruments to a network.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use rung_inspect::analysis::{self, InstrumentFn, InstrumentOptions};
use rung_nn::Network;
use rung_nn::file::write_atomically;
use rung_theory::spec;

use crate::output::{check_destination, print, print_json, spinner};

/// Apply an instrument to a network: probe, ablate, lens and others.
#[derive(Debug, clap::Args)]
pub struct Analyze {
    /// Instrument; `rung explain` lists them, and `rung explain NAME` has its page.
    name: String,
    /// A folder written by `rung construct --out`, or the directory of a finished run.
    model: PathBuf,
    /// Use prompts of another task that fits the model, such as one with smaller tables.
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// Number of prompts [default: as many as take a few seconds]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    prompts: Option<u32>,
    /// Seed of the prompts.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Write the chart to this file; further charts get -2, -3 before the ending.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
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
        let prompts = self.prompts.map(|prompts| prompts as usize);
        let options = InstrumentOptions { task: self.task.clone(), prompts, seed: self.seed };
        let bar = spinner("analyzing".to_owned());
        let found = match instrument.run {
            InstrumentFn::Single(run) => run(&Network::open(&self.model)?, &options)?,
            InstrumentFn::Double(run) => run(&Network::open(&self.model)?, &options)?,
        };
        bar.finish_and_clear();
        for (number, chart) in found.charts.iter().enumerate() {
            let Some(path) = &self.svg else { break };
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            let name = if number == 0 { format!("{stem}.svg") } else { format!("{stem}-{}.svg", number + 1) };
            write_atomically(&path.with_file_name(name), chart.svg().as_bytes())?;
        }
        if self.json {
            print_json(&found.data)?;
        } else {
            print(&found.text)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
