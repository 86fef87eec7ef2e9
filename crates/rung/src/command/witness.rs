//! `rung witness check FILE`: whether a witness of `rung falsify` holds; `rung witness show FILE`: the same for people.

use std::path::PathBuf;
use std::process::ExitCode;

use rung_lab::falsify::page::Page;
use rung_lab::falsify::{Witness, check};
use rung_lab::report::write_atomically;
use serde_json::json;

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
        let suspect = check::open(&witness, given.model.clone())?;
        let verdict = check::check(&witness, &suspect)?;
        let file = given.file.display();
        if let Err(refusal) = &verdict {
            if given.json {
                print_json(&json!({"holds": false, "field": refusal.field, "reason": refusal.reason}))?;
            } else {
                print(&format!("{file}: refused\n  {refusal}\n"))?;
            }
            return Ok(ExitCode::from(1));
        }
        let page = Page::new(&witness, &suspect)?;
        if let Some(path) = &given.html {
            write_atomically(path, page.html(&format!("rung witness check {file}"))?.as_bytes())?;
        }
        match (given.json, show) {
            (true, _) => print_json(&json!({"holds": true, "verdict": page.verdict(), "witness": witness}))?,
            (false, true) => print(&page.text())?,
            (false, false) => print(&format!("{file}: holds\n  {}\n", page.verdict()))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
