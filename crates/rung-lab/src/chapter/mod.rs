//! The chapters of the report of `rung reproduce`, one per file.
//!
//! A chapter has two halves. `compute` searches, builds, falsifies or inspects, and writes what it finds as records of an
//! [`EvidenceStore`](crate::store::EvidenceStore). `render` reads records and nothing else, and gives back a page and the files behind
//! it: figures, data, certificates. Those are not written here; the caller decides where.

pub mod audited;
pub mod constructed;
mod gap;
pub mod inspected;
pub mod measured;
pub mod proved;
pub mod refuted;
pub mod summary;
pub mod unknown;

use rung_figure::report::Chapter;

pub use crate::artefact::{Artefact, Preset};

/// A finished chapter.
#[derive(Debug)]
pub struct ChapterOutput {
    /// The page.
    pub chapter: Chapter,
    /// One line for the summary.
    pub summary: String,
    /// The files behind it.
    pub artefacts: Vec<Artefact>,
}
