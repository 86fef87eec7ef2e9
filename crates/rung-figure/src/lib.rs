//! Figures and reports: results become something a person can read.
//!
//! * [`figure`] draws: a *hop map* (which numbers of hops a stack solves, for how many tokens), line charts, dots and heat maps, as
//!   SVG, PNG and CSV.
//! * [`report`] puts figures, tables and prose into one HTML file that holds its data and asks the network for nothing.
//!
//! Neither computes anything. They are handed results and put them on paper, so that a report can be made again from the same
//! results, byte for byte: there is no clock, no random number and no map with an unstable order in them.
//!
//! What ties them together is [`Evidence`]: a figure on the page always says whether it was proved, constructed or measured.
//!
//! ```
//! use rung_figure::Evidence;
//! use rung_figure::figure::{Chart, HopMap, SpanKind, Row, Span};
//! use rung_figure::report::{Chapter, Figure, Prose, Report};
//!
//! let map = HopMap::new(
//!     "One full layer, then linear ones",
//!     vec![Row::new(1, vec![Span::new(0.0, 20.0, SpanKind::Solved), Span::new(20.0, f64::INFINITY, SpanKind::Unknown)])],
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
pub use made_by::MadeBy;
