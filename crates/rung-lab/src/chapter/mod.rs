//! The chapters of the report of `rung reproduce`, one per file.
//!
//! A chapter does its own work — searching, checking — or is handed the records of training runs, and gives back a page and the
//! files behind it: figures, data, certificates. Nothing is written here; the caller decides where.

pub mod audited;
pub mod constructed;
mod gap;
pub mod looked;
pub mod measured;
pub mod proved;
pub mod refuted;
pub mod summary;

use rung_figure::report::Chapter;

pub use crate::artefact::{Artefact, Preset};

/// A finished chapter.
#[derive(Debug)]
pub struct Made {
    /// The page.
    pub chapter: Chapter,
    /// One line for the summary.
    pub summary: String,
    /// The files behind it.
    pub artefacts: Vec<Artefact>,
}
