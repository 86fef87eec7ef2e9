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

use crate::figure::Chart;
use crate::report::Chapter;

/// How much work a chapter does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Seconds: whether everything works, not what it shows.
    Smoke,
    /// Minutes on two cores.
    Quick,
    /// As far as it goes.
    Full,
}

impl Preset {
    /// What users type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

/// A file that belongs to a chapter.
#[derive(Clone, Debug)]
pub struct Artefact {
    /// Where, below the output directory.
    pub path: String,
    /// What.
    pub bytes: Vec<u8>,
}

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

/// A figure as files: SVG, CSV and, where the feature is on, PNG.
pub(crate) fn figure_files(name: &str, chart: &dyn Chart) -> Vec<Artefact> {
    let svg = chart.svg();
    let mut files = vec![Artefact { path: format!("figures/{name}.csv"), bytes: chart.csv().into_bytes() }];
    #[cfg(feature = "png")]
    if let Ok(bytes) = crate::figure::png(&svg) {
        files.push(Artefact { path: format!("figures/{name}.png"), bytes });
    }
    files.push(Artefact { path: format!("figures/{name}.svg"), bytes: svg.into_bytes() });
    files
}
