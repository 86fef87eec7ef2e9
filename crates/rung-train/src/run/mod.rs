//! Training runs: a stack learns a task, and what it learned is written down.
//!
//! ```text
//! run.toml --read--> RunConfig --resolve--> Run --execute--> RunRecord
//!                                            |                   |
//!                                            +-- checkpoints ----+   (weights, moments, step: a run goes on to the bit)
//! ```
//!
//! - [`config`]: what a run is, as TOML. Unknown keys, impossible sizes and tasks that do not fit the model are refused before
//!   anything is allocated or written.
//! - [`source`]: prompts. Each is a function of the seed, the step and its place in the batch, so that a run that goes on from a
//!   checkpoint sees what it would have seen, and needs no generator's state.
//! - [`accuracy`]: right answers per number of hops, with Wilson's interval.
//! - [`trainer`]: the loop: curriculum, schedule, early stop.
//! - [`checkpoint`]: one safetensors file with everything a run needs to go on; [`provenance`]: which run such a file belongs to.
//! - [`record`]: what is kept of a finished run. It holds no clock, so the same run gives the same bytes; how long it took is
//!   in a file of its own.
//!
//! # The recipe
//!
//! Function composition is not learned by every set-up that could represent it. What made it learnable here, all of it in the
//! defaults of [`RunConfig`]: several queries per prompt; one table of vectors for arguments and values, where values have the opposite
//! sign (without it the entry 3 -> 5 looks like 5 -> 3, and two hops took several times as many steps, if they were learned at all);
//! the number of hops drawn for each query and said in it; key projections of full layers that start as the negatives of query
//! projections, so that a value attends to the argument it equals from the first step; no absolute positions; and small tables before
//! large ones.
//!
//! ```
//! use rung_train::run::{RunConfig, execute};
//!
//! let config = RunConfig::read(
//!     r#"
//!     stack = "conv full"
//!     task = "funccomp{hops=1,m=4,queries=4}"
//!     [model]
//!     heads = 1
//!     head = 8
//!     [train]
//!     steps = 2
//!     batch = 2
//!     "#,
//! )?;
//! let record = execute(&config.resolve()?, None, &mut |_| true)?.record.expect("it was not stopped");
//! assert_eq!(record.steps, 2);
//! assert!(record.accuracy[&1].count > 0);
//! # Ok::<(), rung_train::run::RunError>(())
//! ```

pub mod accuracy;
pub mod auxiliary;
pub mod checkpoint;
pub mod config;
pub mod directory;
pub mod error;
pub mod evaluate;
pub mod initial;
pub mod log;
pub mod provenance;
pub mod record;
pub mod repel;
pub mod source;
pub mod trainer;

pub use accuracy::{Accuracy, AnswerCount};
pub use config::{Run, RunConfig};
pub use directory::{LockMode, RunOutcome, execute, execute_with};
pub use error::RunError;
pub use evaluate::{evaluate, evaluate_on};
pub use record::{RunFacts, RunRecord};
pub use trainer::{StepReport, Trainer};
