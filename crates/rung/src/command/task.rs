//! `rung task`: lists tasks, describes one, and writes samples.
//!
//! ```text
//! rung task list
//! rung task show 'funccomp{hops=2,m=3,n=[2]}'
//! rung task sample mqar --count 1000 --seed 7 > train.jsonl
//! ```
//!
//! Samples are written one at a time, so any number of them takes the memory of one. A closed pipe (`| head`) is not an
//! error.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use rung_theory::task::{self, AnyTask, NO_TARGET, Prompt};
use serde::ser::{Serialize, SerializeStruct as _, Serializer};
use serde_json::json;

use super::prompts::{ExportOptions, PromptOptions};

/// List tasks, show one, or write samples of it.
#[derive(Debug, clap::Args)]
pub struct Task {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List all tasks, each with its options and their defaults.
    List {
        /// Write JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show the sizes of a task, what guessing scores, and one sample.
    Show {
        /// A task such as `parity` or `funccomp{hops=3,m=8,n=[4,4]}`.
        spec: String,
        /// Seed of the sample.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Write JSON.
        #[arg(long)]
        json: bool,
    },
    Prompt(PromptOptions),
    Export(ExportOptions),
    /// Write samples to standard output.
    Sample {
        /// A task such as `parity` or `funccomp{hops=3,m=8,n=[4,4]}`.
        spec: String,
        /// Number of samples.
        #[arg(long, default_value_t = 1)]
        count: u64,
        /// Seed of the samples.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Output format.
        #[arg(long, value_enum, default_value_t = Format::Jsonl)]
        format: Format,
        /// Write JSON Lines: the same as `--format jsonl`, which is the default.
        #[arg(long, conflicts_with = "format")]
        json: bool,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    /// One JSON object per line: tokens, targets (null at positions without a question), groups.
    Jsonl,
    /// One drawing per sample.
    Text,
}

impl Task {
    /// Runs the command.
    ///
    /// # Errors
    /// The task does not exist or cannot have these sizes, or the output cannot be written.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let mut out = BufWriter::with_capacity(1 << 16, crate::call::output());
        let result = match &self.action {
            Action::Prompt(options) => return options.run().map(|()| ExitCode::SUCCESS),
            Action::Export(options) => return options.run().map(|()| ExitCode::SUCCESS),
            Action::List { json } => list(&mut out, *json),
            Action::Show { spec, seed, json } => show(&mut out, &*task::parse(spec)?, *seed, *json),
            Action::Sample { spec, count, seed, format, .. } => {
                sample(&mut out, &*task::parse(spec)?, *count, *seed, *format)
            }
        };
        match result.and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                // The pipe is closed, so the buffered output is dropped instead of written again.
                let _ = out.into_parts();
                Ok(ExitCode::SUCCESS)
            }
            result => result.map(|()| ExitCode::SUCCESS).context("writing to standard output"),
        }
    }
}

fn list(out: &mut impl Write, json: bool) -> io::Result<()> {
    // A task's name without options has its defaults, so every name parses.
    let tasks = task::pages().into_iter().filter_map(|page| Some((page.summary(), task::parse(page.name).ok()?)));
    if json {
        let values =
            tasks.map(|(summary, task)| json!({"name": task.name(), "summary": summary, "defaults": task.spec()}));
        return write_json(out, &values.collect::<Vec<_>>());
    }
    for (summary, task) in tasks {
        writeln!(out, "{:<18}{summary}\n{:<18}{}", task.name(), "", task.spec())?;
    }
    Ok(())
}

fn show(out: &mut impl Write, task: &dyn AnyTask, seed: u64, json: bool) -> io::Result<()> {
    let mut prompt = Prompt::new();
    task.sample_prompt(&mut task::seeded(seed), &mut prompt);
    let (fields, questions) = (task.fields(), prompt.questions().count());
    if json {
        let description = json!({
            "task": task.spec(),
            "tokens": task.length(),
            "questions": questions,
            "classes": task.classes(),
            "baseline": task.baseline(),
            "fields": fields,
            "seed": seed,
            "sample": task.render(&prompt),
        });
        return write_json(out, &description);
    }
    let fields: Vec<String> = fields.iter().map(|field| format!("{} ({})", field.name, field.vocabulary)).collect();
    writeln!(out, "{}", task.spec())?;
    writeln!(out, "tokens     {}", task.length())?;
    writeln!(out, "questions  {questions} in this sample")?;
    writeln!(out, "classes    {}", task.classes())?;
    writeln!(out, "baseline   {:.6}, accuracy of the best guess", task.baseline())?;
    writeln!(out, "fields     {}", fields.join(", "))?;
    writeln!(out, "sample, seed {seed}:\n{}", task.render(&prompt).trim_end())
}

fn sample(out: &mut impl Write, task: &dyn AnyTask, count: u64, seed: u64, format: Format) -> io::Result<()> {
    let (mut rng, mut prompt) = (task::seeded(seed), Prompt::new());
    for number in 0..count {
        task.sample_prompt(&mut rng, &mut prompt);
        match format {
            Format::Jsonl => {
                serde_json::to_writer(&mut *out, &PromptJson(&prompt))?;
                writeln!(out)?;
            }
            Format::Text => writeln!(out, "sample {number}\n{}", task.render(&prompt))?,
        }
    }
    Ok(())
}

fn write_json(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// A prompt as one JSON object, serialized without an intermediate JSON value.
struct PromptJson<'a>(&'a Prompt);

impl Serialize for PromptJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("PromptJson", 3)?;
        if self.0.ids_per_token() == 1 {
            object.serialize_field("tokens", self.0.tokens())?;
        } else {
            object.serialize_field("tokens", &TokenRows(self.0))?;
        }
        object.serialize_field("targets", &Targets(self.0))?;
        object.serialize_field("groups", self.0.groups())?;
        object.end()
    }
}

/// Tokens of several fields, as a list of lists.
struct TokenRows<'a>(&'a Prompt);

impl Serialize for TokenRows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.tokens().chunks_exact(self.0.ids_per_token().max(1)))
    }
}

/// Targets, with null at positions without a question.
struct Targets<'a>(&'a Prompt);

impl Serialize for Targets<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.targets().iter().map(|target| (*target != NO_TARGET).then_some(*target)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written_text(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn samples_are_json_lines_with_null_at_positions_without_a_question() {
        let single_field = task::parse("induction{length=4,vocabulary=3}").unwrap();
        let lines = written_text(|out| sample(out, &*single_field, 3, 5, Format::Jsonl));
        for line in lines.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["tokens"].as_array().unwrap().len(), 4);
            assert!(line["targets"][0].is_null() && line["targets"][3].is_u64());
            assert_eq!(line["groups"], json!([0, 0, 0, 1]));
        }
        assert_eq!(lines.lines().count(), 3);
        assert_eq!(lines, written_text(|out| sample(out, &*single_field, 3, 5, Format::Jsonl)));

        let multi_field = task::parse("funccomp{hops=2,m=2,n=[2]}").unwrap();
        let line = written_text(|out| sample(out, &*multi_field, 1, 0, Format::Jsonl));
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((line["tokens"].as_array().unwrap().len(), line["tokens"][0].as_array().unwrap().len()), (8, 5));
    }

    #[test]
    fn every_task_can_be_listed_and_shown() {
        let entries: Vec<serde_json::Value> = serde_json::from_str(&written_text(|out| list(out, true))).unwrap();
        assert_eq!(entries.len(), task::names().count());
        for entry in entries {
            let task = task::parse(entry["defaults"].as_str().unwrap()).unwrap();
            assert!(written_text(|out| list(out, false)).contains(entry["summary"].as_str().unwrap()));
            assert!(written_text(|out| show(out, &*task, 1, false)).contains("baseline"));
            let description: serde_json::Value =
                serde_json::from_str(&written_text(|out| show(out, &*task, 1, true))).unwrap();
            assert_eq!(description["task"], entry["defaults"]);
        }
    }
}
