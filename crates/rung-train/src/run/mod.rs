//! Training runs: train a stack on a task and record the result.
//!
//! ```text
//! run.toml --read--> RunConfig --resolve--> Run --execute--> RunRecord
//!                                            |                   |
//!                                            +-- checkpoints ----+   (weights, moments, step: a resumed run gives the same bits)
//! ```
//!
//! - [`config`]: the config of a run as TOML. Unknown keys, impossible sizes and tasks that do not fit the model are rejected before
//!   anything is allocated or written.
//! - [`source`]: prompts. Each is a function of the seed, the step and its index in the batch, so that a resumed run trains on the same
//!   prompts without any saved generator state.
//! - [`accuracy`]: correct answers per number of hops, with Wilson's interval.
//! - [`trainer`]: the training loop with curriculum, schedule and early stopping.
//! - [`device`]: the native engine or a GPU, on which a step's gradient is computed.
//! - [`checkpoint`]: one safetensors file with everything that is needed to resume; [`provenance`]: checks whose checkpoint it is.
//! - [`record`]: the record of a finished run. It contains no times, so the same run gives the same bytes; the training time is in
//!   `timing.json`.
//!
//! # The recipe
//!
//! Not every set-up that can represent function composition learns it. These choices, all defaults of [`RunConfig`], made it learnable:
//! several queries per prompt; one embedding table for arguments and values, where values have the opposite sign (without it the entry
//! 3 -> 5 looks like 5 -> 3, and two hops took several times as many steps, if they were learned at all); a number of hops that is drawn
//! for each query and encoded in it; key projections of full layers that start as the negatives of the query projections, so that a
//! value attends to the argument it equals from the first step; no absolute positions; and small tables before large ones.
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
pub mod device;
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

pub use accuracy::{AccuracyByGroup, AnswerCount};
pub use config::{Run, RunConfig};
pub use device::ComputeDevice;
pub use directory::{ExecuteOptions, LockMode, RunOutcome, execute, execute_with};
pub use error::RunError;
pub use evaluate::{evaluate, evaluate_on};
pub use record::{RunFacts, RunRecord};
pub use trainer::{StepReport, Trainer};
