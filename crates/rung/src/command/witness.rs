//! `rung witness check FILE`: whether a witness of `rung falsify` holds; `rung witness show FILE`: the same for people.

use std::path::PathBuf;
use std::process::ExitCode;

use rung_falsify::page::Page;
use rung_falsify::{Witness, check};
use rung_nn::file::write_atomically;
use serde_json::{Value, json};

use crate::output::{check_destination, print, print_json};

/// Witnesses of `rung falsify`: check one, or show it.
#[derive(Debug, clap::Args)]
pub struct WitnessCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Run the model again: exit 0 only if everything holds, 1 if something does not, 2 for bad input.
    Check(Given),
    /// Show where two inputs differ, and where the model stops seeing it.
    Show(Given),
}

#[derive(Debug, clap::Args)]
struct Given {
    /// A file written by `rung falsify --out`.
    file: PathBuf,
    /// The folder of the model, if it is no longer where it was.
    #[arg(long, value_name = "DIR")]
    model: Option<PathBuf>,
    /// Write a self-contained page.
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
        let (given, show) = match &self.action {
            Action::Check(given) => (given, false),
            Action::Show(given) => (given, true),
        };
        if let Some(path) = &given.html {
            check_destination("--html", path, &["html"])?;
        }
        let witness = Witness::read(&given.file)?;
        let target = check::open(&witness, given.model.clone())?;
        let file = given.file.display();
        // From here on only what the checker computed is shown.
        let witness = match check::check(&witness, &target)? {
            Ok(computed) => computed,
            Err(refusal) => {
                if given.json {
                    print_json(&json!({"holds": false, "field": refusal.field, "reason": refusal.reason}))?;
                } else {
                    print(&format!("{file}: refused\n  {refusal}\n"))?;
                }
                return Ok(ExitCode::from(1));
            }
        };
        let page = Page::new(&witness, &target)?;
        if let Some(path) = &given.html {
            write_atomically(path, page.html(&format!("rung witness check {file}"))?.as_bytes())?;
        }
        match (given.json, show) {
            (true, _) => print_json(&json!({"holds": true, "verdict": page.verdict(), "witness": shown(&witness)?}))?,
            (false, true) => print(&page.text())?,
            (false, false) => print(&format!("{file}: holds\n  {}\n", page.verdict()))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A witness without the origin of its model: that says where to look for the model, and has settings of which none is computed.
fn shown(witness: &Witness) -> serde_json::Result<Value> {
    let mut shown = serde_json::to_value(witness)?;
    if let Some(model) = shown["model"].as_object_mut() {
        model.remove("origin");
    }
    Ok(shown)
}
