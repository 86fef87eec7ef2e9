//! How many hops does a language model take in one forward pass?
//!
//! An audit counts how many dependent look-ups a model's layers allow. This crate measures how many a model that somebody
//! serves actually makes when it may not write anything down: the tasks of `rung-theory` become prompts, one token is
//! read for each, and accuracy is shown by number of hops.
//!
//! ```text
//! task spec, seed, index --prompt--> Question --model--> Reply --score--> Answer --record--> ladder
//! ```
//!
//! - [`prompt`] writes questions: composition of look-up tables, k-hop induction, associative recall, 2-Sum, state tracking.
//! - [`symbols`] picks answer symbols that are single tokens for the model asked.
//! - [`server`] speaks the protocols of inference servers; a checkpoint that Rung runs itself implements the same [`AnsweringModel`].
//! - [`record`] appends every answer when it arrives, so that an interrupted run resumes and asks nothing twice.
//! - [`ladder`] runs a grid of questions; [`summary`] turns answers into accuracies with intervals.
//! - [`harness`] writes the same questions as tasks of other evaluation harnesses.
//!
//! What is measured is prompting in one pass. It says nothing about what weights could do.
//!
//! ```
//! use rung_ask::prompt::{Cell, PromptWriter};
//! use rung_ask::symbols::letters;
//!
//! let writer = PromptWriter::default();
//! let question = writer.ladder_question(&Cell { hops: 2, entries: 4, ..Cell::default() }, &letters(4), 7, 0)?;
//! assert!(question.text.ends_with("Answer:"));
//! assert!(question.symbols.contains(&question.answer));
//! # Ok::<(), rung_ask::AskError>(())
//! ```

pub mod figure;
pub mod harness;
pub mod ladder;
mod model;
pub mod prompt;
pub mod record;
pub mod score;
pub mod server;
pub mod summary;
pub mod symbols;
pub mod test_server;

pub use model::{AnsweringModel, AskError, Reply, ServerDescription, TokenProbability};
