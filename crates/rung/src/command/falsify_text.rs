//! `rung falsify` of a checkpoint of another program: prompts as text whose answers it cannot have computed.
//!
//! Questions of a task are asked one after the other, each with counterparts that differ in what one look-up reads and have another right answer. A
//! checkpoint that gives one answer to both does not follow that look-up there; one that is wrong is a counterexample as well. States and streams
//! are not compared: in a vocabulary of words no two prompts leave the same ones behind.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rung_ask::prompt::PromptWriter;
use rung_nn::file::write_atomically;
use rung_train::parallel;
use serde_json::json;

use super::text_witness::{TextTarget, TextWitness};
use crate::output::{commas, print, print_json, spinner};
use crate::watch::Interrupt;

/// What is searched.
pub struct TextSearch<'a> {
    /// The checkpoint.
    pub model: &'a Path,
    /// The task.
    pub task: &'a str,
    /// How it is written.
    pub writer: PromptWriter,
    /// Seed of the questions.
    pub seed: u64,
    /// For how long.
    pub budget: Duration,
    /// Where the witness goes.
    pub out: Option<&'a Path>,
    /// Whether JSON is written.
    pub json: bool,
}

impl TextSearch<'_> {
    /// Searches, and shows what was found.
    ///
    /// # Errors
    /// The checkpoint or the task cannot be read, or a file cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let target = TextTarget::open(self.model, self.task, self.writer, self.seed)?;
        let (interrupt, bar) = (Interrupt::install(), spinner("searching".to_owned()));
        let (mut witness, mut asked, start) = (None, 0, Instant::now());
        // The first of the questions counts, so that the number of cores decides nothing.
        let at_once = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        while witness.is_none() && start.elapsed() < self.budget && !interrupt.requested() {
            let indices: Vec<u64> = (asked..asked + at_once).collect();
            for found in parallel::map(&indices, |index| target.search(*index)) {
                asked += 1;
                witness = found?;
                if witness.is_some() {
                    break;
                }
            }
            bar.set_message(format!("{} questions asked", commas(asked)));
        }
        bar.finish_and_clear();
        if let (Some(path), Some(witness)) = (self.out, &witness) {
            write_atomically(path, format!("{}\n", serde_json::to_string(witness)?).as_bytes())?;
        }
        if self.json {
            let found = witness.is_some();
            let model = self.model;
            let task = target.spec();
            print_json(&json!({"model": model, "task": task, "found": found, "questions": asked, "witness": witness}))?;
        } else {
            print(&self.text(&target, witness.as_ref(), asked)?)?;
        }
        Ok(match (&witness, interrupt.requested()) {
            (Some(_), _) => ExitCode::SUCCESS,
            (None, true) => ExitCode::from(130),
            (None, false) => ExitCode::from(1),
        })
    }

    fn text(&self, target: &TextTarget, witness: Option<&TextWitness>, asked: u64) -> anyhow::Result<String> {
        let mut text = String::new();
        let Some(witness) = witness else {
            let (name, task) = (&target.network.name, target.spec());
            writeln!(text, "{name} on {task} as text: no witness found in {} questions", commas(asked))?;
            return Ok(text);
        };
        writeln!(text, "{}", show(witness))?;
        match self.out {
            Some(path) => writeln!(text, "check it with: rung witness check {}", path.display())?,
            None => writeln!(text, "--out FILE keeps it, for `rung witness check`")?,
        }
        Ok(text)
    }
}

/// A witness for people.
pub fn show(witness: &TextWitness) -> String {
    let mut text = format!("witness ({}; measured)\n  {}\n", witness.kind(), witness.verdict());
    let [first, others @ ..] = &witness.prompts[..] else { return text };
    let _ = writeln!(text, "\nprompt:");
    first.lines().for_each(|line| {
        let _ = writeln!(text, "  {line}");
    });
    for other in others {
        let _ = writeln!(text, "\nin the second prompt:");
        for (line, own) in other.lines().zip(first.lines()).filter(|(line, own)| line != own) {
            let _ = writeln!(text, "  {line}    instead of    {own}");
        }
    }
    let _ = writeln!(text, "\nlog-probabilities of the symbols, the right one in brackets:");
    for (at, row) in witness.log_probabilities.iter().enumerate() {
        let score = |(symbol, score): (&String, &f32)| {
            let is_right = *symbol == witness.answers[at];
            if is_right { format!("[{symbol} {score:.3}]") } else { format!("{symbol} {score:.3}") }
        };
        let scores: Vec<String> = witness.symbols.iter().zip(row).map(score).collect();
        let _ = writeln!(text, "  prompt {}: {}", at + 1, scores.join("  "));
    }
    text
}
