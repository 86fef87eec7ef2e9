//! `rung check FILE`: verifies a certificate with the trusted checker.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use rung_theory::bound::certificate::{self, MAX_BYTES};
use rung_theory::bound::checker::{Accepted, Certificate};
use rung_theory::bound::explanation::{Basis, Claim};
use rung_theory::report::{CheckAnswer, check_certificate};
use serde_json::{Value, json};

use crate::output::{brief, print, print_json};

/// Verify a certificate with exact arithmetic.
///
/// Exit codes: 0 accepted, 1 refused (and which inequality failed), 2 malformed.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// A certificate written by `rung bound --out`; `-` for standard input.
    file: PathBuf,
    /// Say of each sentence which theorem it rests on, and whether that is machine-checked (in the folder `proof/`).
    #[arg(long)]
    explain: bool,
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
        let section = certificate::read(&text).ok().map(|certificate| Claim::OutOfReach.basis(&certificate).section);
        let section = section.filter(|_| self.explain);
        if self.json {
            let mut said = answer.json();
            match (&answer, section) {
                (CheckAnswer::Accepted { certificate, accepted, names_stack }, Some(_)) => {
                    let sentences = sentences(certificate, accepted, *names_stack);
                    said["explanation"] = sentences
                        .iter()
                        .map(|(claim, sentence)| explanation(sentence, &claim.basis(certificate)))
                        .collect();
                }
                (_, Some(section)) => said["rests_on"] = json!({"file": "docs/proof.md", "section": section}),
                (_, None) => {}
            }
            print_json(&said)?;
        }
        let (code, message) = match &answer {
            CheckAnswer::Malformed(reason) => (2, reason),
            CheckAnswer::Refused(reason) => (1, reason),
            CheckAnswer::Accepted { .. } if self.json => return Ok(ExitCode::SUCCESS),
            CheckAnswer::Accepted { certificate, accepted, names_stack } => {
                return self.accepted(certificate, accepted, *names_stack);
            }
        };
        if !self.json {
            eprintln!("{name}: {message}");
            if let Some(section) = section {
                eprintln!("  docs/proof.md, \"{section}\": it proves nothing about such stacks, in either direction");
            }
        }
        Ok(ExitCode::from(code))
    }

    fn accepted(&self, certificate: &Certificate, accepted: &Accepted, named: bool) -> anyhow::Result<ExitCode> {
        let mut text = format!("{}: accepted: ", self.file.display());
        for (claim, sentence) in sentences(certificate, accepted, named) {
            writeln!(text, "{sentence}")?;
            if self.explain {
                describe(&mut text, &claim.basis(certificate))?;
            }
            text.push_str("  ");
        }
        print(&format!("{}\n", text.trim_end()))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What an accepted certificate says, sentence by sentence.
fn sentences(certificate: &Certificate, accepted: &Accepted, named: bool) -> Vec<(Claim, String)> {
    let states: Vec<String> = certificate.state_bits.iter().map(brief).collect();
    let hops = if certificate.hops == 1 { "1 hop is".to_owned() } else { format!("{} hops are", certificate.hops) };
    let full = certificate.state_bits.len() - 1;
    let layers = if full == 1 { "layer" } else { "layers" };
    let bits = brief(&certificate.message_bits);
    let mut sentences = vec![
        (Claim::OutOfReach, format!("{hops} out of reach for tables of {} tokens", brief(&accepted.tokens))),
        (Claim::Messages, format!("of any stack with {full} full {layers}, messages of at most {bits} bits")),
        (Claim::States, format!("and states of at most {} bits between them", states.join(" | "))),
        (Claim::Inequalities, format!("by theorem `{}`", certificate.theorem.name())),
    ];
    if certificate.needs_w_major() {
        sentences.push((Claim::TableOrder, "for tables that list w as the major index".to_owned()));
    }
    sentences.push(if named {
        (Claim::StackCounted, "its stack is one of these: the bits were counted again".to_owned())
    } else {
        let reason = "it names no stack, or not how its bits were counted: that part is not verified";
        (Claim::StackNotCounted, reason.to_owned())
    });
    if accepted.trivial {
        sentences.push((Claim::Trivial, "trivial: one message cannot even carry an answer".to_owned()));
    }
    sentences
}

fn explanation(sentence: &str, basis: &Basis) -> Value {
    let lemmas: Vec<Value> =
        basis.lemmas.iter().map(|lemma| json!({"name": lemma.name, "file": format!("proof/{}", lemma.file)})).collect();
    json!({
        "sentence": sentence,
        "rests_on": {"file": "docs/proof.md", "section": basis.section},
        "machine_checked": basis.is_machine_checked(),
        "lemmas": lemmas,
        "missing": basis.missing,
        "trusted": basis.trusted,
    })
}

fn describe(text: &mut String, basis: &Basis) -> std::fmt::Result {
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
