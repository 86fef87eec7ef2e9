//! The questions of a run: one cell for every number of hops, table size and prompt variant, and the same number of questions in every cell.

use crate::AskError;
use crate::prompt::{GridCell, PromptWriter, Question, Variant};
use crate::symbols::Symbols;

/// The questions of a run: `questions_per_cell` in each cell, and one cell for every combination of hops, table size and variant. Equal grids have equal questions.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// Builds the prompts: wording and number of worked examples.
    pub writer: PromptWriter,
    /// Numbers of hops to ask for.
    pub hops: Vec<usize>,
    /// Numbers of entries (rows) per table; each is one table size of the grid.
    #[serde(rename = "entries")]
    pub entries_per_table: Vec<usize>,
    /// Prompt variants in which each question is asked.
    pub variants: Vec<Variant>,
    /// Number of questions in each cell.
    #[serde(rename = "count")]
    pub questions_per_cell: u64,
    /// Seed from which the questions are drawn.
    pub seed: u64,
    /// The possible answers.
    pub symbols: Symbols,
}

impl Grid {
    /// Every question with its cell, ordered by index, so that an interrupted run has answers in every cell.
    ///
    /// # Errors
    /// A cell has no valid question.
    pub fn questions(&self) -> Result<Vec<(GridCell, Question)>, AskError> {
        let table_count = self.hops.iter().copied().max().unwrap_or(1).max(1);
        let mut questions = Vec::new();
        for index in 0..self.questions_per_cell {
            for variant in &self.variants {
                for entries_per_table in &self.entries_per_table {
                    for hops in &self.hops {
                        let cell = GridCell {
                            hops: *hops,
                            entries_per_table: *entries_per_table,
                            table_count,
                            variant: *variant,
                        };
                        let question = self.writer.grid_question(&cell, &self.symbols.symbols, self.seed, index)?;
                        questions.push((cell, question));
                    }
                }
            }
        }
        Ok(questions)
    }
}
