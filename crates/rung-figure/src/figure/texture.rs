//! Hatching, drawn line by line.
//!
//! SVG has patterns, but a pattern needs an `id`, and ids of several figures that are inline in one page conflict. So the lines are clipped
//! to the rectangle here and drawn as one path. They are aligned to a grid of the whole drawing, so the texture continues across adjacent
//! areas.

use super::palette::Fill;
use super::svg::{Area, Outline, Paint, Stroke, Svg};

/// The texture over the background colour of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Texture {
    /// Nothing.
    Plain,
    /// A loose grid of dots.
    Dots,
    /// Lines from lower left to upper right.
    Diagonal,
}

const DOT_STEP: f64 = 7.0;
const LINE_STEP: f64 = 7.0;

/// Fills `area` with background colour and texture.
pub fn fill(svg: &mut Svg, area: Area, fill: &Fill) {
    svg.rect(area, &Paint::fill(fill.colour));
    match fill.texture {
        Texture::Plain => {}
        Texture::Dots => svg.path(&dots(area), &Paint::stroke(Stroke::new(fill.texture_colour, 1.6))),
        Texture::Diagonal => svg.path(&diagonals(area), &Paint::stroke(Stroke::new(fill.texture_colour, 1.2))),
    }
}

/// The multiples of `step` between `low` and `high`.
fn multiples(low: f64, high: f64, step: f64) -> impl Iterator<Item = f64> {
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(move |index| index as f64 * step)
}

fn dots(area: Area) -> Outline {
    let mut outline = Outline::new();
    for (row, y) in multiples(area.y + 1.5, area.bottom() - 1.5, DOT_STEP).enumerate() {
        // Every second row is shifted by half a step.
        let shift = if row % 2 == 0 { 0.0 } else { DOT_STEP / 2.0 };
        for x in multiples(area.x + 1.5 - shift, area.right() - 1.5 - shift, DOT_STEP) {
            // A line of almost no length with round ends is a dot.
            outline.move_to((x + shift, y));
            outline.line_to((x + shift + 0.01, y));
        }
    }
    outline
}

/// Lines `x + y = c`, clipped to the area.
fn diagonals(area: Area) -> Outline {
    let mut outline = Outline::new();
    for sum in multiples(area.x + area.y, area.right() + area.bottom(), LINE_STEP) {
        let left = area.x.max(sum - area.bottom());
        let right = area.right().min(sum - area.y);
        if right - left > 0.5 {
            outline.move_to((left, sum - left));
            outline.line_to((right, sum - right));
        }
    }
    outline
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_stay_inside() {
        assert_eq!(multiples(3.0, 14.5, 7.0).collect::<Vec<_>>(), [7.0, 14.0]);
        assert_eq!(multiples(8.0, 13.0, 7.0).count(), 0);
    }
}
