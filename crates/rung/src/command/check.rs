//! `rung check FILE`: verifies a certificate with the trusted checker.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use rung_theory::bound::certificate::MAX_BYTES;
use rung_theory::bound::checker::{Accepted, Point};
use rung_theory::report::{CheckAnswer, check_certificate};

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
        let answer = check_certificate(&text);
        if self.json {
            print_json(&answer.json())?;
        }
        let (code, message) = match &answer {
            CheckAnswer::Malformed(reason) => (2, reason),
            CheckAnswer::Refused(reason) => (1, reason),
            CheckAnswer::Accepted { .. } if self.json => return Ok(ExitCode::SUCCESS),
            CheckAnswer::Accepted { point, accepted, names_stack } => {
                return self.accepted(point, accepted, *names_stack);
            }
        };
        if !self.json {
            eprintln!("{name}: {message}");
        }
        Ok(ExitCode::from(code))
    }

    fn accepted(&self, point: &Point, accepted: &Accepted, named: bool) -> anyhow::Result<ExitCode> {
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
