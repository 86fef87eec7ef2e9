//! The line chart: series of points over two axes.
//!
//! A point can have a spread, and axes are linear or logarithmic. A series can have [`Evidence`]; then the legend names it, and if it is the
//! only series with that evidence it has the evidence's colour and marker. All other series get colours, markers and dashes in order.
//!
//! Points that a scale cannot show (zero or less on a logarithmic axis, a number that is not finite) break the line and are not drawn; the
//! CSV still has them.
//!
//! ```
//! use rung_figure::figure::{AxisSpec, Chart, LineChart, Point, Scale, Series};
//!
//! let points = (1..=10).map(|hops| Point::new(f64::from(hops), 2f64.powi(-hops))).collect();
//! let chart = LineChart::new(
//!     "Bits had over bits needed",
//!     AxisSpec::new("hops", Scale::Linear),
//!     AxisSpec::new("ratio", Scale::Log10),
//! )
//! .series(Series::line("a stack", points));
//! assert!(chart.svg().contains("a stack"));
//! ```

use super::Chart;
use super::axis::{self, Axis, Scale};
use super::csv::{Csv, field};
use super::heading::{Heading, MARGIN, WIDTH};
use super::legend::{Legend, LegendEntry, LegendKey, MarkerShape};
use super::palette::{self, BACKGROUND, Colour, MUTED, TEXT_COLOUR};
use super::svg::{Anchor, Area, Paint, Stroke, Svg, TextStyle};
use crate::Evidence;

/// A point with an optional spread.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct Point {
    /// Value on the horizontal axis.
    pub x: f64,
    /// Value on the vertical axis.
    pub y: f64,
    /// Lower end of the spread.
    pub low: Option<f64>,
    /// Upper end of the spread.
    pub high: Option<f64>,
}

impl Point {
    /// A point without a spread.
    pub fn new(x: f64, y: f64) -> Self {
        Self { x, y, low: None, high: None }
    }

    /// The same point with a spread.
    pub fn with_spread(self, low: f64, high: f64) -> Self {
        Self { low: Some(low), high: Some(high), ..self }
    }
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesStyle {
    /// A line through the points.
    Line,
    /// Markers at the points.
    Points,
    /// Both.
    LineAndPoints,
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// The points, in the order in which a line goes through them.
    pub points: Vec<Point>,
    /// How they are drawn.
    pub style: SeriesStyle,
    /// The evidence for the values.
    pub evidence: Option<Evidence>,
    /// Pixels by which the series is shifted to the right, so that the spreads of several series do not cover each other.
    pub x_offset: f64,
}

impl Series {
    /// A line.
    pub fn line(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { name: name.into(), points, style: SeriesStyle::Line, evidence: None, x_offset: 0.0 }
    }

    /// Markers.
    pub fn points(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { style: SeriesStyle::Points, ..Self::line(name, points) }
    }

    /// A line with markers.
    pub fn line_and_points(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { style: SeriesStyle::LineAndPoints, ..Self::line(name, points) }
    }

    /// The same series, with its evidence.
    pub fn with_evidence(self, evidence: Evidence) -> Self {
        Self { evidence: Some(evidence), ..self }
    }

    /// The same series, shifted by some pixels to the right, or to the left if negative.
    pub fn shifted(self, x_offset: f64) -> Self {
        Self { x_offset, ..self }
    }
}

/// Title, scale and range of an axis.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct AxisSpec {
    /// The title along the axis.
    pub title: String,
    /// The scale.
    pub scale: Scale,
    /// Low and high end; taken from the data when absent.
    pub range: Option<(f64, f64)>,
}

impl AxisSpec {
    /// An axis that covers the data.
    pub fn new(title: impl Into<String>, scale: Scale) -> Self {
        Self { title: title.into(), scale, range: None }
    }

    /// The same axis with a fixed range.
    pub fn with_range(self, low: f64, high: f64) -> Self {
        Self { range: Some((low, high)), ..self }
    }

    pub(super) fn axis(&self, values: impl IntoIterator<Item = f64>) -> Axis {
        match self.range {
            Some((low, high)) => Axis::new(self.scale, low, high),
            None => Axis::covering(self.scale, values),
        }
    }
}

/// A horizontal line to compare with, such as `ratio = 1`.
#[derive(Debug, Clone, PartialEq)]
pub struct Guide {
    /// Its value on the vertical axis.
    pub y: f64,
    /// Its label.
    pub label: String,
}

/// A line chart.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct LineChart {
    /// The title.
    pub title: String,
    /// The horizontal axis.
    pub x: AxisSpec,
    /// The vertical axis.
    pub y: AxisSpec,
    /// The series.
    pub series: Vec<Series>,
    /// Horizontal lines to compare with.
    pub guides: Vec<Guide>,
}

const PLOT_HEIGHT: f64 = 330.0;

impl LineChart {
    /// A chart without series.
    pub fn new(title: impl Into<String>, x: AxisSpec, y: AxisSpec) -> Self {
        Self { title: title.into(), x, y, series: Vec::new(), guides: Vec::new() }
    }

    /// The same chart with one more series.
    pub fn series(mut self, series: Series) -> Self {
        self.series.push(series);
        self
    }

    /// The same chart with one more horizontal line.
    pub fn guide(mut self, y: f64, label: impl Into<String>) -> Self {
        self.guides.push(Guide { y, label: label.into() });
        self
    }

    fn points(&self) -> impl Iterator<Item = &Point> {
        self.series.iter().flat_map(|series| &series.points)
    }

    /// All values that the vertical axis has to cover.
    fn y_values(&self) -> impl Iterator<Item = f64> {
        let spreads = self.points().flat_map(|point| [Some(point.y), point.low, point.high]).flatten();
        spreads.chain(self.guides.iter().map(|guide| guide.y))
    }

    fn pens(&self) -> Vec<SeriesPen> {
        let only_of_its_evidence = |series: &Series| {
            let same = |evidence| self.series.iter().filter(|other| other.evidence == Some(evidence)).count();
            series.evidence.is_some_and(|evidence| same(evidence) == 1)
        };
        // The first colour of the palette is similar to that of proofs, so it is skipped beside colours of evidence.
        let skipped = usize::from(self.series.iter().any(only_of_its_evidence));
        let mut indices = skipped..;
        let pen = |series: &Series| match series.evidence {
            Some(evidence) if only_of_its_evidence(series) => {
                let marker = match evidence {
                    Evidence::Proved => MarkerShape::Square,
                    Evidence::Constructed => MarkerShape::Diamond,
                    Evidence::Measured => MarkerShape::Circle,
                };
                SeriesPen { colour: palette::evidence_colour(evidence), marker, dash: "" }
            }
            _ => {
                let index = indices.next().unwrap_or_default();
                let dash = DASHES[(index - skipped) % DASHES.len()];
                SeriesPen {
                    colour: palette::series_colour(index),
                    marker: MarkerShape::of_series(index - skipped),
                    dash,
                }
            }
        };
        self.series.iter().map(pen).collect()
    }

    fn legend(&self, pens: &[SeriesPen]) -> Legend {
        let entry = |(series, pen): (&Series, &SeriesPen)| {
            let evidence = series.evidence.map(|evidence| format!(" ({evidence})")).unwrap_or_default();
            let stroke = (series.style != SeriesStyle::Points).then(|| pen.stroke());
            let marker = (series.style != SeriesStyle::Line).then_some((pen.marker, pen.colour));
            LegendEntry { key: LegendKey::Line { stroke, marker }, name: format!("{}{evidence}", series.name) }
        };
        Legend::new(self.series.iter().zip(pens).map(entry).collect(), WIDTH - 2.0 * MARGIN)
    }
}

const DASHES: [&str; 4] = ["", "7 4", "2 4", "9 4 2 4"];

/// Colour, marker and dashes of a series.
struct SeriesPen {
    colour: Colour,
    marker: MarkerShape,
    dash: &'static str,
}

impl SeriesPen {
    fn stroke(&self) -> Stroke {
        Stroke::new(self.colour, 2.2).dashed(self.dash)
    }
}

impl Chart for LineChart {
    fn title(&self) -> &str {
        &self.title
    }

    fn svg(&self) -> String {
        let pens = self.pens();
        let heading = Heading::new(&self.title);
        let legend = self.legend(&pens);
        let top = MARGIN + heading.height() + 6.0 + legend.height() + 14.0;

        let y_axis = self.y.axis(self.y_values()).with_pixels(top + PLOT_HEIGHT, top);
        let y_ticks = y_axis.ticks(7);
        let left = MARGIN + axis::left_width(&y_ticks);
        let plot = Area::new(left, top, WIDTH - left - MARGIN - 10.0, PLOT_HEIGHT);
        let x_axis = self.x.axis(self.points().map(|point| point.x)).with_pixels(plot.x, plot.right());
        let x_ticks = x_axis.ticks_that_fit(10, |tick| tick.label.clone());

        let mut svg = Svg::new(WIDTH, plot.bottom() + 39.0 + MARGIN);
        heading.draw(&mut svg);
        legend.draw(&mut svg, (MARGIN, MARGIN + heading.height() + 6.0));
        axis::draw_bottom(&mut svg, plot, &x_axis, &x_ticks, &self.x.title, true);
        axis::draw_left(&mut svg, plot, &y_axis, &y_ticks, &self.y.title, true);

        let plot_area = PlotArea { plot, x_axis, y_axis };
        for guide in &self.guides {
            plot_area.draw_guide_line(&mut svg, guide);
        }
        for (series, pen) in self.series.iter().zip(&pens) {
            svg.group(&series.name, |svg| plot_area.draw_series(svg, series, pen));
        }
        for guide in &self.guides {
            plot_area.draw_guide_label(&mut svg, guide, self.points());
        }
        svg.finish(&format!("Line chart. {}", self.title))
    }

    fn csv(&self) -> String {
        let mut csv = Csv::new(["series", "evidence", "x", "y", "low", "high"]);
        for series in &self.series {
            let evidence = series.evidence.map(|evidence| evidence.to_string()).unwrap_or_default();
            for point in &series.points {
                let spread = |end: Option<f64>| end.map(field).unwrap_or_default();
                let (low, high) = (spread(point.low), spread(point.high));
                csv.row([series.name.clone(), evidence.clone(), field(point.x), field(point.y), low, high]);
            }
        }
        csv.finish()
    }
}

/// The plot with its two axes.
struct PlotArea {
    plot: Area,
    x_axis: Axis,
    y_axis: Axis,
}

impl PlotArea {
    /// The pixel of a point.
    fn pixel(&self, x: f64, y: f64, x_offset: f64) -> Option<(f64, f64)> {
        self.x_axis.position(x).map(|x| x + x_offset).zip(self.y_axis.position(y))
    }

    /// Whether a pixel is inside the plot, with some tolerance.
    fn contains(&self, (x, y): (f64, f64)) -> bool {
        let between = |low: f64, value: f64, high: f64| low - 0.01 <= value && value <= high + 0.01;
        between(self.plot.x, x, self.plot.right()) && between(self.plot.y, y, self.plot.bottom())
    }

    fn draw_series(&self, svg: &mut Svg, series: &Series, pen: &SeriesPen) {
        for point in &series.points {
            self.draw_spread(svg, point, series.x_offset, pen);
        }
        if series.style != SeriesStyle::Points {
            self.draw_line(svg, series, pen);
        }
        if series.style != SeriesStyle::Line {
            let pixels = series.points.iter().filter_map(|point| self.pixel(point.x, point.y, series.x_offset));
            pixels.filter(|pixel| self.contains(*pixel)).for_each(|pixel| pen.marker.draw(svg, pixel, pen.colour));
        }
    }

    /// Draws the line, clipped to the plot. Connected segments are one polyline, so that dashes are not interrupted.
    fn draw_line(&self, svg: &mut Svg, series: &Series, pen: &SeriesPen) {
        let mut polyline: Vec<(f64, f64)> = Vec::new();
        let pixel = |point: &Point| self.pixel(point.x, point.y, series.x_offset);
        for pair in series.points.windows(2) {
            let ends = pixel(&pair[0]).zip(pixel(&pair[1]));
            let Some((from, to)) = ends.and_then(|(from, to)| clip(self.plot, from, to)) else { continue };
            if polyline.last() != Some(&from) {
                svg.polyline(&std::mem::take(&mut polyline), &pen.stroke());
                polyline.push(from);
            }
            polyline.push(to);
        }
        svg.polyline(&polyline, &pen.stroke());
    }

    fn draw_spread(&self, svg: &mut Svg, point: &Point, x_offset: f64, pen: &SeriesPen) {
        let ends = (point.low.unwrap_or(point.y), point.high.unwrap_or(point.y));
        if point.low.is_none() && point.high.is_none() {
            return;
        }
        let pixels = self.pixel(point.x, ends.0, x_offset).zip(self.pixel(point.x, ends.1, x_offset));
        let Some((from, to)) = pixels.and_then(|(from, to)| clip(self.plot, from, to)) else { return };
        let stroke = Stroke::new(pen.colour, 1.3);
        svg.line(from, to, &stroke);
        for (x, y) in [from, to] {
            svg.line((x - 3.5, y), (x + 3.5, y), &stroke);
        }
    }

    fn guide_y(&self, guide: &Guide) -> Option<f64> {
        self.y_axis.position(guide.y).filter(|y| self.contains((self.plot.x, *y)))
    }

    fn draw_guide_line(&self, svg: &mut Svg, guide: &Guide) {
        if let Some(y) = self.guide_y(guide) {
            svg.line((self.plot.x, y), (self.plot.right(), y), &Stroke::new(TEXT_COLOUR, 1.2).dashed("5 3"));
        }
    }

    /// Writes the label above or below its line, at the end with fewer points.
    fn draw_guide_label<'a>(&self, svg: &mut Svg, guide: &Guide, points: impl Iterator<Item = &'a Point>) {
        let Some(y) = self.guide_y(guide) else { return };
        let style = TextStyle::new(11.0).coloured(MUTED);
        let width = style.width(&guide.label) + 8.0;
        let (left, right) = (self.plot.x + 4.0, self.plot.right() - width - 4.0);
        let (above, below) = (y - 17.0, y + 3.0);
        let boxes = [(left, above), (right, above), (left, below), (right, below)]
            .map(|(x, top)| Area::new(x, top, width, 14.0))
            .into_iter()
            .filter(|area| area.y >= self.plot.y && area.bottom() <= self.plot.bottom());
        let pixels: Vec<(f64, f64)> = points.filter_map(|point| self.pixel(point.x, point.y, 0.0)).collect();
        let near_points = |area: &Area| {
            let near = |(x, y): &&(f64, f64)| {
                (area.x - 12.0..area.right() + 12.0).contains(x) && (area.y - 10.0..area.bottom() + 10.0).contains(y)
            };
            pixels.iter().filter(near).count()
        };
        let Some(area) = boxes.min_by_key(near_points) else { return };
        svg.rect(area, &Paint::fill(BACKGROUND));
        svg.text((area.x + 4.0, area.y + 11.0), &guide.label, &style.anchored(Anchor::Start));
    }
}

/// The part of a segment that is in an area (Liang and Barsky's method).
fn clip(area: Area, from: (f64, f64), to: (f64, f64)) -> Option<((f64, f64), (f64, f64))> {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let (mut enter, mut leave) = (0.0f64, 1.0f64);
    let sides =
        [(-dx, from.0 - area.x), (dx, area.right() - from.0), (-dy, from.1 - area.y), (dy, area.bottom() - from.1)];
    for (direction, distance) in sides {
        if direction == 0.0 {
            // With a tolerance, so that a line along the frame is inside.
            if distance < -0.01 {
                return None;
            }
        } else if direction < 0.0 {
            enter = enter.max(distance / direction);
        } else {
            leave = leave.min(distance / direction);
        }
    }
    let point_at = |fraction: f64| (from.0 + fraction * dx, from.1 + fraction * dy);
    // Ends inside the area are returned unchanged, so that consecutive segments share them exactly.
    let first = if enter == 0.0 { from } else { point_at(enter) };
    let second = if leave >= 1.0 { to } else { point_at(leave) };
    (enter <= leave).then_some((first, second))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scales() -> impl Strategy<Value = Scale> {
        prop::sample::select(vec![Scale::Linear, Scale::Log2, Scale::Log10])
    }

    fn points() -> impl Strategy<Value = Vec<Point>> {
        let point = (any::<f64>(), any::<f64>(), prop::option::of(any::<f64>()), prop::option::of(-1e3..1e3f64));
        prop::collection::vec(point.prop_map(|(x, y, low, high)| Point { x, y, low, high }), 0..8)
    }

    proptest! {
        #[test]
        fn svg_has_no_nan_or_infinity(x in scales(), y in scales(), points in points(), range in prop::option::of((any::<f64>(), any::<f64>()))) {
            let chart = LineChart::new("t", AxisSpec { range, ..AxisSpec::new("x", x) }, AxisSpec::new("y", y))
                .series(Series::line_and_points("s", points.clone()).with_evidence(Evidence::Measured))
                .series(Series::points("p", points))
                .guide(1.0, "one");
            let svg = chart.svg();
            prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }

        #[cfg(feature = "png")]
        #[test]
        fn svg_is_well_formed_for_any_text(title in ".*", name in ".*", points in points()) {
            let chart = LineChart::new(title, AxisSpec::new(name.clone(), Scale::Linear), AxisSpec::new("y", Scale::Linear))
                .series(Series::line(name, points));
            let svg = chart.svg();
            prop_assert!(resvg::usvg::roxmltree::Document::parse(&svg).is_ok(), "{svg}");
        }

        #[test]
        fn clipped_segments_are_inside_the_area(a in (-50.0..150.0f64, -50.0..150.0f64), b in (-50.0..150.0f64, -50.0..150.0f64)) {
            let area = Area::new(0.0, 0.0, 100.0, 100.0);
            if let Some((from, to)) = clip(area, a, b) {
                for (x, y) in [from, to] {
                    prop_assert!((-1e-6..=100.000_001).contains(&x) && (-1e-6..=100.000_001).contains(&y));
                }
            }
        }
    }

    #[test]
    fn clip_cuts_a_crossing_segment_and_drops_one_outside() {
        let area = Area::new(0.0, 0.0, 10.0, 10.0);
        assert_eq!(clip(area, (-10.0, 5.0), (20.0, 5.0)), Some(((0.0, 5.0), (10.0, 5.0))));
        assert_eq!(clip(area, (-10.0, 15.0), (20.0, 15.0)), None);
        assert_eq!(clip(area, (-5.0, 0.0), (0.0, -20.0)), None);
    }

    #[test]
    fn csv_has_every_point() {
        let points = vec![Point::new(1.0, 0.5).with_spread(0.4, 0.6), Point::new(2.0, f64::NAN)];
        let chart = LineChart::new("t", AxisSpec::new("x", Scale::Log2), AxisSpec::new("y", Scale::Linear))
            .series(Series::points("a, b", points).with_evidence(Evidence::Measured));
        assert_eq!(
            chart.csv(),
            "series,evidence,x,y,low,high\n\"a, b\",measured,1,0.5,0.4,0.6\n\"a, b\",measured,2,,,\n"
        );
    }
}
