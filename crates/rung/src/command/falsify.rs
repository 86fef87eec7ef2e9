//! `rung falsify MODEL`: two inputs that a model cannot tell apart, or one that it answers wrongly.
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
use rung_falsify::page::Page;
use rung_falsify::{
    Method, MethodReport, Origin, RequestedPrecision, SearchBudget, SearchResult, TargetModel, falsify,
};
use rung_nn::file::write_atomically;
use rung_train::run::RunConfig;
use serde_json::json;

use crate::output::{check_destination, grouped, print, print_json, spinner};
use crate::watch::Interrupt;

/// Search a model for two inputs with different answers that it cannot tell apart, or for one that it answers wrongly.
///
/// Exit codes: 0 a witness was found, 1 none was found, 2 bad input, 130 interrupted.
#[derive(Debug, clap::Args)]
pub struct Falsify {
    /// The folder of a finished run or of a construction, or a run as TOML, untrained.
    #[arg(required_unless_present = "stack")]
    model: Option<PathBuf>,
    /// An untrained model of this stack, with weights from --seed.
    #[arg(long, conflicts_with = "model", requires = "task")]
    stack: Option<String>,
    /// A key of the untrained model's config, such as `model.head=4`; may be given several times.
    #[arg(long, value_name = "KEY=VALUE", requires = "stack")]
    set: Vec<String>,
    /// The task; the model's own if not given.
    #[arg(long, value_name = "SPEC")]
    task: Option<String>,
    /// Keep states (and, where there are full layers, messages) in so many bits.
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(u32).range(1..=24))]
    bits: Option<u32>,
    /// Numbers in few bits lie between minus this and this; measured on some prompts if not given.
    #[arg(long, requires = "bits")]
    range: Option<f64>,
    /// Seconds for all methods together.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS", value_parser = seconds)]
    budget: f64,
    /// Bytes for the table of states, such as 512M.
    #[arg(long, default_value = "1G", value_parser = bytes)]
    memory: u64,
    /// Seed of every prompt that is drawn, and of the weights of --stack.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// One method alone.
    #[arg(long, value_parser = method)]
    method: Option<Method>,
    /// Write the witness into this file.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a self-contained page.
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

fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("found {text:?}, expected at least 1K, such as 512M or 2G");
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" | "k" => 1 << 10,
        "M" | "m" => 1 << 20,
        "G" | "g" => 1 << 30,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(unit).filter(|bytes| *bytes >= 1 << 10).ok_or_else(wrong)
}

fn method(text: &str) -> Result<Method, String> {
    let known = Method::ALL.iter().map(|method| method.name().replace(' ', "-"));
    let known: Vec<String> = known.collect();
    let at = known.iter().position(|name| name == text);
    at.map(|at| Method::ALL[at]).ok_or_else(|| format!("found {text:?}, expected one of {}", known.join(", ")))
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
        let asked = self.bits.map_or(RequestedPrecision::Own, |bits| RequestedPrecision::Bits(bits, self.range));
        let target = TargetModel::open(self.origin()?, self.task.as_deref(), asked)?;
        let budget = SearchBudget {
            time: Duration::from_secs_f64(self.budget),
            memory: self.memory,
            seed: self.seed,
            only: self.method,
            most: u64::MAX,
        };
        let (interrupt, bar) = (Interrupt::install(), spinner("searching".to_owned()));
        let found = falsify(&target, &budget, &|method, candidates| {
            bar.set_message(format!("{}: {} tried", method.name(), grouped(candidates)));
            !interrupt.seen()
        });
        bar.finish_and_clear();
        let found = found?;
        self.show(&target, &found)?;
        Ok(match (&found.witness, interrupt.seen()) {
            (Some(_), _) => ExitCode::SUCCESS,
            (None, true) => ExitCode::from(130),
            (None, false) => ExitCode::from(1),
        })
    }

    fn origin(&self) -> anyhow::Result<Origin> {
        let config = match (&self.model, &self.stack) {
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
        let asked = found.smaller.as_ref().unwrap_or(target);
        let page = match &found.witness {
            Some(witness) => Some(Page::new(witness, asked)?),
            None => None,
        };
        if let (Some(path), Some(witness)) = (&self.out, &found.witness) {
            write_atomically(path, format!("{}\n", witness.text()).as_bytes())?;
        }
        if let (Some(path), Some(page)) = (&self.html, &page) {
            let file = self.out.as_ref().map_or_else(|| "witness.json".to_owned(), |out| out.display().to_string());
            write_atomically(path, page.html(&format!("rung witness check {file}"))?.as_bytes())?;
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
    let of = tried.total.map_or_else(String::new, |total| format!(" of {}", grouped(total)));
    let mut line = format!("{}: {}{of} {} checked", tried.method.name(), grouped(tried.candidates), tried.what);
    if tried.complete && tried.total.is_none() {
        line.push_str(", all there are");
    }
    if !tried.note.is_empty() {
        let _ = write!(line, "; {}", tried.note);
    }
    if tried.misled > 0 {
        let _ = write!(line, "; {} finds did not stand", tried.misled);
    }
    line
}
