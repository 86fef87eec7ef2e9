//! `rung task prompt` and `rung task export`: tasks as text, for any language model and any evaluation harness.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::bail;
use rung_ask::grid::Grid;
use rung_ask::harness::{Harness, export};
use rung_ask::prompt::{PromptWriter, Question, TableOrder, Variant, answer_symbols, numerals, parse_task};
use rung_ask::symbols::{Symbols, default_symbols};
use rung_theory::task::AnyTask;
use serde_json::json;

use super::ask::{StyleName, parse_hops};
use crate::output::{print, print_json};

/// Write a task as prompts for a language model.
#[derive(Debug, clap::Args)]
pub struct PromptOptions {
    /// A task: funccomp, chain, khop, mqar, twosum or word, with options such as `funccomp{hops=2,m=8,n=[1]}`
    spec: String,
    /// Number of prompts
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// Seed of the prompts
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Wording; `tokens` are the task's own, as `rung export` names them
    #[arg(long, value_enum, default_value_t = StyleName::Table)]
    style: StyleName,
    /// Worked examples before each question
    #[arg(long, default_value_t = 0)]
    shots: usize,
    /// Filler tokens before the answer
    #[arg(long, value_name = "K", default_value_t = 0)]
    filler: usize,
    /// Put the question before the tables
    #[arg(long)]
    query_first: bool,
    /// Put tables in the order of use
    #[arg(long)]
    easy_order: bool,
    /// Write every instance of the task (style tokens only)
    #[arg(long, conflicts_with_all = ["count", "seed"])]
    all: bool,
    /// Write JSON lines
    #[arg(long)]
    json: bool,
}

/// Maximum number of instances that `--all` writes.
const MAX_INSTANCES: u128 = 1_000_000;

impl PromptOptions {
    /// Runs the command.
    ///
    /// # Errors
    /// The task has no prompt, or standard output cannot be written.
    pub fn run(&self) -> anyhow::Result<()> {
        if self.shots > 16 || self.filler > 4096 {
            bail!("--shots and --filler: expected at most 16 worked examples and 4096 filler tokens");
        }
        let task = parse_task(&self.spec)?;
        if self.all {
            return self.print_all(&*task);
        }
        // There is no model here whose tokenizer could check the symbols, as `rung ask` does.
        let symbols =
            if self.style.is_tokens() { Vec::new() } else { answer_symbols(&*task)?.unwrap_or_else(default_symbols) };
        let order = if self.easy_order { TableOrder::FirstTableFirst } else { TableOrder::LastTableFirst };
        let variant = Variant { filler: self.filler, query_first: self.query_first, order, chain_of_thought: false };
        let writer = self.style.writer(Some(self.shots), 0);
        for index in 0..self.count {
            let question = writer.task_question(&*task, &variant, &symbols, self.seed, index)?;
            print(&self.question_text(&question)?)?;
        }
        Ok(())
    }

    fn print_all(&self, task: &dyn AnyTask) -> anyhow::Result<()> {
        if !self.style.is_tokens() {
            bail!("--all: found another style, expected --style tokens");
        }
        let count = task.instance_count().filter(|count| *count <= MAX_INSTANCES);
        let Some(count) = count else {
            bail!("--all: `{}` has too many instances, expected at most {MAX_INSTANCES}", task.spec());
        };
        for index in 0..count {
            if let Some(question) = PromptWriter::instance_question(task, index)? {
                print(&self.question_text(&question)?)?;
            }
        }
        Ok(())
    }

    fn question_text(&self, question: &Question) -> anyhow::Result<String> {
        if self.json {
            return Ok(format!("{}\n", serde_json::to_string(question)?));
        }
        let mut text = format!("{}\n", question.text);
        writeln!(text, "[the answer is {}, one of {}]", question.answer, question.symbols.join(" "))?;
        if self.count > 1 {
            text.push('\n');
        }
        Ok(text)
    }
}

/// Write questions of increasing numbers of hops as tasks of an evaluation harness.
#[derive(Debug, clap::Args)]
pub struct ExportOptions {
    /// Which harness: lm-eval, inspect, lighteval, or jsonl for the questions alone
    #[arg(value_parser = parse_harness)]
    harness: Harness,
    /// Directory to write to; created if it does not exist
    directory: PathBuf,
    /// Numbers of hops: a list such as 0,1,2 or a range such as 0..4, both ends included
    #[arg(long, value_name = "LIST", default_value = "0..3")]
    hops: String,
    /// Rows of each table: a list
    #[arg(long, value_name = "LIST", default_value = "8", value_delimiter = ',')]
    entries: Vec<usize>,
    /// Questions for each number of hops and table size
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    count: u64,
    /// Seed of the questions
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Wording; `tokens` are the task's own, as `rung export` names them
    #[arg(long, value_enum, default_value_t = StyleName::Table)]
    style: StyleName,
    /// Worked examples before each question [default: 2; style tokens: 0]
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=16))]
    shots: Option<u16>,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

impl ExportOptions {
    /// Runs the command.
    ///
    /// # Errors
    /// An option makes no sense, or a file cannot be written.
    pub fn run(&self) -> anyhow::Result<()> {
        let max_entries = self.entries.iter().copied().max().unwrap_or_default();
        let symbols = if self.style.is_tokens() { numerals(max_entries) } else { default_symbols(max_entries) };
        let symbols = Symbols { symbols, checked: false };
        let grid = Grid {
            writer: self.style.writer(self.shots.map(usize::from), 2),
            hops: parse_hops(&self.hops)?,
            entries_per_table: self.entries.clone(),
            variants: vec![Variant::default()],
            questions_per_cell: self.count,
            seed: self.seed,
            symbols,
        };
        let files = export(self.harness, &grid, &self.directory)?;
        if self.json {
            return print_json(&json!({"directory": self.directory, "files": files}));
        }
        print(&format!("{}: {} files ({})\n", self.directory.display(), files.len(), files.join(", ")))
    }
}

fn parse_harness(text: &str) -> Result<Harness, String> {
    let names: Vec<&str> = Harness::ALL.iter().map(|(name, _)| *name).collect();
    let harness = Harness::ALL.iter().find(|(name, _)| *name == text);
    harness.map(|(_, harness)| *harness).ok_or_else(|| format!("expected one of {}", names.join(", ")))
}
