//! `rung falsify` of an external checkpoint: prompts as text that it answers wrongly.
//!
//! Questions of a task are asked one after the other, each with variants in which one look-up reads a different value and the correct answer differs. A
//! checkpoint that gives the same answer to both ignores that look-up; a wrong answer is a counterexample too. States and residual streams
//! are not compared: with a text vocabulary no two prompts lead to the same state.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rung_ask::prompt::PromptWriter;
use rung_nn::file::write_atomically;
use rung_train::parallel;
use serde_json::json;

use super::text_witness::{TextTarget, TextWitness};
use crate::output::{print, print_json, spinner, with_commas};
use crate::watch::Interrupt;

/// Settings of a search for counterexamples.
pub struct ExternalCheckpointSearch<'a> {
    /// The checkpoint.
    pub model: &'a Path,
    /// The task.
    pub task: &'a str,
    /// Wording of the prompts.
    pub writer: PromptWriter,
    /// Seed of the questions.
    pub seed: u64,
    /// Time limit.
    pub budget: Duration,
    /// Output file of the witness.
    pub out: Option<&'a Path>,
    /// Whether JSON is written.
    pub json: bool,
}

impl ExternalCheckpointSearch<'_> {
    /// Searches for a witness and prints it.
    ///
    /// # Errors
    /// The checkpoint or the task cannot be read, or a file cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let target = TextTarget::open(self.model, self.task, self.writer, self.seed)?;
        let (interrupt, bar) = (Interrupt::install(), spinner("searching".to_owned()));
        let (mut witness, mut question_count, start) = (None, 0, Instant::now());
        // The witness with the lowest question index is reported, so the result does not depend on the thread count.
        let batch_size = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        while witness.is_none() && start.elapsed() < self.budget && !interrupt.requested() {
            let indices: Vec<u64> = (question_count..question_count + batch_size).collect();
            for result in parallel::map(&indices, |index| target.search(*index)) {
                question_count += 1;
                witness = result?;
                if witness.is_some() {
                    break;
                }
            }
            bar.set_message(format!("{} questions asked", with_commas(question_count)));
        }
        bar.finish_and_clear();
        if let (Some(path), Some(witness)) = (self.out, &witness) {
            write_atomically(path, format!("{}\n", serde_json::to_string(witness)?).as_bytes())?;
        }
        if self.json {
            let found = witness.is_some();
            let model = self.model;
            let task = target.spec();
            print_json(
                &json!({"model": model, "task": task, "found": found, "questions": question_count, "witness": witness}),
            )?;
        } else {
            print(&self.text(&target, witness.as_ref(), question_count)?)?;
        }
        Ok(match (&witness, interrupt.requested()) {
            (Some(_), _) => ExitCode::SUCCESS,
            (None, true) => ExitCode::from(130),
            (None, false) => ExitCode::from(1),
        })
    }

    fn text(&self, target: &TextTarget, witness: Option<&TextWitness>, question_count: u64) -> anyhow::Result<String> {
        let mut text = String::new();
        let Some(witness) = witness else {
            let (name, task) = (&target.network.name, target.spec());
            writeln!(text, "{name} on {task} as text: no witness found in {} questions", with_commas(question_count))?;
            return Ok(text);
        };
        writeln!(text, "{}", witness_text(witness))?;
        match self.out {
            Some(path) => writeln!(text, "check it with: rung witness check {}", path.display())?,
            None => writeln!(text, "--out FILE writes it, for `rung witness check`")?,
        }
        Ok(text)
    }
}

/// A witness as text for the terminal.
pub fn witness_text(witness: &TextWitness) -> String {
    let mut text = format!("witness ({}; measured)\n  {}\n", witness.kind(), witness.verdict());
    let [first, others @ ..] = &witness.prompts[..] else { return text };
    let _ = writeln!(text, "\nprompt:");
    first.lines().for_each(|line| {
        let _ = writeln!(text, "  {line}");
    });
    for other in others {
        let _ = writeln!(text, "\nin the second prompt:");
        for (line, original_line) in
            other.lines().zip(first.lines()).filter(|(line, original_line)| line != original_line)
        {
            let _ = writeln!(text, "  {line}    instead of    {original_line}");
        }
    }
    let _ = writeln!(text, "\nlog-probabilities of the symbols, the right one in brackets:");
    for (index, row) in witness.log_probabilities.iter().enumerate() {
        let score = |(symbol, score): (&String, &f32)| {
            let is_right = *symbol == witness.answers[index];
            if is_right { format!("[{symbol} {score:.3}]") } else { format!("{symbol} {score:.3}") }
        };
        let scores: Vec<String> = witness.symbols.iter().zip(row).map(score).collect();
        let _ = writeln!(text, "  prompt {}: {}", index + 1, scores.join("  "));
    }
    text
}
