//! `rung witness check FILE`: whether a witness of `rung falsify` holds; `rung witness show FILE`: the same as text.

use std::path::PathBuf;
use std::process::ExitCode;

use rung_falsify::page::WitnessPage;
use rung_falsify::{Witness, check};
use serde_json::{Value, json};

use super::falsify_text;
use super::memory::MemoryOption;
use super::text_witness::{TextTarget, TextWitness};
use crate::output::{check_destination, print, print_json, write_file};

/// Check or show a counterexample found by `rung falsify`.
#[derive(Debug, clap::Args)]
pub struct WitnessCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Run the model again and compare.
    ///
    /// Exit codes: 0 the counterexample holds, 1 it does not, 2 bad input.
    Check(WitnessOptions),
    /// Show where two prompts differ, and where the model stops seeing the difference.
    Show(WitnessOptions),
}

#[derive(Debug, clap::Args)]
struct WitnessOptions {
    /// A file written by `rung falsify --out`.
    file: PathBuf,
    /// Directory of the model, if it has moved.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Write a self-contained HTML page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    memory: MemoryOption,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl WitnessCommand {
    /// Runs the command.
    ///
    /// # Errors
    /// The file is no witness, or its model cannot be opened.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let (options, show) = match &self.action {
            Action::Check(options) => (options, false),
            Action::Show(options) => (options, true),
        };
        options.memory.apply();
        if let Some(path) = &options.html {
            check_destination("--html", path, &["html"])?;
        }
        if let Some(witness) = TextWitness::read(&options.file)? {
            return check_text(&witness, options, show);
        }
        let witness = Witness::read(&options.file)?;
        let target = check::open(&witness, options.model.clone())?;
        let file = options.file.display();
        // The output contains only what the checker computed itself.
        let witness = match check::check(&witness, &target)? {
            Ok(computed) => computed,
            Err(rejection) => {
                if options.json {
                    print_json(&json!({"holds": false, "field": rejection.field, "reason": rejection.reason}))?;
                } else {
                    print(&format!("{file}: refused\n  {rejection}\n"))?;
                }
                return Ok(ExitCode::from(1));
            }
        };
        let page = WitnessPage::new(&witness, &target)?;
        if let Some(path) = &options.html {
            write_file(path, page.html(&format!("rung witness check {file}"))?)?;
        }
        match (options.json, show) {
            (true, _) => {
                print_json(&json!({"holds": true, "verdict": page.verdict(), "witness": without_origin(&witness)?}))?;
            }
            (false, true) => print(&page.text())?,
            (false, false) => print(&format!("{file}: holds\n  {}\n", page.verdict()))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Checks a witness against an external checkpoint.
fn check_text(witness: &TextWitness, options: &WitnessOptions, show: bool) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(options.html.is_none(), "--html: expected a witness against a run or a construction");
    let target = TextTarget::from_witness(witness, options.model.as_deref())?;
    let file = options.file.display();
    match (target.check(witness)?, options.json) {
        (Ok(computed), true) => {
            print_json(&json!({"holds": true, "verdict": computed.verdict(), "witness": computed}))?;
        }
        (Ok(computed), false) if show => print(&falsify_text::witness_text(&computed))?,
        (Ok(computed), false) => print(&format!("{file}: holds\n  {}\n", computed.verdict()))?,
        (Err((field, reason)), as_json) => {
            if as_json {
                print_json(&json!({"holds": false, "field": field, "reason": reason}))?;
            } else {
                print(&format!("{file}: refused\n  {field}: {reason}\n"))?;
            }
            return Ok(ExitCode::from(1));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A witness as JSON without the origin of its model, which the checker does not verify.
fn without_origin(witness: &Witness) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(witness)?;
    if let Some(model) = value["model"].as_object_mut() {
        model.remove("origin");
    }
    Ok(value)
}
