//! `rung witness check FILE`: whether a witness of `rung falsify` holds; `rung witness show FILE`: the same as text.

use std::path::PathBuf;
use std::process::ExitCode;

use rung_falsify::page::WitnessPage;
use rung_falsify::{Witness, check};
use serde_json::{Value, json};

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
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl WitnessCommand {
    /// Runs it.
    ///
    /// # Errors
    /// The file is no witness, or its model cannot be opened.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let (options, show) = match &self.action {
            Action::Check(options) => (options, false),
            Action::Show(options) => (options, true),
        };
        if let Some(path) = &options.html {
            check_destination("--html", path, &["html"])?;
        }
        let witness = Witness::read(&options.file)?;
        let target = check::open(&witness, options.model.clone())?;
        let file = options.file.display();
        // From here on only what the checker computed is shown.
        let witness = match check::check(&witness, &target)? {
            Ok(computed) => computed,
            Err(refusal) => {
                if options.json {
                    print_json(&json!({"holds": false, "field": refusal.field, "reason": refusal.reason}))?;
                } else {
                    print(&format!("{file}: refused\n  {refusal}\n"))?;
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

/// A witness without the origin of its model: that says where to look for the model, and has settings of which none is computed.
fn without_origin(witness: &Witness) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(witness)?;
    if let Some(model) = value["model"].as_object_mut() {
        model.remove("origin");
    }
    Ok(value)
}
