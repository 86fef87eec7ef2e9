//! The lab: where stacks are trained, and results become something a person can read.
//!
//! Rooms:
//!
//! * [`run`] trains one stack on one task: config, loop, checkpoints, record. [`sweep`] carries out many runs.
//! * [`experiment`] has the sweeps that answer a question, and how their records are read.
//! * [`figure`] draws: a *hop map* (which numbers of hops a stack solves, for how many tokens) and line charts, as SVG,
//!   PNG and CSV.
//! * [`report`] writes: one HTML file that holds its figures, its tables and their data, and asks the network for
//!   nothing.
//!
//! * [`trace`] shows a forward pass: who reads whom, and what the registers hold; [`protocol`] counts the bits of one;
//!   [`network`] opens constructed and trained ones alike. [`falsify`] looks for what one cannot tell apart.
//! * [`analysis`] looks inside of networks: one instrument per file.
//! * [`chapter`] has the chapters of `rung reproduce`, one per file, and [`hop_map`] what a stack can do at every size.
//!
//! * [`bench`] measures how fast the engine is, alone or beside PyTorch; [`zoo`] sets all mixers side by side.
//!
//! Figures and reports compute nothing. They are handed results and put them on paper, so that a report can be made again
//! from the same results, byte for byte: there is no clock, no random number and no map with an unstable order in them.
//!
//! What ties the rooms together is [`Evidence`]: a figure on the page always says whether it was proved, constructed or
//! measured.
//!
//! ```
//! use rung_lab::Evidence;
//! use rung_lab::figure::{Chart, HopMap, Kind, Row, Span};
//! use rung_lab::report::{Chapter, Figure, Prose, Report};
//!
//! let map = HopMap::new(
//!     "One full layer, then linear ones",
//!     vec![Row::new(1, vec![Span::new(0.0, 20.0, Kind::Solved), Span::new(20.0, f64::INFINITY, Kind::Unknown)])],
//! );
//! assert!(map.csv().starts_with("hops,kind,"));
//!
//! let mut chapter = Chapter::new("proved", "Proved");
//! chapter.paragraph(Prose::new().text("At least ").number("1", Evidence::Proved).text(" hop."));
//! chapter.figure(Figure::new(&map, "What one layer can do.", "rung map full", "map.csv"));
//! let report = Report::new("A short report").chapter(chapter);
//! assert!(report.html()?.contains("<svg"));
//! # Ok::<(), rung_lab::report::ReportError>(())
//! ```

pub mod analysis;
pub mod bench;
pub mod chapter;
mod difference;
mod evidence;
pub mod experiment;
pub mod falsify;
pub mod figure;
pub mod hop_map;
mod markup;
pub mod network;
mod parallel;
pub mod protocol;
pub mod report;
pub mod run;
mod strict;
pub mod sweep;
pub mod trace;
pub mod zoo;

pub use evidence::Evidence;
