//! A small SVG writer.
//!
//! It writes rectangles, lines, paths, circles, text and groups, which is all that the charts need. Text is escaped, and a shape with a
//! coordinate that is not finite is left out. Charts have to handle infinite bounds themselves; if one does not, a shape is missing, but
//! the file is valid.
//!
//! ```
//! use rung_figure::figure::palette::TEXT_COLOUR;
//! use rung_figure::figure::svg::{Stroke, Svg};
//!
//! let mut svg = Svg::new(100.0, 40.0);
//! svg.line((0.0, 20.0), (100.0, 20.0), &Stroke::new(TEXT_COLOUR, 1.0));
//! svg.line((0.0, f64::NAN), (100.0, 20.0), &Stroke::new(TEXT_COLOUR, 1.0));
//! let text = svg.finish("a line");
//! assert_eq!(text.matches("<path").count(), 1);
//! ```

use std::fmt::Write as _;

use super::palette::{BACKGROUND, Colour, TEXT_COLOUR};
use super::text;
use crate::markup::escape;

/// The font list. [`text`] has the widths of the first font, and PNG files are rendered with it.
pub const FONT_FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// A rectangle on the page, in pixels from the upper left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Area {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl Area {
    /// An area from its upper left corner and its size.
    pub fn new(x: f64, y: f64, width: f64, height: f64) -> Self {
        Self { x, y, width, height }
    }

    /// Right edge.
    pub fn right(&self) -> f64 {
        self.x + self.width
    }

    /// Lower edge.
    pub fn bottom(&self) -> f64 {
        self.y + self.height
    }
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct Stroke {
    /// Colour of the line.
    pub colour: Colour,
    /// Width in pixels.
    pub width: f64,
    /// Lengths of dashes and gaps, as in `stroke-dasharray`; empty for a solid line.
    pub dash: &'static str,
}

impl Stroke {
    /// A solid line.
    pub fn new(colour: Colour, width: f64) -> Self {
        Self { colour, width, dash: "" }
    }

    /// The same line, dashed.
    pub fn dashed(self, dash: &'static str) -> Self {
        Self { dash, ..self }
    }

    fn attributes(&self) -> String {
        let dash = if self.dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{}\"", self.dash) };
        format!(" stroke=\"{}\" stroke-width=\"{}\"{dash}", self.colour, number(self.width))
    }
}

/// How a shape is filled and outlined.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Paint {
    /// Inside, if any.
    pub fill: Option<Colour>,
    /// Outline, if any.
    pub stroke: Option<Stroke>,
}

impl Paint {
    /// Filled, with no outline.
    pub fn fill(colour: Colour) -> Self {
        Self { fill: Some(colour), stroke: None }
    }

    /// Outlined, with nothing inside.
    pub fn stroke(stroke: Stroke) -> Self {
        Self { fill: None, stroke: Some(stroke) }
    }

    fn attributes(&self) -> String {
        let fill = self.fill.map_or_else(|| " fill=\"none\"".to_owned(), |colour| format!(" fill=\"{colour}\""));
        fill + &self.stroke.map_or_else(String::new, |stroke| stroke.attributes())
    }
}

/// The part of a text that is at its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The point is where the text begins.
    Start,
    /// The point is the middle of the text.
    Middle,
    /// The point is where the text ends.
    End,
}

/// The style of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct TextStyle {
    /// Font size in pixels.
    pub size: f64,
    /// Bold or regular.
    pub bold: bool,
    /// The part of the text that is at the point.
    pub anchor: Anchor,
    /// Colour of the text.
    pub colour: Colour,
    /// Rotated by 90 degrees to read upwards, for the title of a vertical axis.
    pub upwards: bool,
}

impl TextStyle {
    /// Regular text in the colour [`TEXT_COLOUR`] that begins at the point.
    pub fn new(size: f64) -> Self {
        Self { size, bold: false, anchor: Anchor::Start, colour: TEXT_COLOUR, upwards: false }
    }

    /// The same, bold.
    pub fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    /// The same, with another anchor.
    pub fn anchored(self, anchor: Anchor) -> Self {
        Self { anchor, ..self }
    }

    /// The same, in another colour.
    pub fn coloured(self, colour: Colour) -> Self {
        Self { colour, ..self }
    }

    /// The same, turned to read upwards.
    pub fn upwards(self) -> Self {
        Self { upwards: true, ..self }
    }

    /// Width of `text` set this way, in pixels.
    pub fn width(&self, text: &str) -> f64 {
        text::width(text, self.size, self.bold)
    }
}

/// A drawing under construction.
#[derive(Debug, Clone)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    /// An empty page of the given size in pixels.
    pub fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    /// A rectangle.
    pub fn rect(&mut self, area: Area, paint: &Paint) {
        if all_finite(&[area.x, area.y, area.width, area.height]) {
            let Area { x, y, width, height } = area;
            let (x, y, width, height) = (number(x), number(y), number(width.max(0.0)), number(height.max(0.0)));
            self.push(&format!(
                "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"{}/>",
                paint.attributes()
            ));
        }
    }

    /// A straight line between two points.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &Stroke) {
        self.polyline(&[from, to], stroke);
    }

    /// Straight lines through all points in order.
    pub fn polyline(&mut self, points: &[(f64, f64)], stroke: &Stroke) {
        let mut outline = Outline::new();
        for (index, &point) in points.iter().enumerate() {
            if index == 0 { outline.move_to(point) } else { outline.line_to(point) }
        }
        self.path(&outline, &Paint::stroke(*stroke));
    }

    /// An outline of any shape.
    pub fn path(&mut self, outline: &Outline, paint: &Paint) {
        if outline.finite && !outline.data.is_empty() {
            let caps = " stroke-linecap=\"round\" stroke-linejoin=\"round\"";
            self.push(&format!("<path d=\"{}\"{}{caps}/>", outline.data, paint.attributes()));
        }
    }

    /// A circle.
    pub fn circle(&mut self, centre: (f64, f64), radius: f64, paint: &Paint) {
        if all_finite(&[centre.0, centre.1, radius]) {
            let (x, y, radius) = (number(centre.0), number(centre.1), number(radius.max(0.0)));
            self.push(&format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"{}/>", paint.attributes()));
        }
    }

    /// One line of text whose baseline is at the point.
    pub fn text(&mut self, baseline: (f64, f64), text: &str, style: &TextStyle) {
        if text.is_empty() || !all_finite(&[baseline.0, baseline.1, style.size]) {
            return;
        }
        let anchor = match style.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let bold = if style.bold { " font-weight=\"bold\"" } else { "" };
        let (x, y) = (number(baseline.0), number(baseline.1));
        let rotation = if style.upwards { format!(" transform=\"rotate(-90 {x} {y})\"") } else { String::new() };
        let (size, colour) = (number(style.size), style.colour);
        self.push(&format!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{colour}\"{anchor}{bold}{rotation}>{}</text>",
            escape(text)
        ));
    }

    /// A group of shapes with a tooltip, which may be empty.
    pub fn group(&mut self, tooltip: &str, draw: impl FnOnce(&mut Self)) {
        self.push("<g>");
        if !tooltip.is_empty() {
            self.push(&format!("<title>{}</title>", escape(tooltip)));
        }
        draw(self);
        self.push("</g>");
    }

    /// The finished element. `label` describes the drawing for screen readers.
    pub fn finish(self, label: &str) -> String {
        let (width, height) = (number(self.width), number(self.height));
        let mut out = String::with_capacity(self.body.len() + 400);
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\" aria-label=\"{}\" font-family=\"{FONT_FAMILY}\">\n\
             <rect x=\"0\" y=\"0\" width=\"{width}\" height=\"{height}\" fill=\"{BACKGROUND}\"/>\n",
            escape(label)
        );
        out.push_str(&self.body);
        out.push_str("</svg>\n");
        out
    }

    fn push(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }
}

/// The outline of a path, built point by point.
#[derive(Debug, Clone)]
pub struct Outline {
    data: String,
    finite: bool,
}

impl Default for Outline {
    fn default() -> Self {
        Self::new()
    }
}

impl Outline {
    /// An empty outline.
    pub fn new() -> Self {
        Self { data: String::new(), finite: true }
    }

    /// Begins a new line at `point`.
    pub fn move_to(&mut self, point: (f64, f64)) {
        self.push_command('M', point);
    }

    /// Adds a straight line to `point`.
    pub fn line_to(&mut self, point: (f64, f64)) {
        self.push_command('L', point);
    }

    /// Closes the current line with a straight line to its beginning.
    pub fn close(&mut self) {
        self.data.push('Z');
    }

    /// The closed outline through `points`.
    pub fn polygon(points: &[(f64, f64)]) -> Self {
        let mut outline = Self::new();
        for (index, &point) in points.iter().enumerate() {
            if index == 0 { outline.move_to(point) } else { outline.line_to(point) }
        }
        outline.close();
        outline
    }

    fn push_command(&mut self, command: char, (x, y): (f64, f64)) {
        self.finite &= all_finite(&[x, y]);
        self.data.push(command);
        self.data.push_str(&number(x));
        self.data.push(' ');
        self.data.push_str(&number(y));
    }
}

fn all_finite(values: &[f64]) -> bool {
    values.iter().all(|value| value.is_finite())
}

/// A coordinate with at most two decimals and without trailing zeros.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([1.0, 1.5, -0.001, 100.0, 0.125].map(number), ["1", "1.5", "0", "100", "0.12"]);
    }

    #[test]
    fn shapes_with_coordinates_that_are_not_finite_are_left_out() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.rect(Area::new(f64::NAN, 0.0, 1.0, 1.0), &Paint::fill(TEXT_COLOUR));
        svg.circle((0.0, f64::INFINITY), 1.0, &Paint::fill(TEXT_COLOUR));
        svg.text((f64::NAN, 0.0), "x", &TextStyle::new(12.0));
        svg.polyline(&[(0.0, 0.0), (f64::NEG_INFINITY, 1.0)], &Stroke::new(TEXT_COLOUR, 1.0));
        assert_eq!(svg.finish("nothing").lines().count(), 3);
    }

    #[test]
    fn text_and_labels_are_escaped() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.group("<hint>", |svg| svg.text((0.0, 0.0), "a<b & \"c\"", &TextStyle::new(12.0)));
        let out = svg.finish("\"><script>");
        assert!(out.contains("a&lt;b &amp; &quot;c&quot;") && out.contains("<title>&lt;hint&gt;</title>"));
        assert!(!out.contains("<script"));
    }
}
