//! The same questions as tasks of other evaluation harnesses.
//!
//! Each harness gets a directory that it runs unchanged: the questions as JSON lines, one file per number of hops and table size, and
//! a description in the harness's own format. Scoring there is by generated text, so it agrees with `rung ask` where the most likely
//! token is one of the symbols.

mod inspect;
mod lighteval;
mod lm_eval;

use std::path::Path;

use serde_json::{Value, json};

use crate::AskError;
use crate::ladder::Grid;
use crate::prompt::{Cell, Question};

/// Which harness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harness {
    /// EleutherAI's lm-evaluation-harness.
    LmEval,
    /// Inspect, of the UK AI Security Institute.
    Inspect,
    /// Hugging Face's lighteval.
    Lighteval,
    /// Only the questions.
    Jsonl,
}

impl Harness {
    /// All of them, with the names that users type.
    pub const ALL: [(&'static str, Self); 4] =
        [("lm-eval", Self::LmEval), ("inspect", Self::Inspect), ("lighteval", Self::Lighteval), ("jsonl", Self::Jsonl)];
}

/// The questions of one cell and the file that holds them.
struct HarnessTask {
    /// Such as `rung_hops2_entries8`.
    name: String,
    cell: Cell,
    questions: Vec<Question>,
}

/// Writes the questions of a grid into a directory, which is made if it is missing. Returns the files.
///
/// # Errors
/// A cell cannot be asked, or a file cannot be written.
pub fn export(harness: Harness, grid: &Grid, directory: &Path) -> Result<Vec<String>, AskError> {
    std::fs::create_dir_all(directory).map_err(|cause| AskError::file(directory, cause))?;
    let directory = directory.canonicalize().map_err(|cause| AskError::file(directory, cause))?;
    let parts = parts(grid)?;
    let mut files: Vec<(String, String)> =
        parts.iter().map(|part| (format!("{}.jsonl", part.name), part.lines())).collect();
    files.push(("grid.json".to_owned(), format!("{:#}\n", metadata(grid))));
    match harness {
        Harness::LmEval => files.extend(lm_eval::files(&parts, grid, &directory)),
        Harness::Inspect => files.push(inspect::file(&parts, grid)),
        Harness::Lighteval => files.extend(lighteval::files(&parts, grid)),
        Harness::Jsonl => (),
    }
    for (name, text) in &files {
        let path = directory.join(name);
        std::fs::write(&path, text).map_err(|cause| AskError::file(&path, cause))?;
    }
    Ok(files.into_iter().map(|(name, _)| name).collect())
}

/// What made the questions: version, seed and everything else that fixes them.
fn metadata(grid: &Grid) -> Value {
    json!({"made_by": concat!("rung ", env!("CARGO_PKG_VERSION")), "seed": grid.seed, "grid": grid})
}

fn parts(grid: &Grid) -> Result<Vec<HarnessTask>, AskError> {
    let mut parts: Vec<HarnessTask> = Vec::new();
    for (cell, question) in grid.questions()? {
        // A harness reads one generated token, so there is nothing for a chain of thought.
        if cell.variant.chain_of_thought {
            continue;
        }
        match parts.iter_mut().find(|part| part.cell == cell) {
            Some(part) => part.questions.push(question),
            None => parts.push(HarnessTask { name: name(&cell), cell, questions: vec![question] }),
        }
    }
    Ok(parts)
}

fn name(cell: &Cell) -> String {
    let label = cell.variant.label().replace([' ', ','], "_").replace("__", "_");
    let suffix = if label == "one_pass" { String::new() } else { format!("_{label}") };
    format!("rung_hops{}_entries{}{suffix}", cell.hops, cell.entries)
}

impl HarnessTask {
    fn lines(&self) -> String {
        let line = |question: &Question| {
            let line = json!({
                "id": question.id,
                "prompt": question.text,
                "answer": question.answer,
                "symbols": question.symbols,
                "gold_index": question.symbols.iter().position(|symbol| *symbol == question.answer),
                "hops": self.cell.hops,
                "entries": self.cell.entries,
            });
            format!("{line}\n")
        };
        self.questions.iter().map(line).collect()
    }
}
