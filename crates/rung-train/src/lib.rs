//! Training: one stack on one task, or many of them.
//!
//! * [`run`] trains one stack on one task: config, loop, checkpoints, record. [`sweep`] carries out many runs, here or under Slurm.
//! * [`network`] opens what was constructed or trained.
//! * [`parallel`] runs independent jobs on all cores; [`strict`] and [`difference`] read and compare JSON.

pub mod difference;
pub mod network;
pub mod parallel;
pub mod run;
pub mod strict;
pub mod sweep;
