//! The lab: experiments, and the chapters of the report.
//!
//! * [`experiment`] has the sweeps that answer a question, and how their records are read.
//! * [`chapter`] has the chapters of `rung reproduce`, one per file, and [`hop_map`] what a stack can do at every size.
//! * [`store`] has the evidence that chapters are drawn from, on disk.
//! * [`artefact`] is what experiments and chapters hand back: files beside a page.

pub mod artefact;
pub mod chapter;
pub mod experiment;
pub mod hop_map;
pub mod store;
