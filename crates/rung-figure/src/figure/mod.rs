//! Charts as SVG, PNG and CSV, without a plotting library.
//!
//! A chart is plain data: a title, rows or series, and nothing about pixels. The three methods of [`Chart`] give its title, its drawing
//! ([`Chart::svg`]) and its numbers ([`Chart::csv`]). [`render_png`] renders an SVG with a font that is part of the program, so a figure looks the
//! same on a machine with no fonts installed.
//!
//! The modules, from low level to high:
//!
//! * [`svg`]: the SVG writer. It drops shapes with coordinates that are not finite, so no `NaN` reaches a file.
//! * [`text`]: the width of a text, which layout uses to avoid overlaps.
//! * [`palette`] and [`texture`]: colours with fixed meanings, and hatching so that the meaning remains when printed in grey.
//! * [`axis`]: scales and ticks.
//! * [`heading`]: the title, and the width and margin of all charts.
//! * [`label`]: names of points, placed so that they do not overlap.
//! * [`legend`]: keys and names, wrapped to the available width.
//! * [`map`], [`lines`], [`dots`] and [`heat`]: the charts.
//! * [`csv`]: the numbers of a chart.
//!
//! No figure uses an `id`, a style sheet or a script, so any number of them can be inline in one HTML page without conflicts.

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
pub use map::{ContextRange, HopMap, HopRow, Marker, RangeVerdict};
#[cfg(feature = "png")]
pub use png::{PngError, render_png};

/// A chart that can be drawn and exported.
pub trait Chart {
    /// The title.
    fn title(&self) -> &str;
    /// The drawing: one `<svg>` element, well-formed, without ids.
    fn svg(&self) -> String;
    /// Every number in the drawing, with a header line.
    fn csv(&self) -> String;
}
