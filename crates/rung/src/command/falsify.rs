//! `rung falsify MODEL`: two prompts that a model cannot distinguish, or one that it answers wrongly.
//!
//! ```text
//! rung falsify runs/a --task "funccomp{hops=1,m=32}" --out witness.json
//! rung falsify --stack "linear{normaliser=no}" --set model.heads=1 --set model.head=4 --task "funccomp{hops=1,m=12}" --bits 4
//! rung witness check witness.json
//! rung falsify model.gguf --task "funccomp{hops=2,m=4,n=[1]}" --shots 4
//! ```

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
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

use super::ask::{DEFAULT_SHOTS, StyleName};
use super::falsify_text::ExternalCheckpointSearch;
use super::memory::parse_memory;
use super::text_prompts::is_external_checkpoint;
use crate::output::{check_destination, print, print_json, spinner, with_commas, write_file};
use crate::watch::Interrupt;

/// Search a model for a counterexample.
///
/// A counterexample (witness) is two prompts with different correct answers after which the model is in exactly the same state, or one
/// prompt that it answers wrongly. An external checkpoint is asked a task as text: two prompts that differ only in what one look-up reads and
/// have different correct answers, to which it gives the same one; or one that it answers wrongly.
///
/// Exit codes: 0 a witness was found, 1 none was found, 2 bad input, 130 interrupted.
#[derive(Debug, clap::Args)]
pub struct Falsify {
    /// Directory of a finished run or a construction, a TOML run config (untrained), or a Hugging Face directory or GGUF file.
    #[arg(required_unless_present = "stack")]
    model: Option<PathBuf>,
    /// Stack of an untrained model with random weights from --seed.
    #[arg(long, conflicts_with = "model", requires = "task")]
    stack: Option<String>,
    /// Config key of the untrained model, such as `model.head=4`; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", requires = "stack")]
    set: Vec<String>,
    /// Task of the prompts [default: the model's own; a checkpoint has none]
    #[arg(long, value_name = "SPEC")]
    task: Option<String>,
    /// Round states (and, where there are full layers, messages) to this many bits.
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=24))]
    bits: Option<u32>,
    /// Rounded numbers lie between minus this and this [default: measured on some prompts]
    #[arg(long, requires = "bits")]
    range: Option<f64>,
    /// Time budget in seconds, for all methods together.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS", value_parser = parse_seconds)]
    budget: f64,
    /// Memory for the table of states, with a unit: 512M, 512MB, 2GiB (KB = 1000; KiB and K = 1024).
    #[arg(long, default_value = "1G", value_name = "BYTES", value_parser = parse_memory)]
    memory: u64,
    /// Seed of the prompts, and of the weights of --stack.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Wording of the prompts of a checkpoint [default: table]; `tokens` are those of a construction, as `rung export` names them.
    #[arg(long, value_enum)]
    style: Option<StyleName>,
    /// Worked examples before each question of a checkpoint [default: 2; style tokens: 0]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(0..=16))]
    shots: Option<u16>,
    /// Use one method only.
    #[arg(long, value_parser = parse_method)]
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

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("found {text:?}, expected seconds such as 60"))?;
    if seconds > 0.0 && seconds <= 1e6 {
        Ok(seconds)
    } else {
        Err(format!("found {seconds}, expected more than 0 seconds, at most 1000000"))
    }
}

fn parse_method(text: &str) -> Result<Method, String> {
    let names: Vec<String> = Method::ALL.iter().map(|method| method.name().replace(' ', "-")).collect();
    let index = names.iter().position(|name| name == text);
    index.map(|index| Method::ALL[index]).ok_or_else(|| format!("found {text:?}, expected one of {}", names.join(", ")))
}

impl Falsify {
    /// Runs the command.
    ///
    /// # Errors
    /// The model or the task cannot be read, they do not fit each other, or a file cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        for (option, path, ending) in [("--out", &self.out, "json"), ("--html", &self.html, "html")] {
            if let Some(path) = path {
                check_destination(option, path, &[ending])?;
            }
        }
        if let Some(path) = self.model.as_ref().filter(|path| is_external_checkpoint(path)) {
            return self.search_external_checkpoint(path);
        }
        if self.style.is_some() || self.shots.is_some() {
            bail!("--style and --shots: expected an external checkpoint, which reads text");
        }
        let precision =
            self.bits.map_or(RequestedPrecision::AsTrained, |bits| RequestedPrecision::Bits(bits, self.range));
        let origin = self.origin()?;
        origin.check_memory(self.memory)?;
        let target = TargetModel::open(origin, self.task.as_deref(), precision)?;
        let budget = SearchBudget {
            time: Duration::from_secs_f64(self.budget),
            memory_bytes: self.memory,
            seed: self.seed,
            only_method: self.method,
            max_candidates: u64::MAX,
        };
        let (interrupt, bar) = (Interrupt::install(), spinner("searching".to_owned()));
        let result = falsify(&target, &budget, &|method, candidates| {
            bar.set_message(format!("{}: {} tried", method.name(), with_commas(candidates)));
            !interrupt.requested()
        });
        bar.finish_and_clear();
        let result = result?;
        self.report(&target, &result)?;
        Ok(match (&result.witness, interrupt.requested()) {
            (Some(_), _) => ExitCode::SUCCESS,
            (None, true) => ExitCode::from(130),
            (None, false) => ExitCode::from(1),
        })
    }

    /// Searches an external checkpoint.
    fn search_external_checkpoint(&self, model: &Path) -> anyhow::Result<ExitCode> {
        if self.bits.is_some() || self.method.is_some() || self.html.is_some() {
            bail!("--bits, --method and --html: expected a run or a construction, found an external checkpoint");
        }
        let Some(task) = &self.task else {
            bail!("{} is an external checkpoint and has no task: give --task SPEC", model.display());
        };
        let writer = self.style.unwrap_or(StyleName::Table).writer(self.shots.map(usize::from), DEFAULT_SHOTS);
        let budget = Duration::from_secs_f64(self.budget);
        let out = self.out.as_deref();
        ExternalCheckpointSearch { model, task, writer, seed: self.seed, budget, out, json: self.json }.run()
    }

    fn origin(&self) -> anyhow::Result<Origin> {
        let config = match (&self.model, &self.stack) {
            (Some(path), _) if path.is_dir() => return Ok(Origin::Folder(path.clone())),
            (Some(path), _) => {
                let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
                RunConfig::read(&text).with_context(|| format!("reading {} as a TOML run config", path.display()))?
            }
            (None, Some(stack)) => {
                let task = self.task.clone().unwrap_or_default();
                let config = RunConfig { seed: self.seed, ..RunConfig::new(stack, task) };
                self.set.iter().try_fold(config, |config, setting| config.with(setting))?
            }
            (None, None) => bail!("give the folder of a model, or --stack"),
        };
        Ok(Origin::Untrained(Box::new(config)))
    }

    fn report(&self, target: &TargetModel, result: &SearchResult) -> anyhow::Result<()> {
        let witness_target = result.target_with_shrunk_task.as_ref().unwrap_or(target);
        let page = match &result.witness {
            Some(witness) => Some(WitnessPage::new(witness, witness_target)?),
            None => None,
        };
        if let (Some(path), Some(witness)) = (&self.out, &result.witness) {
            write_atomically(path, format!("{}\n", witness.to_json()).as_bytes())?;
        }
        if let (Some(path), Some(page)) = (&self.html, &page) {
            let file = self.out.as_ref().map_or_else(|| "witness.json".to_owned(), |out| out.display().to_string());
            write_file(path, page.html(&format!("rung witness check {file}"))?)?;
        }
        if self.json {
            return print_json(&json!({
                "model": target.network.name,
                "task": target.task().spec(),
                "kept": target.precision,
                "found": result.witness.is_some(),
                "method": result.method(),
                "tried": result.reports,
                "witness": result.witness,
            }));
        }
        let mut text = String::new();
        if page.is_none() {
            writeln!(text, "{} on {}: no witness found", target.network.name, target.task().spec())?;
        }
        for method in &result.reports {
            writeln!(text, "  {}", method_line(method))?;
        }
        if let Some(page) = &page {
            writeln!(text, "{}", page.text())?;
            match &self.out {
                Some(path) => writeln!(text, "check it with: rung witness check {}", path.display())?,
                None => writeln!(text, "--out FILE writes it, for `rung witness check`")?,
            }
        }
        print(&text)
    }
}

/// One line about the search by one method.
fn method_line(report: &MethodReport) -> String {
    let of_total = report.total.map_or_else(String::new, |total| format!(" of {}", with_commas(total)));
    let mut line =
        format!("{}: {}{of_total} {} checked", report.method.name(), with_commas(report.candidates), report.unit);
    if report.complete && report.total.is_none() {
        line.push_str(", which is all");
    }
    if !report.note.is_empty() {
        let _ = write!(line, "; {}", report.note);
    }
    if report.unconfirmed > 0 {
        let _ = write!(line, "; {} candidates failed the check", report.unconfirmed);
    }
    line
}
