//! `rung falsify MODEL`: two prompts that a model cannot distinguish, or one that it answers wrongly.
//!
//! ```text
//! rung falsify runs/a --task "funccomp{hops=1,m=32}" --out witness.json
//! rung falsify --stack "linear{normaliser=no}" --set model.heads=1 --set model.head=4 --task "funccomp{hops=1,m=12}" --bits 4
//! rung witness check witness.json
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rung_falsify::page::WitnessPage;
use rung_falsify::{
    Method, MethodReport, Origin, RequestedPrecision, SearchBudget, SearchResult, TargetModel, falsify,
};
use rung_nn::file::write_atomically;
use rung_train::run::RunConfig;
use serde_json::json;

use super::memory::parse_memory;
use super::text_prompts::reads_text;
use crate::output::{check_destination, commas, print, print_json, spinner, write_file};
use crate::watch::Interrupt;

/// Search a model for a counterexample.
///
/// A counterexample (witness) is two prompts with different correct answers after which the model is in exactly the same state, or one
/// prompt that it answers wrongly.
///
/// Exit codes: 0 a witness was found, 1 none was found, 2 bad input, 130 interrupted.
#[derive(Debug, clap::Args)]
pub struct Falsify {
    /// Directory of a finished run or a construction, or a TOML run config (untrained).
    #[arg(required_unless_present = "stack")]
    model: Option<PathBuf>,
    /// Stack of an untrained model with random weights from --seed.
    #[arg(long, conflicts_with = "model", requires = "task")]
    stack: Option<String>,
    /// Config key of the untrained model, such as `model.head=4`; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", requires = "stack")]
    set: Vec<String>,
    /// Task of the prompts [default: the model's own]
    #[arg(long, value_name = "SPEC")]
    task: Option<String>,
    /// Round states (and, where there are full layers, messages) to this many bits.
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=24))]
    bits: Option<u32>,
    /// Rounded numbers lie between minus this and this [default: measured on some prompts]
    #[arg(long, requires = "bits")]
    range: Option<f64>,
    /// Time budget in seconds, for all methods together.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS", value_parser = seconds)]
    budget: f64,
    /// Memory for the table of states, with a unit: 512M, 512MB, 2GiB (KB = 1000; KiB and K = 1024).
    #[arg(long, default_value = "1G", value_name = "BYTES", value_parser = parse_memory)]
    memory: u64,
    /// Seed of the prompts, and of the weights of --stack.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Use one method only.
    #[arg(long, value_parser = method)]
    method: Option<Method>,
    /// Write the witness to this file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a self-contained HTML page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let found: f64 = text.parse().map_err(|_| format!("found {text:?}, expected seconds such as 60"))?;
    if found > 0.0 && found <= 1e6 {
        Ok(found)
    } else {
        Err(format!("found {found}, expected more than 0 seconds, at most 1000000"))
    }
}

fn method(text: &str) -> Result<Method, String> {
    let known = Method::ALL.iter().map(|method| method.name().replace(' ', "-"));
    let known: Vec<String> = known.collect();
    let index = known.iter().position(|name| name == text);
    index.map(|index| Method::ALL[index]).ok_or_else(|| format!("found {text:?}, expected one of {}", known.join(", ")))
}

impl Falsify {
    /// Runs it.
    ///
    /// # Errors
    /// The model or the task cannot be read, they do not fit each other, or a file cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        for (option, path, ending) in [("--out", &self.out, "json"), ("--html", &self.html, "html")] {
            if let Some(path) = path {
                check_destination(option, path, &[ending])?;
            }
        }
        let precision = self.bits.map_or(RequestedPrecision::Own, |bits| RequestedPrecision::Bits(bits, self.range));
        let origin = self.origin()?;
        origin.check_memory(self.memory)?;
        let target = TargetModel::open(origin, self.task.as_deref(), precision)?;
        let budget = SearchBudget {
            time: Duration::from_secs_f64(self.budget),
            memory: self.memory,
            seed: self.seed,
            only: self.method,
            most: u64::MAX,
        };
        let (interrupt, bar) = (Interrupt::install(), spinner("searching".to_owned()));
        let found = falsify(&target, &budget, &|method, candidates| {
            bar.set_message(format!("{}: {} tried", method.name(), commas(candidates)));
            !interrupt.requested()
        });
        bar.finish_and_clear();
        let found = found?;
        self.show(&target, &found)?;
        Ok(match (&found.witness, interrupt.requested()) {
            (Some(_), _) => ExitCode::SUCCESS,
            (None, true) => ExitCode::from(130),
            (None, false) => ExitCode::from(1),
        })
    }

    fn origin(&self) -> anyhow::Result<Origin> {
        let config = match (&self.model, &self.stack) {
            (Some(path), _) if reads_text(path) => bail!(
                "{} is a checkpoint of another program: it reads text, and a search for counterexamples needs the token ids of a task; \
                 `rung eval {} --task SPEC` counts its wrong answers",
                path.display(),
                path.display()
            ),
            (Some(path), _) if path.is_dir() => return Ok(Origin::Folder(path.clone())),
            (Some(path), _) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
                RunConfig::read(&text).with_context(|| format!("{}: a run as TOML", path.display()))?
            }
            (None, Some(stack)) => {
                let task = self.task.clone().unwrap_or_default();
                let config = RunConfig { seed: self.seed, ..RunConfig::new(stack, task) };
                self.set.iter().try_fold(config, |config, setting| config.with(setting))?
            }
            (None, None) => bail!("give the folder of a model, or --stack"),
        };
        Ok(Origin::Fresh(Box::new(config)))
    }

    fn show(&self, target: &TargetModel, found: &SearchResult) -> anyhow::Result<()> {
        let model = found.smaller.as_ref().unwrap_or(target);
        let page = match &found.witness {
            Some(witness) => Some(WitnessPage::new(witness, model)?),
            None => None,
        };
        if let (Some(path), Some(witness)) = (&self.out, &found.witness) {
            write_atomically(path, format!("{}\n", witness.text()).as_bytes())?;
        }
        if let (Some(path), Some(page)) = (&self.html, &page) {
            let file = self.out.as_ref().map_or_else(|| "witness.json".to_owned(), |out| out.display().to_string());
            write_file(path, page.html(&format!("rung witness check {file}"))?)?;
        }
        if self.json {
            return print_json(&json!({
                "model": target.network.name,
                "task": target.task().spec(),
                "kept": target.kept,
                "found": found.witness.is_some(),
                "method": found.method(),
                "tried": found.tried,
                "witness": found.witness,
            }));
        }
        let mut text = String::new();
        if page.is_none() {
            writeln!(text, "{} on {}: no witness found", target.network.name, target.task().spec())?;
        }
        for tried in &found.tried {
            writeln!(text, "  {}", line(tried))?;
        }
        if let Some(page) = &page {
            writeln!(text, "{}", page.text())?;
            match &self.out {
                Some(path) => writeln!(text, "check it with: rung witness check {}", path.display())?,
                None => writeln!(text, "--out FILE keeps it, for `rung witness check`")?,
            }
        }
        print(&text)
    }
}

/// What a method did, in a line.
fn line(tried: &MethodReport) -> String {
    let of = tried.total.map_or_else(String::new, |total| format!(" of {}", commas(total)));
    let mut line = format!("{}: {}{of} {} checked", tried.method.name(), commas(tried.candidates), tried.what);
    if tried.complete && tried.total.is_none() {
        line.push_str(", which is all");
    }
    if !tried.note.is_empty() {
        let _ = write!(line, "; {}", tried.note);
    }
    if tried.misled > 0 {
        let _ = write!(line, "; {} candidates failed the check", tried.misled);
    }
    line
}
