//! The title over a chart, and the width and margin of all charts.
//!
//! A heading is wrapped before it is drawn, because the layout of a chart depends on its number of lines.

use super::svg::{Svg, TextStyle};
use super::text;

/// Width of every chart in pixels.
pub const WIDTH: f64 = 760.0;
/// Empty pixels at the edges of every chart.
pub const MARGIN: f64 = 16.0;
const FONT_SIZE: f64 = 15.0;
const LINE_HEIGHT: f64 = 21.0;

/// A title, wrapped to the width of a chart.
#[derive(Debug, Clone)]
pub struct Heading {
    lines: Vec<String>,
}

impl Heading {
    /// Wraps a title.
    pub fn new(title: &str) -> Self {
        Self { lines: text::wrap(title, FONT_SIZE, true, WIDTH - 2.0 * MARGIN) }
    }

    /// Height in pixels.
    pub fn height(&self) -> f64 {
        self.lines.len() as f64 * LINE_HEIGHT
    }

    /// Draws the title in the upper left corner.
    pub fn draw(&self, svg: &mut Svg) {
        for (index, line) in self.lines.iter().enumerate() {
            let baseline = (MARGIN, MARGIN + FONT_SIZE + index as f64 * LINE_HEIGHT);
            svg.text(baseline, line, &TextStyle::new(FONT_SIZE).bold());
        }
    }
}
