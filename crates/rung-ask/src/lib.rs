//! Measures how many hops (dependent look-ups) a language model makes in one forward pass.
//!
//! An audit counts how many dependent look-ups a model's layers allow. This crate measures how many a real model makes without a
//! chain of thought: the tasks of `rung-theory` become prompts, one token is generated for each, and accuracy is reported by
//! number of hops. The questions form a grid: every number of hops with every table size and prompt variant.
//!
//! ```text
//! task spec, seed, index --prompt--> Question --model--> Reply --score--> Answer --record--> summary
//! ```
//!
//! - [`prompt`] writes questions: composition of look-up tables, k-hop induction, associative recall, 2-Sum, state tracking.
//! - [`symbols`] picks answer symbols that are single tokens of the model.
//! - [`server`] is a client of inference servers; a checkpoint that Rung runs itself implements the same [`AnsweringModel`].
//! - [`record`] appends every answer when it arrives, so that an interrupted run resumes and asks no question twice.
//! - [`grid`] has the questions, and [`run`] asks a model each of them; [`summary`] turns answers into accuracies with confidence intervals.
//! - [`harness`] writes the same questions as tasks of other evaluation harnesses.
//!
//! The result holds for these prompts. It is no bound on what other weights of the same architecture can do.
//!
//! ```
//! use rung_ask::prompt::{GridCell, PromptWriter};
//! use rung_ask::symbols::default_symbols;
//!
//! let writer = PromptWriter::default();
//! let question = writer.grid_question(&GridCell { hops: 2, entries_per_table: 4, ..GridCell::default() }, &default_symbols(4), 7, 0)?;
//! assert!(question.text.ends_with("Answer:"));
//! assert!(question.symbols.contains(&question.answer));
//! # Ok::<(), rung_ask::AskError>(())
//! ```

pub mod figure;
pub mod grid;
pub mod harness;
mod model;
pub mod prompt;
pub mod record;
pub mod run;
pub mod score;
pub mod server;
pub mod summary;
pub mod symbols;
pub mod test_server;

pub use model::{AnsweringModel, AskError, ModelDescription, Reply, TokenProbability};
