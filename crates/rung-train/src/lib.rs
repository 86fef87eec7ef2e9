//! Training: one stack on one task, or many of them.
//!
//! * [`run`] trains one stack on one task: config, loop, checkpoints, record. [`sweep`] executes many runs, on this machine or under
//!   Slurm.
//! * [`network`] builds the network of a run with its initial weights.
//! * [`parallel`] runs independent jobs on all cores. [`strict`] reads JSON without serde's leniency, [`difference`] finds the first
//!   difference between two JSON values.
//!
//! ```
//! use rung_train::run::{RunConfig, execute};
//!
//! let mut config = RunConfig::new("gdn full", "funccomp{hops=1,m=4,queries=4}");
//! (config.model.heads, config.model.head) = (1, 8);
//! (config.train.steps, config.train.batch) = (2, 2);
//! let record = execute(&config.resolve()?, None, &mut |_| true)?.record.expect("it was not stopped");
//! assert_eq!(record.facts.rungs, 1);
//! assert!(record.loss > 0.0);
//! # Ok::<(), rung_train::run::RunError>(())
//! ```

pub mod difference;
pub mod network;
pub mod parallel;
pub mod run;
pub mod strict;
pub mod sweep;
