//! `rung check FILE`: verifies a certificate with the trusted checker.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use rung_theory::bound::certificate::MAX_BYTES;
use rung_theory::bound::checker::Certificate;
use rung_theory::bound::explanation::{Basis, Claim};
use rung_theory::report::{CheckAnswer, check_certificate};

use crate::output::{print, print_json};

/// Verify a certificate with exact arithmetic.
///
/// Exit codes: 0 accepted, 1 refused (and which inequality failed), 2 malformed.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// A certificate written by `rung bound --out`; `-` for standard input.
    file: PathBuf,
    /// For each claim, name the theorem behind it and whether that is machine-checked (in the folder `proof/`); for each
    /// inequality, print the numbers of both sides.
    #[arg(long)]
    explain: bool,
    /// Write JSON.
    #[arg(long)]
    json: bool,
}

impl Check {
    /// Runs the command.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let name = self.file.display();
        let text = read_certificate(&self.file).with_context(|| format!("reading {name}"))?;
        let answer = check_certificate(&text);
        if self.json {
            print_json(&if self.explain { answer.explained_json() } else { answer.json() })?;
        }
        let (code, reason) = match &answer {
            CheckAnswer::Malformed(reason) => (2, reason),
            CheckAnswer::Rejected { reason, .. } => (1, reason),
            CheckAnswer::Accepted { .. } if self.json => return Ok(ExitCode::SUCCESS),
            CheckAnswer::Accepted { certificate, .. } => return self.print_accepted(&answer, certificate),
        };
        if !self.json {
            eprintln!("{name}: {reason}");
            if let (true, CheckAnswer::Rejected { certificate, .. }) = (self.explain, &answer) {
                let section = Claim::OutOfReach.basis(certificate).section;
                eprintln!("  docs/proof.md, \"{section}\": it proves nothing about such stacks, in either direction");
                answer.inequality_lines().iter().for_each(|line| eprintln!("      {line}"));
            }
        }
        Ok(ExitCode::from(code))
    }

    fn print_accepted(&self, answer: &CheckAnswer, certificate: &Certificate) -> anyhow::Result<ExitCode> {
        let mut text = format!("{}: accepted: ", self.file.display());
        for (claim, sentence) in answer.sentences() {
            writeln!(text, "{sentence}")?;
            if self.explain {
                write_basis(&mut text, &claim.basis(certificate))?;
            }
            if self.explain && claim == Claim::Inequalities {
                for line in answer.inequality_lines() {
                    writeln!(text, "      {line}")?;
                }
            }
            text.push_str("  ");
        }
        print(&format!("{}\n", text.trim_end()))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the basis of a claim: section of the proof, machine-checked lemmas and trusted parts.
fn write_basis(text: &mut String, basis: &Basis) -> std::fmt::Result {
    writeln!(text, "      docs/proof.md, \"{}\"", basis.section)?;
    if !basis.lemmas.is_empty() {
        let lemmas: Vec<String> =
            basis.lemmas.iter().map(|lemma| format!("{} (proof/{})", lemma.name, lemma.file)).collect();
        let label = if basis.missing.is_some() { "machine-checked in part" } else { "machine-checked" };
        writeln!(text, "      {label}: {}", lemmas.join(", "))?;
    }
    if let Some(missing) = basis.missing {
        writeln!(text, "      not machine-checked: {missing}")?;
    }
    if let Some(trusted) = basis.trusted {
        writeln!(text, "      trusted: {trusted}")?;
    }
    Ok(())
}

/// Reads at most one byte more than the maximum size of a certificate, so that a huge file is not read.
fn read_certificate(path: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let limit = MAX_BYTES as u64 + 1;
    if path == Path::new("-") {
        crate::call::input().take(limit).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    }
    String::from_utf8(bytes).context("the file is not UTF-8 text")
}
