//! Figures, drawn by hand.
//!
//! A chart here is plain data: a title, rows or series, and nothing about pixels. It answers three questions, the three
//! methods of [`Chart`]: what it is called, how it looks ([`Chart::svg`]) and which numbers it shows ([`Chart::csv`]).
//! [`png`] turns any SVG made here into a bitmap with a font carried inside the program, so a figure looks the same on
//! a machine with no fonts installed.
//!
//! The parts, from the paper up:
//!
//! * [`svg`]: the builder. It refuses coordinates that are not finite, so no `NaN` reaches a file.
//! * [`text`]: how wide a label will be. Layout uses it to keep labels apart.
//! * [`palette`] and [`texture`]: colours with fixed meanings, and hatching so that the meaning survives a grey
//!   printer.
//! * [`axis`]: scales and tick choice.
//! * [`heading`]: the title, and the sheet that all charts share.
//! * [`label`]: names of points, placed so that they do not overlap.
//! * [`legend`]: keys and names, wrapped to the width there is.
//! * [`map`], [`lines`], [`dots`] and [`heat`]: the charts.
//! * [`csv`]: the numbers, for whoever wants to draw it again.
//!
//! No figure uses an `id`, a style sheet or a script, so any number of them can stand inline in one HTML page without
//! meeting.

pub mod axis;
pub mod csv;
pub mod dots;
pub mod heading;
pub mod heat;
pub mod label;
pub mod legend;
pub mod lines;
pub mod map;
pub mod palette;
#[cfg(feature = "png")]
mod png;
pub mod svg;
pub mod text;
pub mod texture;

pub use axis::Scale;
pub use dots::{Dot, DotChart};
pub use heat::{CellFormat, HeatCell, HeatMap};
pub use lines::{AxisSpec, Guide, LineChart, Point, Series, SeriesStyle};
pub use map::{HopMap, Marker, Row, Span, SpanKind};
#[cfg(feature = "png")]
pub use png::{PngError, png};

/// Something that can be drawn, and whose numbers can be given away.
pub trait Chart {
    /// What the chart is called.
    fn title(&self) -> &str;
    /// The drawing: one `<svg>` element, well-formed, without ids.
    fn svg(&self) -> String;
    /// Every number in the drawing, with a header line.
    fn csv(&self) -> String;
}
