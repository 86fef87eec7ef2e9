//! The title over a chart, and the sheet that all charts share: its width and its margin.
//!
//! A heading is wrapped before it is drawn, because a chart has to know how many lines it will take.

use super::svg::{Svg, TextStyle};
use super::text;

/// Width of every chart in pixels.
pub const WIDTH: f64 = 760.0;
/// Pixels left free at its edges.
pub const MARGIN: f64 = 16.0;
const SIZE: f64 = 15.0;
const LINE_HEIGHT: f64 = 21.0;

/// A title, wrapped to the width of a chart.
#[derive(Debug, Clone)]
pub struct Heading {
    lines: Vec<String>,
}

impl Heading {
    /// Wraps a title.
    pub fn new(title: &str) -> Self {
        Self { lines: text::wrap(title, SIZE, true, WIDTH - 2.0 * MARGIN) }
    }

    /// Height in pixels.
    pub fn height(&self) -> f64 {
        self.lines.len() as f64 * LINE_HEIGHT
    }

    /// Draws it in the upper left corner.
    pub fn draw(&self, svg: &mut Svg) {
        for (index, line) in self.lines.iter().enumerate() {
            let at = (MARGIN, MARGIN + SIZE + index as f64 * LINE_HEIGHT);
            svg.text(at, line, &TextStyle::new(SIZE).bold());
        }
    }
}
