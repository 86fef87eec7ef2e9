//! The chapters of the report of `rung reproduce`, one per file.
//!
//! A chapter has two functions. `compute` searches, builds, falsifies or inspects, and writes the results as records of an
//! [`RecordStore`](crate::store::RecordStore). `render` reads only records, and returns a page and its files: figures, data and
//! certificates. The caller writes these files.

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
    /// One sentence for the report's summary.
    pub summary: String,
    /// The files of the chapter: figures, data, certificates.
    pub artefacts: Vec<Artefact>,
}
