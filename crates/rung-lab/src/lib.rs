//! Experiments, and the chapters of the report of `rung reproduce`.
//!
//! * [`experiment`] has the sweeps of each experiment, and how their records become figures and conclusions.
//! * [`chapter`] has the chapters of the report, one per file; [`hop_map`] draws the prompt lengths that a stack solves.
//! * [`store`] stores the results of computations on disk, from which chapters are written.
//! * [`artefact`] has the files that experiments and chapters produce.
//!
//! ```
//! use rung_lab::artefact::Preset;
//! use rung_lab::experiment::staircase;
//!
//! let sweep = staircase::EXPERIMENT.sweep(Preset::Smoke)?;
//! assert!(sweep.runs.iter().all(|run| run.plan.full_layers() > 0));
//! # Ok::<(), rung_train::run::RunError>(())
//! ```

pub mod artefact;
pub mod chapter;
pub mod experiment;
pub mod hop_map;
pub mod store;
