//! Lines and points over two axes.
//!
//! The chart takes series of points, each with an optional spread, and axes that are linear or logarithmic. A series
//! can carry [`Evidence`]; then its legend entry says the word, and if it is the only one of its kind it has the colour and the mark
//! of that evidence in every figure. All others take colours, marks and dashes in order: a reader has to distinguish them.
//!
//! Points that a scale cannot show (nothing or less on a logarithmic axis, a number that is not finite) break the line
//! and are not drawn; the CSV still has them.
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
use super::legend::{Key, Legend, LegendEntry, MarkerShape};
use super::palette::{self, Colour, INK, MUTED, PAPER};
use super::svg::{Anchor, Area, Paint, Stroke, Svg, TextStyle};
use crate::Evidence;

/// A point, with the spread it was seen with.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Up.
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
    pub fn between(self, low: f64, high: f64) -> Self {
        Self { low: Some(low), high: Some(high), ..self }
    }
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesStyle {
    /// A line through the points.
    Line,
    /// Marks at the points.
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
    /// How they came to be known.
    pub evidence: Option<Evidence>,
    /// How far to the right of its place it is drawn, so that the spreads of several series do not cover each other.
    pub aside: f64,
}

impl Series {
    /// A line.
    pub fn line(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { name: name.into(), points, style: SeriesStyle::Line, evidence: None, aside: 0.0 }
    }

    /// Marks.
    pub fn points(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { style: SeriesStyle::Points, ..Self::line(name, points) }
    }

    /// A line with marks.
    pub fn line_and_points(name: impl Into<String>, points: Vec<Point>) -> Self {
        Self { style: SeriesStyle::LineAndPoints, ..Self::line(name, points) }
    }

    /// The same series, with its evidence.
    pub fn known(self, evidence: Evidence) -> Self {
        Self { evidence: Some(evidence), ..self }
    }

    /// The same series, drawn a little to the right of its place, or to the left if negative.
    pub fn aside(self, aside: f64) -> Self {
        Self { aside, ..self }
    }
}

/// What an axis shows.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct AxisSpec {
    /// Words along the axis.
    pub title: String,
    /// How values are spread.
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
    pub fn from_to(self, low: f64, high: f64) -> Self {
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
    /// Where it stands.
    pub y: f64,
    /// What is written on it.
    pub label: String,
}

/// The chart.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct LineChart {
    /// What it is called.
    pub title: String,
    /// The axis across.
    pub x: AxisSpec,
    /// The axis up.
    pub y: AxisSpec,
    /// What is drawn.
    pub series: Vec<Series>,
    /// Lines to compare with.
    pub guides: Vec<Guide>,
}

const PLOT_HEIGHT: f64 = 330.0;

impl LineChart {
    /// A chart with nothing on it yet.
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

    fn heights(&self) -> impl Iterator<Item = f64> {
        let spreads = self.points().flat_map(|point| [Some(point.y), point.low, point.high]).flatten();
        spreads.chain(self.guides.iter().map(|guide| guide.y))
    }

    fn pens(&self) -> Vec<SeriesPen> {
        let alone = |series: &Series| {
            series.evidence.is_some_and(|known| self.series.iter().filter(|s| s.evidence == Some(known)).count() == 1)
        };
        // The first colour in the order is near to that of proofs.
        let skipped = usize::from(self.series.iter().any(alone));
        let mut places = skipped..;
        let pen = |series: &Series| match series.evidence {
            Some(known) if alone(series) => {
                let mark = match known {
                    Evidence::Proved => MarkerShape::Square,
                    Evidence::Constructed => MarkerShape::Diamond,
                    Evidence::Measured => MarkerShape::Circle,
                };
                SeriesPen { colour: palette::evidence(known), mark, dash: "" }
            }
            _ => {
                let place = places.next().unwrap_or_default();
                let dash = DASHES[(place - skipped) % DASHES.len()];
                SeriesPen { colour: palette::series(place), mark: MarkerShape::of(place - skipped), dash }
            }
        };
        self.series.iter().map(pen).collect()
    }

    fn legend(&self, pens: &[SeriesPen]) -> Legend {
        let entry = |(series, pen): (&Series, &SeriesPen)| {
            let evidence = series.evidence.map(|evidence| format!(" ({evidence})")).unwrap_or_default();
            let stroke = (series.style != SeriesStyle::Points).then(|| pen.stroke());
            let mark = (series.style != SeriesStyle::Line).then_some((pen.mark, pen.colour));
            LegendEntry { key: Key::Line { stroke, mark }, name: format!("{}{evidence}", series.name) }
        };
        Legend::new(self.series.iter().zip(pens).map(entry).collect(), WIDTH - 2.0 * MARGIN)
    }
}

const DASHES: [&str; 4] = ["", "7 4", "2 4", "9 4 2 4"];

/// What a series is drawn with.
struct SeriesPen {
    colour: Colour,
    mark: MarkerShape,
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

        let up = self.y.axis(self.heights()).over(top + PLOT_HEIGHT, top);
        let up_ticks = up.ticks(7);
        let left = MARGIN + axis::left_room(&up_ticks);
        let plot = Area::new(left, top, WIDTH - left - MARGIN - 10.0, PLOT_HEIGHT);
        let across = self.x.axis(self.points().map(|point| point.x)).over(plot.x, plot.right());
        let across_ticks = across.ticks_beside(10, |tick| tick.label.clone());

        let mut svg = Svg::new(WIDTH, plot.bottom() + 39.0 + MARGIN);
        heading.draw(&mut svg);
        legend.draw(&mut svg, (MARGIN, MARGIN + heading.height() + 6.0));
        axis::draw_bottom(&mut svg, plot, &across, &across_ticks, &self.x.title, true);
        axis::draw_left(&mut svg, plot, &up, &up_ticks, &self.y.title, true);

        let sheet = PlotArea { plot, across, up };
        for guide in &self.guides {
            sheet.draw_guide_line(&mut svg, guide);
        }
        for (series, pen) in self.series.iter().zip(&pens) {
            svg.group(&series.name, |svg| sheet.draw_series(svg, series, pen));
        }
        for guide in &self.guides {
            sheet.draw_guide_label(&mut svg, guide, self.points());
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

/// Where things go while a chart is drawn.
struct PlotArea {
    plot: Area,
    across: Axis,
    up: Axis,
}

impl PlotArea {
    fn place(&self, x: f64, y: f64, aside: f64) -> Option<(f64, f64)> {
        self.across.position(x).map(|x| x + aside).zip(self.up.position(y))
    }

    fn holds(&self, (x, y): (f64, f64)) -> bool {
        let near = |low: f64, value: f64, high: f64| low - 0.01 <= value && value <= high + 0.01;
        near(self.plot.x, x, self.plot.right()) && near(self.plot.y, y, self.plot.bottom())
    }

    fn draw_series(&self, svg: &mut Svg, series: &Series, pen: &SeriesPen) {
        for point in &series.points {
            self.draw_spread(svg, point, series.aside, pen);
        }
        if series.style != SeriesStyle::Points {
            self.draw_line(svg, series, pen);
        }
        if series.style != SeriesStyle::Line {
            let places = series.points.iter().filter_map(|point| self.place(point.x, point.y, series.aside));
            places.filter(|place| self.holds(*place)).for_each(|place| pen.mark.draw(svg, place, pen.colour));
        }
    }

    /// The line, cut to the plot. Segments that meet are drawn as one, so that dashes run on.
    fn draw_line(&self, svg: &mut Svg, series: &Series, pen: &SeriesPen) {
        let mut run: Vec<(f64, f64)> = Vec::new();
        let place = |point: &Point| self.place(point.x, point.y, series.aside);
        for pair in series.points.windows(2) {
            let ends = place(&pair[0]).zip(place(&pair[1]));
            let Some((from, to)) = ends.and_then(|(from, to)| clip(self.plot, from, to)) else { continue };
            if run.last() != Some(&from) {
                svg.polyline(&std::mem::take(&mut run), &pen.stroke());
                run.push(from);
            }
            run.push(to);
        }
        svg.polyline(&run, &pen.stroke());
    }

    fn draw_spread(&self, svg: &mut Svg, point: &Point, aside: f64, pen: &SeriesPen) {
        let ends = (point.low.unwrap_or(point.y), point.high.unwrap_or(point.y));
        if point.low.is_none() && point.high.is_none() {
            return;
        }
        let places = self.place(point.x, ends.0, aside).zip(self.place(point.x, ends.1, aside));
        let Some((from, to)) = places.and_then(|(from, to)| clip(self.plot, from, to)) else { return };
        let stroke = Stroke::new(pen.colour, 1.3);
        svg.line(from, to, &stroke);
        for (x, y) in [from, to] {
            svg.line((x - 3.5, y), (x + 3.5, y), &stroke);
        }
    }

    fn guide_height(&self, guide: &Guide) -> Option<f64> {
        self.up.position(guide.y).filter(|y| self.holds((self.plot.x, *y)))
    }

    fn draw_guide_line(&self, svg: &mut Svg, guide: &Guide) {
        if let Some(y) = self.guide_height(guide) {
            svg.line((self.plot.x, y), (self.plot.right(), y), &Stroke::new(INK, 1.2).dashed("5 3"));
        }
    }

    /// Writes the label above or below its line, at the end where fewer points are.
    fn draw_guide_label<'a>(&self, svg: &mut Svg, guide: &Guide, points: impl Iterator<Item = &'a Point>) {
        let Some(y) = self.guide_height(guide) else { return };
        let lettering = TextStyle::new(11.0).coloured(MUTED);
        let width = lettering.width(&guide.label) + 8.0;
        let (left, right) = (self.plot.x + 4.0, self.plot.right() - width - 4.0);
        let (above, below) = (y - 17.0, y + 3.0);
        let boxes = [(left, above), (right, above), (left, below), (right, below)]
            .map(|(x, top)| Area::new(x, top, width, 14.0))
            .into_iter()
            .filter(|area| area.y >= self.plot.y && area.bottom() <= self.plot.bottom());
        let places: Vec<(f64, f64)> = points.filter_map(|point| self.place(point.x, point.y, 0.0)).collect();
        let crowd = |area: &Area| {
            let near = |(x, y): &&(f64, f64)| {
                (area.x - 12.0..area.right() + 12.0).contains(x) && (area.y - 10.0..area.bottom() + 10.0).contains(y)
            };
            places.iter().filter(near).count()
        };
        let Some(area) = boxes.min_by_key(crowd) else { return };
        svg.rect(area, &Paint::fill(PAPER));
        svg.text((area.x + 4.0, area.y + 11.0), &guide.label, &lettering.anchored(Anchor::Start));
    }
}

/// The part of a straight line that lies in an area (Liang and Barsky's method).
fn clip(area: Area, from: (f64, f64), to: (f64, f64)) -> Option<((f64, f64), (f64, f64))> {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let (mut enter, mut leave) = (0.0f64, 1.0f64);
    let sides =
        [(-dx, from.0 - area.x), (dx, area.right() - from.0), (-dy, from.1 - area.y), (dy, area.bottom() - from.1)];
    for (speed, distance) in sides {
        if speed == 0.0 {
            // A hair of tolerance: a line along the frame is inside.
            if distance < -0.01 {
                return None;
            }
        } else if speed < 0.0 {
            enter = enter.max(distance / speed);
        } else {
            leave = leave.min(distance / speed);
        }
    }
    let at = |share: f64| (from.0 + share * dx, from.1 + share * dy);
    // Ends that were inside are handed back as they came, so that neighbouring segments meet exactly.
    let first = if enter == 0.0 { from } else { at(enter) };
    let second = if leave >= 1.0 { to } else { at(leave) };
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
        fn no_chart_has_a_broken_number(x in scales(), y in scales(), points in points(), range in prop::option::of((any::<f64>(), any::<f64>()))) {
            let chart = LineChart::new("t", AxisSpec { range, ..AxisSpec::new("x", x) }, AxisSpec::new("y", y))
                .series(Series::line_and_points("s", points.clone()).known(Evidence::Measured))
                .series(Series::points("p", points))
                .guide(1.0, "one");
            let svg = chart.svg();
            prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }

        #[cfg(feature = "png")]
        #[test]
        fn every_chart_is_well_formed(title in ".*", name in ".*", points in points()) {
            let chart = LineChart::new(title, AxisSpec::new(name.clone(), Scale::Linear), AxisSpec::new("y", Scale::Linear))
                .series(Series::line(name, points));
            let svg = chart.svg();
            prop_assert!(resvg::usvg::roxmltree::Document::parse(&svg).is_ok(), "{svg}");
        }

        #[test]
        fn what_is_clipped_is_inside(a in (-50.0..150.0f64, -50.0..150.0f64), b in (-50.0..150.0f64, -50.0..150.0f64)) {
            let area = Area::new(0.0, 0.0, 100.0, 100.0);
            if let Some((from, to)) = clip(area, a, b) {
                for (x, y) in [from, to] {
                    prop_assert!((-1e-6..=100.000_001).contains(&x) && (-1e-6..=100.000_001).contains(&y));
                }
            }
        }
    }

    #[test]
    fn a_line_across_is_cut_and_a_line_beside_is_not_drawn() {
        let area = Area::new(0.0, 0.0, 10.0, 10.0);
        assert_eq!(clip(area, (-10.0, 5.0), (20.0, 5.0)), Some(((0.0, 5.0), (10.0, 5.0))));
        assert_eq!(clip(area, (-10.0, 15.0), (20.0, 15.0)), None);
        assert_eq!(clip(area, (-5.0, 0.0), (0.0, -20.0)), None);
    }

    #[test]
    fn the_table_has_every_point() {
        let points = vec![Point::new(1.0, 0.5).between(0.4, 0.6), Point::new(2.0, f64::NAN)];
        let chart = LineChart::new("t", AxisSpec::new("x", Scale::Log2), AxisSpec::new("y", Scale::Linear))
            .series(Series::points("a, b", points).known(Evidence::Measured));
        assert_eq!(
            chart.csv(),
            "series,evidence,x,y,low,high\n\"a, b\",measured,1,0.5,0.4,0.6\n\"a, b\",measured,2,,,\n"
        );
    }
}
