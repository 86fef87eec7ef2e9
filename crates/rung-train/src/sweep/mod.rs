//! Sweeps: many runs from one file, on all cores, in any order, interrupted or not.
//!
//! ```toml
//! seeds = [0, 1, 2]
//!
//! [base]                               # what all runs share: a run's config
//! task = "funccomp{hops=1,m=32,queries=16}"
//! [base.train]
//! steps = 2000
//!
//! [grid]                               # every combination of these
//! stack = ["gdn full", "full full"]
//! "train.rate" = [1e-3, 4e-3]
//!
//! [[runs]]                             # and these by themselves
//! stack = "linear full"
//! train = { steps = 500 }
//! ```
//!
//! A sweep is a list of runs, each carried out by one thread in a directory of its own below the sweep's directory. What is recorded
//! is skipped; what was interrupted goes on. Which thread or which shard takes a run, and when, changes nothing in its record.

pub mod list;
pub mod queue;
pub mod slurm;
pub mod store;

pub use list::{Shard, Sweep, SweepConfig};
pub use queue::{Event, SweepSummary, check_memory, estimate, execute, execute_with};
pub use store::{find, records};
