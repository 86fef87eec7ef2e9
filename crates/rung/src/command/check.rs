//! `rung check FILE`: verifies a certificate with the trusted checker.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use num_bigint::BigUint;
use rung_theory::bound::certificate::{self, MAX_BYTES};
use rung_theory::bound::checker::{Accepted, Point, Refusal, check};
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
                Ok(accepted) => match certificate::names_its_stack(&text, &point) {
                    Ok(named) => return self.accepted(&point, &accepted, named),
                    Err(reason) => ("refused", 1, format!("refused: {reason}")),
                },
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

    fn accepted(&self, point: &Point, accepted: &Accepted, named: bool) -> anyhow::Result<ExitCode> {
        if self.json {
            let decimal = |numbers: &[BigUint]| numbers.iter().map(BigUint::to_string).collect::<Vec<_>>();
            print_json(&json!({
                "status": "accepted",
                "accepted": true,
                "hops": point.hops,
                "theorem": point.theorem.name(),
                "needs_w_major_tables": point.needs_w_major(),
                "tokens": accepted.tokens.to_string(),
                "log2_tokens": log2(&accepted.tokens),
                "trivial": accepted.trivial,
                "message_bits": point.message_bits.to_string(),
                "state_bits": decimal(&point.state_bits),
                "stack_verified": named,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let states: Vec<String> = point.state_bits.iter().map(brief).collect();
        let hops = if point.hops == 1 { "1 hop is".to_owned() } else { format!("{} hops are", point.hops) };
        let mut text = String::new();
        writeln!(
            text,
            "{}: accepted: {hops} out of reach for tables of {} tokens",
            self.file.display(),
            brief(&accepted.tokens)
        )?;
        let full = point.state_bits.len() - 1;
        let layers = if full == 1 { "layer" } else { "layers" };
        writeln!(
            text,
            "  of any stack with {full} full {layers}, messages of at most {} bits",
            brief(&point.message_bits)
        )?;
        writeln!(text, "  and states of at most {} bits between them", states.join(" | "))?;
        writeln!(text, "  by theorem `{}`", point.theorem.name())?;
        if point.needs_w_major() {
            writeln!(text, "  for tables that list w as the major index")?;
        }
        if named {
            writeln!(text, "  its stack is one of these: the bits were counted again")?;
        } else {
            writeln!(text, "  it names no stack, or not how its bits were counted: that part is not verified")?;
        }
        if accepted.trivial {
            writeln!(text, "  trivial: one message cannot even carry an answer")?;
        }
        print(&text)?;
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
