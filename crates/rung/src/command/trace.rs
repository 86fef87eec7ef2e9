//! `rung trace DIR`: the attention edges of one forward pass, and the values of the registers.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use rung_engine::Scalar;
use rung_figure::figure::Chart as _;
use rung_inspect::trace::{Cut, Picture};
use rung_nn::Network;
use rung_nn::file::write_atomically;
use rung_theory::task::{AnyTask, Prompt, seeded};

use super::construct::Precision;
use crate::output::{check_destination, print, print_json, spinner};

/// Show one forward pass: attention edges and register values.
///
/// Layer by layer: which token reads from which, with the attention weights of the pass itself, and what the registers then hold.
#[derive(Debug, clap::Args)]
pub struct Trace {
    /// A folder written by `rung construct --out`, or the directory of a finished run.
    folder: PathBuf,
    #[command(flatten)]
    prompt: InstanceOptions,
    /// Position of the token whose answer is traced back, from 0 [default: the last question]
    #[arg(long, value_name = "POSITION")]
    position: Option<usize>,
    /// Smallest attention weight that is followed.
    #[arg(long, alias = "least", default_value_t = Cut::default().share, value_name = "WEIGHT", value_parser = fraction)]
    min_weight: f64,
    /// Largest number of tokens shown.
    #[arg(long, alias = "most", default_value_t = Cut::default().tokens, value_name = "TOKENS")]
    max_tokens: usize,
    /// Floating-point format to run in.
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    precision: Precision,
    /// Write a drawing to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a self-contained HTML page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

/// Which prompt of a task.
#[derive(Debug, clap::Args)]
pub struct InstanceOptions {
    /// Number of the task's instance, or all token ids of a prompt separated by commas.
    #[arg(long, value_name = "NUMBER|IDS", conflicts_with = "seed")]
    instance: Option<String>,
    /// Seed of the prompt, where --instance is not given.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl InstanceOptions {
    /// The prompt's ids.
    ///
    /// # Errors
    /// There is no such instance.
    pub fn tokens(&self, task: &dyn AnyTask) -> anyhow::Result<Vec<u32>> {
        let mut prompt = Prompt::new();
        let Some(text) = &self.instance else {
            task.prompt(&mut seeded(self.seed), &mut prompt);
            return Ok(prompt.tokens().to_vec());
        };
        if let Ok(number) = text.trim().parse::<u128>() {
            if !task.nth_prompt(number, &mut prompt) {
                match task.instances() {
                    Some(count) => {
                        bail!("--instance: found {number}, expected less than {count}, as {task} has no more")
                    }
                    None => bail!("--instance: instances of {task} cannot be counted off; give --seed, or all ids"),
                }
            }
            return Ok(prompt.tokens().to_vec());
        }
        let ids = text.split(',').map(|id| id.trim().parse::<u32>());
        ids.collect::<Result<_, _>>()
            .with_context(|| format!("--instance: found {text:?}, expected a number, or ids such as 0,3,1"))
    }

    /// The option that chooses the same prompt.
    pub fn flag(&self) -> String {
        self.instance.as_ref().map_or_else(|| format!("--seed {}", self.seed), |text| format!("--instance {text}"))
    }
}

fn fraction(text: &str) -> Result<f64, String> {
    let found: f64 = text.parse().map_err(|_| format!("found {text:?}, expected a fraction such as 0.05"))?;
    if (0.001..=1.0).contains(&found) { Ok(found) } else { Err(format!("found {found}, expected 0.001 to 1")) }
}

impl Trace {
    /// Runs it.
    ///
    /// # Errors
    /// The folder cannot be read, there is no such instance or position, or a file cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        for (option, path, ending) in [("--svg", &self.svg, "svg"), ("--html", &self.html, "html")] {
            if let Some(path) = path {
                check_destination(option, path, &[ending])?;
            }
        }
        match self.precision {
            Precision::F32 => self.trace::<f32>(),
            Precision::F64 => self.trace::<f64>(),
        }
    }

    fn trace<S: Scalar>(&self) -> anyhow::Result<ExitCode> {
        let network = Network::<S>::open(&self.folder)?;
        let tokens = self.prompt.tokens(network.task()?)?;
        let bar = spinner("tracing".to_owned());
        let cut = Cut { share: self.min_weight, tokens: self.max_tokens };
        let picture = Picture::take(&network.name, &network, &tokens, self.position, cut)?;
        bar.finish_and_clear();
        if let Some(path) = &self.svg {
            write_atomically(path, picture.svg().as_bytes())?;
        }
        if let Some(path) = &self.html {
            let command = format!("rung trace {} {}", self.folder.display(), self.prompt.flag());
            write_atomically(path, picture.html(&command)?.as_bytes())?;
        }
        if self.json {
            print_json(&serde_json::to_value(&picture)?)?;
        } else {
            print(&picture.text())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
