//! Figures and reports.
//!
//! * [`figure`] draws a *hop map* (which numbers of hops a stack solves, for how many tokens), line charts, dot charts and heat maps, as
//!   SVG, PNG and CSV.
//! * [`report`] combines figures, tables and prose into one self-contained HTML file, which loads nothing from the network.
//!
//! Neither computes results. The same results give the same report, byte for byte: no clock, no random numbers and no map with an
//! unstable order is used.
//!
//! Both use [`Evidence`]: every number in a report says whether it was proved, constructed or measured.
//!
//! ```
//! use rung_figure::Evidence;
//! use rung_figure::figure::{Chart, HopMap, RangeVerdict, HopRow, ContextRange};
//! use rung_figure::report::{Chapter, Figure, Prose, Report};
//!
//! let map = HopMap::new(
//!     "One full layer, then linear ones",
//!     vec![HopRow::new(1, vec![ContextRange::new(0.0, 20.0, RangeVerdict::Solved), ContextRange::new(20.0, f64::INFINITY, RangeVerdict::Unknown)])],
//! );
//! assert!(map.csv().starts_with("hops,kind,"));
//!
//! let mut chapter = Chapter::new("proved", "Proved");
//! chapter.paragraph(Prose::new().text("At least ").number("1", Evidence::Proved).text(" hop."));
//! chapter.figure(Figure::new(&map, "What one layer can do.", "rung map full", "map.csv"));
//! let report = Report::new("A short report").chapter(chapter);
//! assert!(report.html()?.contains("<svg"));
//! # Ok::<(), rung_figure::report::ReportError>(())
//! ```

mod evidence;
pub mod figure;
mod made_by;
mod markup;
pub mod report;

pub use evidence::Evidence;
pub use made_by::FileProvenance;
