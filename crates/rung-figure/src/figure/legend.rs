//! The legend: the meaning of colours and markers.
//!
//! It is laid out before it is drawn, because the layout of a chart depends on its number of lines. Entries are side by side and wrap.

use super::palette::{BACKGROUND, Colour, Fill, TEXT_COLOUR};
use super::svg::{Area, Outline, Paint, Stroke, Svg, TextStyle};
use super::texture;

/// Height of one line of the legend in pixels.
pub const LINE_HEIGHT: f64 = 21.0;
const KEY_WIDTH: f64 = 26.0;
const FONT_SIZE: f64 = 12.0;
const GAP: f64 = 22.0;

/// The shape at a data point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkerShape {
    /// A circle.
    Circle,
    /// A square.
    Square,
    /// A square on its corner.
    Diamond,
    /// A triangle.
    Triangle,
}

impl MarkerShape {
    /// The marker of the `index`th series.
    pub fn of_series(index: usize) -> Self {
        [Self::Circle, Self::Square, Self::Diamond, Self::Triangle][index % 4]
    }

    /// Draws the marker around a point.
    pub fn draw(self, svg: &mut Svg, centre: (f64, f64), colour: Colour) {
        self.paint(svg, centre, &Paint { fill: Some(colour), stroke: Some(Stroke::new(BACKGROUND, 1.0)) });
    }

    /// Draws the outline of the marker around a point.
    pub fn draw_open(self, svg: &mut Svg, centre: (f64, f64), colour: Colour) {
        self.paint(svg, centre, &Paint { fill: Some(BACKGROUND), stroke: Some(Stroke::new(colour, 1.6)) });
    }

    fn paint(self, svg: &mut Svg, (x, y): (f64, f64), paint: &Paint) {
        match self {
            Self::Circle => svg.circle((x, y), 4.0, paint),
            Self::Square => svg.rect(Area::new(x - 3.6, y - 3.6, 7.2, 7.2), paint),
            Self::Diamond => {
                svg.path(&Outline::polygon(&[(x, y - 5.0), (x + 5.0, y), (x, y + 5.0), (x - 5.0, y)]), paint);
            }
            Self::Triangle => {
                svg.path(&Outline::polygon(&[(x, y - 5.0), (x + 4.8, y + 3.6), (x - 4.8, y + 3.6)]), paint);
            }
        }
    }
}

/// The sample of a colour, line or marker before the name of an entry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LegendKey {
    /// A filled box.
    Area(Fill),
    /// A short line, a marker, or both.
    Line {
        /// The line, if points are joined.
        stroke: Option<Stroke>,
        /// The marker, if points are marked, and its colour.
        marker: Option<(MarkerShape, Colour)>,
    },
    /// A short vertical line.
    Tick,
}

/// One entry of a legend.
#[derive(Debug, Clone, PartialEq)]
pub struct LegendEntry {
    /// The sample that is drawn.
    pub key: LegendKey,
    /// Its meaning.
    pub name: String,
}

/// A legend laid out for a width.
#[derive(Debug, Clone)]
pub struct Legend {
    /// Entries with their left and top edge, relative to the legend's.
    entries: Vec<(f64, f64, LegendEntry)>,
    lines: usize,
}

impl Legend {
    /// Lays entries side by side, wrapping before `available` pixels are exceeded.
    pub fn new(entries: Vec<LegendEntry>, available: f64) -> Self {
        let (mut x, mut lines) = (0.0, usize::from(!entries.is_empty()));
        let mut positioned = Vec::with_capacity(entries.len());
        for entry in entries {
            let width = KEY_WIDTH + 7.0 + TextStyle::new(FONT_SIZE).width(&entry.name);
            if x > 0.0 && x + width > available {
                x = 0.0;
                lines += 1;
            }
            positioned.push((x, (lines - 1) as f64 * LINE_HEIGHT, entry));
            x += width + GAP;
        }
        Self { entries: positioned, lines }
    }

    /// Height in pixels.
    pub fn height(&self) -> f64 {
        self.lines as f64 * LINE_HEIGHT
    }

    /// Draws the legend with its upper left corner at a point.
    pub fn draw(&self, svg: &mut Svg, (left, top): (f64, f64)) {
        for (x, y, entry) in &self.entries {
            let (x, middle) = (left + x, top + y + LINE_HEIGHT / 2.0);
            draw_key(svg, &entry.key, x, middle);
            svg.text((x + KEY_WIDTH + 7.0, middle + FONT_SIZE * 0.36), &entry.name, &TextStyle::new(FONT_SIZE));
        }
    }
}

fn draw_key(svg: &mut Svg, key: &LegendKey, x: f64, middle: f64) {
    match key {
        LegendKey::Area(fill) => {
            let area = Area::new(x, middle - 7.0, KEY_WIDTH, 14.0);
            texture::fill(svg, area, fill);
            svg.rect(area, &Paint::stroke(Stroke::new(TEXT_COLOUR, 0.8)));
        }
        LegendKey::Line { stroke, marker } => {
            if let Some(stroke) = stroke {
                svg.line((x, middle), (x + KEY_WIDTH, middle), stroke);
            }
            if let Some((marker, colour)) = marker {
                marker.draw(svg, (x + KEY_WIDTH / 2.0, middle), *colour);
            }
        }
        LegendKey::Tick => {
            let x = x + KEY_WIDTH / 2.0;
            svg.line((x, middle - 7.0), (x, middle + 7.0), &Stroke::new(TEXT_COLOUR, 2.5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_wrap_before_the_edge() {
        let entry = |name: &str| LegendEntry { key: LegendKey::Tick, name: name.to_owned() };
        let entries = vec![entry("one name"), entry("another name"), entry("a third name")];
        assert!((Legend::new(entries.clone(), 1000.0).height() - LINE_HEIGHT).abs() < 1e-9);
        assert!((Legend::new(entries, 150.0).height() - 3.0 * LINE_HEIGHT).abs() < 1e-9);
        assert!(Legend::new(Vec::new(), 150.0).height().abs() < 1e-9);
    }
}
