//! The lab: experiments, and the chapters of the report.
//!
//! * [`experiment`] has the sweeps that answer a question, and how their records are read.
//! * [`chapter`] has the chapters of `rung reproduce`, one per file, and [`hop_map`] what a stack can do at every size.
//! * [`store`] has the evidence that chapters are drawn from, on disk.
//! * [`artefact`] is what experiments and chapters hand back: files beside a page.
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
