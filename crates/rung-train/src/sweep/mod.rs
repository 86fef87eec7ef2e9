//! Sweeps: many runs from one TOML file, executed in parallel and resumable.
//!
//! ```toml
//! seeds = [0, 1, 2]
//!
//! [base]                               # config keys that all runs share
//! task = "funccomp{hops=1,m=32,queries=16}"
//! [base.train]
//! steps = 2000
//!
//! [grid]                               # every combination of these
//! stack = ["gdn full", "full full"]
//! "train.rate" = [1e-3, 4e-3]
//!
//! [[runs]]                             # and these single runs
//! stack = "linear full"
//! train = { steps = 500 }
//! ```
//!
//! A sweep is a list of runs. Each is executed by one thread in its own directory below the sweep's directory. Recorded runs are
//! skipped and interrupted runs resumed. A run's record does not depend on which thread or shard executes it, or when.

pub mod config;
pub mod queue;
pub mod slurm;
pub mod store;

pub use config::{Shard, Sweep, SweepConfig};
pub use queue::{Event, SweepSummary, check_memory, estimate, execute, execute_with};
pub use store::{find_record_by_id, read_records};
