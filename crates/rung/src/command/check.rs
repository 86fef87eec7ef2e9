//! `rung check FILE`: verifies a certificate with the trusted checker.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use rung_theory::bound::certificate::{self, MAX_BYTES};
use rung_theory::bound::checker::{Accepted, Refusal, check};
use rung_theory::bound::question::log2;
use serde_json::json;

use crate::output::{brief, print, print_json};

/// Verify a certificate exactly: exit 0 accepted, 1 refused (and which inequality failed), 2 malformed.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// A certificate written by `rung bound --out`; `-` for standard input.
    file: PathBuf,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Runs it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let name = self.file.display();
        let text = read(&self.file).with_context(|| format!("reading {name}"))?;
        let (status, code, message) = match certificate::read(&text) {
            Err(error) => ("malformed", 2, format!("malformed: {error}")),
            Ok(point) => match check(&point) {
                Ok(accepted) => return self.accepted(point.hops, &accepted),
                Err(refusal @ Refusal::Malformed(_)) => ("malformed", 2, refusal.to_string()),
                Err(refusal) => ("refused", 1, refusal.to_string()),
            },
        };
        if self.json {
            print_json(&json!({"status": status, "accepted": false, "reason": message}))?;
        } else {
            eprintln!("{name}: {message}");
        }
        Ok(ExitCode::from(code))
    }

    fn accepted(&self, hops: usize, accepted: &Accepted) -> anyhow::Result<ExitCode> {
        if self.json {
            print_json(&json!({
                "status": "accepted",
                "accepted": true,
                "hops": hops,
                "tokens": accepted.tokens.to_string(),
                "log2_tokens": log2(&accepted.tokens),
                "trivial": accepted.trivial,
            }))?;
        } else {
            let note = if accepted.trivial { " (trivial: one message cannot even carry an answer)" } else { "" };
            print(&format!(
                "{}: accepted: {} out of reach for tables of {} tokens{note}\n",
                self.file.display(),
                if hops == 1 { "1 hop is".to_owned() } else { format!("{hops} hops are") },
                brief(&accepted.tokens)
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Reads at most one byte more than a certificate may have, so that a huge file costs nothing.
fn read(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let limit = MAX_BYTES as u64 + 1;
    if path == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    }
    String::from_utf8(bytes).context("the file is not UTF-8 text")
}
