//! The same questions as tasks of other evaluation harnesses.
//!
//! Each harness gets a directory that it runs unchanged: the questions as JSON lines, one file per number of hops and table size, and
//! a description in the harness's own format. Harnesses score the generated text, so their scores equal those of `rung ask` if the most likely
//! token is one of the symbols.

mod inspect;
mod lighteval;
mod lm_eval;

use std::path::Path;

use serde_json::{Value, json};

use crate::AskError;
use crate::grid::Grid;
use crate::prompt::{GridCell, Question, Variant};

/// The evaluation harness that the files are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harness {
    /// EleutherAI's lm-evaluation-harness.
    LmEval,
    /// Inspect, of the UK AI Security Institute.
    Inspect,
    /// Hugging Face's lighteval.
    Lighteval,
    /// No harness: only the questions as JSON lines.
    Jsonl,
}

impl Harness {
    /// Every harness, with its name on the command line.
    pub const ALL: [(&'static str, Self); 4] =
        [("lm-eval", Self::LmEval), ("inspect", Self::Inspect), ("lighteval", Self::Lighteval), ("jsonl", Self::Jsonl)];
}

/// One task of a harness: the questions of one grid cell.
struct HarnessTask {
    /// Such as `rung_hops2_entries8`.
    name: String,
    cell: GridCell,
    questions: Vec<Question>,
}

/// Writes the questions of a grid into a directory, which is created if it does not exist. Returns the names of the files.
///
/// # Errors
/// A cell has no valid question, or a file cannot be written.
pub fn export(harness: Harness, grid: &Grid, directory: &Path) -> Result<Vec<String>, AskError> {
    std::fs::create_dir_all(directory).map_err(|cause| AskError::file(directory, cause))?;
    let directory = directory.canonicalize().map_err(|cause| AskError::file(directory, cause))?;
    let tasks = tasks_by_cell(grid)?;
    let mut files: Vec<(String, String)> =
        tasks.iter().map(|task| (format!("{}.jsonl", task.name), task.json_lines())).collect();
    files.push(("grid.json".to_owned(), format!("{:#}\n", metadata(grid))));
    match harness {
        Harness::LmEval => files.extend(lm_eval::files(&tasks, grid, &directory)),
        Harness::Inspect => files.push(inspect::python_file(&tasks, grid)),
        Harness::Lighteval => files.extend(lighteval::files(&tasks, grid)),
        Harness::Jsonl => (),
    }
    for (name, text) in &files {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(|cause| AskError::file(&path, cause))?;
    }
    Ok(files.into_iter().map(|(name, _)| name).collect())
}

/// Everything that determines the questions: version, seed and grid.
fn metadata(grid: &Grid) -> Value {
    json!({"made_by": concat!("rung ", env!("CARGO_PKG_VERSION")), "seed": grid.seed, "grid": grid})
}

fn tasks_by_cell(grid: &Grid) -> Result<Vec<HarnessTask>, AskError> {
    let mut tasks: Vec<HarnessTask> = Vec::new();
    for (cell, question) in grid.questions()? {
        // A harness reads one generated token, so questions with a chain of thought are left out.
        if cell.variant.chain_of_thought {
            continue;
        }
        match tasks.iter_mut().find(|task| task.cell == cell) {
            Some(task) => task.questions.push(question),
            None => tasks.push(HarnessTask { name: task_name(&cell), cell, questions: vec![question] }),
        }
    }
    Ok(tasks)
}

fn task_name(cell: &GridCell) -> String {
    let label = cell.variant.label().replace([' ', ','], "_").replace("__", "_");
    let suffix = if cell.variant == Variant::default() { String::new() } else { format!("_{label}") };
    format!("rung_hops{}_entries{}{suffix}", cell.hops, cell.entries_per_table)
}

impl HarnessTask {
    /// The questions as JSON lines.
    fn json_lines(&self) -> String {
        let json_line = |question: &Question| {
            let object = json!({
                "id": question.id,
                "prompt": question.text,
                "answer": question.answer,
                "symbols": question.symbols,
                "gold_index": question.symbols.iter().position(|symbol| *symbol == question.answer),
                "hops": self.cell.hops,
                "entries": self.cell.entries_per_table,
            });
            format!("{object}\n")
        };
        self.questions.iter().map(json_line).collect()
    }
}
