//! The hop map: how many hops one forward pass of a stack can compute.
//!
//! The horizontal axis is the number of tokens, in powers of two; the vertical axis the number of hops. Each row is divided into ranges of
//! context lengths for which the task is *solved* by a known construction, *impossible* by a certificate, or *unknown*. The map shows how
//! many hops the stack can compute, and from which context length on a bound holds.
//!
//! ```text
//!  hops                 128k 1M
//!    3 |  unknown         ¦  ¦       |///// impossible from 2⁴⁰ ////▸
//!    2 |==== solved ======¦==¦===|  unknown                         ▸
//!    1 |==== solved ======¦==¦======================================▸
//!      +---------------------------------------------------------------
//!       2⁰       2⁸      2¹⁶     2²⁴      2³²     tokens in the context
//! ```
//!
//! Bounds may begin at 2⁶⁰⁰ tokens while context lengths of today are below 2²⁴; if the range is that long, the axis is compressed beyond
//! 2²⁴ and its title says so. Labels are rounded conservatively: an impossible range never seems to begin earlier than it does, a solved range
//! never to end later (except for floating-point errors of a ten-millionth).

use super::Chart;
use super::axis::{self, Axis, Scale, Tick};
use super::csv::{Csv, field};
use super::heading::{Heading, MARGIN, WIDTH};
use super::legend::{Legend, LegendEntry, LegendKey};
use super::palette::{self, BACKGROUND, MUTED, TEXT_COLOUR};
use super::svg::{Anchor, Area, Outline, Paint, Stroke, Svg, TextStyle};
use super::{text, texture};

/// The verdict on a range of context lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RangeVerdict {
    /// A construction solves the task.
    Solved,
    /// Neither a construction nor a certificate is known.
    Unknown,
    /// A certificate shows that no weights solve the task.
    Impossible,
}

impl RangeVerdict {
    /// All three, in the order of the legend.
    pub const ALL: [Self; 3] = [Self::Solved, Self::Unknown, Self::Impossible];

    /// The label on the map.
    pub fn label(self) -> &'static str {
        match self {
            Self::Solved => "solved",
            Self::Unknown => "unknown",
            Self::Impossible => "impossible",
        }
    }
}

/// A range of context lengths with the same verdict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ContextRange {
    /// Base-two logarithm of the fewest tokens.
    pub from_log2: f64,
    /// Base-two logarithm of the most tokens; may be infinite.
    pub to_log2: f64,
    /// The verdict.
    pub verdict: RangeVerdict,
}

impl ContextRange {
    /// A range between two powers of two.
    pub fn new(from_log2: f64, to_log2: f64, verdict: RangeVerdict) -> Self {
        Self { from_log2, to_log2, verdict }
    }

    /// The part between 0 and `max_log2`, if there is any.
    pub fn clipped(&self, max_log2: f64) -> Option<(f64, f64)> {
        let (from, to) = (self.from_log2.max(0.0), self.to_log2.min(max_log2));
        // `max` and `min` ignore NaN, which must not give a range of full width.
        (!self.from_log2.is_nan() && !self.to_log2.is_nan() && from < to).then_some((from, to))
    }

    /// Texts for the range, the best first. The number is more important than the verdict, which the legend has too.
    fn labels(&self) -> Vec<String> {
        /// A smaller excess over a tenth is a floating-point error and is not rounded up.
        const TOLERANCE: f64 = 1e-6;
        // Numbers beyond the longest map are not rounded, since ten times the number may overflow.
        let round_to_tenths =
            |value: f64, round: fn(f64) -> f64| if value < MAX_LOG2 { round(value * 10.0) / 10.0 } else { value };
        let label = self.verdict.label();
        let end = match self.verdict {
            RangeVerdict::Impossible if self.from_log2 > 0.0 => {
                Some(format!("from {}", text::power(2, round_to_tenths(self.from_log2, |t| (t - TOLERANCE).ceil()))))
            }
            RangeVerdict::Solved if self.to_log2.is_finite() => {
                Some(format!("to {}", text::power(2, round_to_tenths(self.to_log2, |t| (t + TOLERANCE).floor()))))
            }
            _ => None,
        };
        let with_end = end.into_iter().flat_map(|end| [format!("{label} {end}"), end]);
        with_end.chain([label.to_owned()]).collect()
    }

    fn tooltip(&self, hops: u32) -> String {
        let plural = if hops == 1 { "hop" } else { "hops" };
        let from = text::power(2, self.from_log2.max(0.0));
        let tokens = if self.to_log2.is_finite() {
            format!("from {from} to {} tokens", text::power(2, self.to_log2))
        } else {
            format!("from {from} tokens on")
        };
        format!("{hops} {plural}: {} {tokens}", self.verdict.label())
    }
}

/// A context length to compare a row with.
#[derive(Debug, Clone, PartialEq)]
pub struct Marker {
    /// Base-two logarithm of its tokens.
    pub tokens_log2: f64,
    /// A short word beside it.
    pub label: String,
}

impl Marker {
    /// A marker where impossibility begins by the papers' formula.
    pub fn papers(tokens_log2: f64) -> Self {
        Self { tokens_log2, label: "papers".to_owned() }
    }
}

/// The verdicts for one number of hops.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct HopRow {
    /// The number of hops.
    pub hops: u32,
    /// The ranges, drawn in order.
    pub ranges: Vec<ContextRange>,
    /// A marker to compare with.
    pub marker: Option<Marker>,
}

impl HopRow {
    /// A row without a marker.
    pub fn new(hops: u32, ranges: Vec<ContextRange>) -> Self {
        Self { hops, ranges, marker: None }
    }

    /// The same row with a marker.
    pub fn with_marker(self, marker: Marker) -> Self {
        Self { marker: Some(marker), ..self }
    }
}

/// The map of a stack.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct HopMap {
    /// The title; usually the stack.
    pub title: String,
    /// One row for each number of hops, in any order.
    pub rows: Vec<HopRow>,
    /// Base-two logarithm of the largest number of tokens. By default all finite ends and markers are shown.
    pub max_log2: Option<f64>,
}

const LABEL_FONT_SIZE: f64 = 11.5;
/// Below this, which covers context lengths of today and of some years to come, a compressed axis is linear.
const KNEE_LOG2: f64 = 24.0;
/// An axis up to this value is linear everywhere.
const LINEAR_LIMIT_LOG2: f64 = 64.0;
/// The largest value of the axis.
const MAX_LOG2: f64 = 1e12;
/// Common context lengths, drawn as vertical lines.
const REFERENCE_LENGTHS: [(f64, &str); 2] = [(17.0, "128k"), (20.0, "1M")];

impl HopMap {
    /// A map that shows every finite end.
    pub fn new(title: impl Into<String>, rows: Vec<HopRow>) -> Self {
        Self { title: title.into(), rows, max_log2: None }
    }

    /// The same map, cut at `max_log2`.
    pub fn up_to(self, max_log2: f64) -> Self {
        Self { max_log2: Some(max_log2), ..self }
    }

    /// Base-two logarithm of the right end of the map.
    fn limit(&self) -> f64 {
        if let Some(limit) = self.max_log2.filter(|limit| *limit >= 1.0) {
            return limit.min(MAX_LOG2);
        }
        let ends =
            self.rows.iter().flat_map(|row| row.ranges.iter().flat_map(|range| [range.from_log2, range.to_log2]));
        let markers = self.rows.iter().filter_map(|row| row.marker.as_ref().map(|marker| marker.tokens_log2));
        let last_end = ends.chain(markers).filter(|end| end.is_finite()).fold(0.0, f64::max);
        // Some space to the right of the last boundary, so that the range that begins there can be labelled. A compressed axis needs more.
        let factor = if last_end > LINEAR_LIMIT_LOG2 / 1.25 { 2.0 } else { 1.25 };
        (last_end * factor).clamp(KNEE_LOG2, MAX_LOG2)
    }

    fn axis(&self) -> Axis {
        let limit = self.limit();
        let scale = if limit > LINEAR_LIMIT_LOG2 { Scale::LinearThenLog { knee: KNEE_LOG2 } } else { Scale::Linear };
        Axis::new(scale, 0.0, limit)
    }

    fn legend(&self, available: f64) -> Legend {
        let occurs =
            |verdict: RangeVerdict| self.rows.iter().any(|row| row.ranges.iter().any(|range| range.verdict == verdict));
        let names = [
            (RangeVerdict::Solved, "solved by a construction"),
            (RangeVerdict::Unknown, "unknown"),
            (RangeVerdict::Impossible, "impossible by a certificate"),
        ];
        let mut entries: Vec<LegendEntry> = names
            .into_iter()
            .filter(|(verdict, _)| occurs(*verdict))
            .map(|(verdict, name)| LegendEntry {
                key: LegendKey::Area(palette::verdict_fill(verdict)),
                name: name.to_owned(),
            })
            .collect();
        if self.rows.iter().any(|row| row.marker.is_some()) {
            entries.push(LegendEntry { key: LegendKey::Tick, name: "the papers' bound".to_owned() });
        }
        Legend::new(entries, available)
    }

    fn row_height(&self) -> f64 {
        (420.0 / self.rows.len().max(1) as f64).clamp(13.0, 32.0)
    }

    /// The numbers of hops that are written: all, or some of them if rows are too thin.
    fn row_ticks(&self, rows: &[&HopRow]) -> Vec<Tick> {
        let stride = (15.0 / self.row_height()).ceil() as usize;
        let tick = |(index, row): (usize, &&HopRow)| Tick { value: index as f64 + 0.5, label: row.hops.to_string() };
        rows.iter().enumerate().step_by(stride.max(1)).map(tick).collect()
    }
}

impl Chart for HopMap {
    fn title(&self) -> &str {
        &self.title
    }

    fn svg(&self) -> String {
        let mut rows: Vec<&HopRow> = self.rows.iter().collect();
        rows.sort_by_key(|row| row.hops);
        let row_ticks = self.row_ticks(&rows);
        let heading = Heading::new(&self.title);
        let legend = self.legend(WIDTH - 2.0 * MARGIN);

        let top = MARGIN + heading.height() + 6.0 + legend.height() + 26.0;
        let left = MARGIN + axis::left_width(&row_ticks);
        let height = self.row_height() * rows.len().max(1) as f64;
        let plot = Area::new(left, top, WIDTH - left - MARGIN - 14.0, height);

        let mut svg = Svg::new(WIDTH, plot.bottom() + 39.0 + MARGIN);
        heading.draw(&mut svg);
        legend.draw(&mut svg, (MARGIN, MARGIN + heading.height() + 6.0));

        let x_axis = self.axis().with_pixels(plot.x, plot.right());
        let y_axis = Axis::new(Scale::Linear, 0.0, rows.len().max(1) as f64).with_pixels(plot.bottom(), plot.y);
        let plot_area = PlotArea { plot, x_axis, limit: self.limit() };
        let row_area = |index: usize| {
            let height = self.row_height();
            RowArea { y: plot.bottom() - (index + 1) as f64 * height, height }
        };
        rows.iter().enumerate().for_each(|(index, row)| plot_area.draw_row(&mut svg, row, row_area(index)));
        plot_area.draw_references(&mut svg);
        rows.iter().enumerate().for_each(|(index, row)| plot_area.draw_labels(&mut svg, row, row_area(index)));
        let ticks = x_axis.ticks_that_fit(14, |tick| text::power(2, tick.value));
        let axis_title = if self.limit() > LINEAR_LIMIT_LOG2 {
            format!("tokens in the context, n (compressed beyond {})", text::power(2, KNEE_LOG2))
        } else {
            "tokens in the context, n".to_owned()
        };
        axis::draw_bottom(&mut svg, plot, &x_axis, &ticks, &axis_title, false);
        axis::draw_left(
            &mut svg,
            plot,
            &y_axis,
            &row_ticks,
            if height > 100.0 { "hops in one pass, L" } else { "hops, L" },
            false,
        );
        svg.finish(&format!("Hop map. {}", self.title))
    }

    fn csv(&self) -> String {
        let mut csv = Csv::new(["hops", "kind", "from_log2_tokens", "to_log2_tokens"]);
        for row in &self.rows {
            for range in &row.ranges {
                csv.row([
                    row.hops.to_string(),
                    range.verdict.label().to_owned(),
                    field(range.from_log2),
                    field(range.to_log2),
                ]);
            }
            if let Some(marker) = &row.marker {
                csv.row([
                    row.hops.to_string(),
                    format!("marker: {}", marker.label),
                    field(marker.tokens_log2),
                    field(marker.tokens_log2),
                ]);
            }
        }
        csv.finish()
    }
}

/// Top edge and height of a row, in pixels.
#[derive(Clone, Copy)]
struct RowArea {
    y: f64,
    height: f64,
}

impl RowArea {
    fn middle(&self) -> f64 {
        self.y + self.height / 2.0
    }

    /// Font size of labels in the row.
    fn size(&self) -> f64 {
        if self.height < 15.0 { 9.5 } else { LABEL_FONT_SIZE }
    }

    fn baseline(&self) -> f64 {
        self.middle() + self.size() * 0.36
    }

    /// The background of a label, which does not cover the frame of the row.
    fn label_area(&self, left: f64, width: f64) -> Area {
        let height = (self.size() * 1.4).min(self.height - 3.0);
        Area::new(left, self.middle() - height / 2.0, width, height)
    }
}

/// The plot with its horizontal axis.
struct PlotArea {
    plot: Area,
    x_axis: Axis,
    limit: f64,
}

impl PlotArea {
    fn x(&self, log2: f64) -> f64 {
        self.x_axis.position(log2).unwrap_or(self.plot.x)
    }

    fn draw_row(&self, svg: &mut Svg, row: &HopRow, row_area: RowArea) {
        for range in &row.ranges {
            let Some((from, to)) = range.clipped(self.limit) else { continue };
            let area = Area::new(self.x(from), row_area.y + 1.0, self.x(to) - self.x(from), row_area.height - 2.0);
            let fill = palette::verdict_fill(range.verdict);
            svg.group(&range.tooltip(row.hops), |svg| {
                texture::fill(svg, area, &fill);
                svg.rect(area, &Paint::stroke(Stroke::new(TEXT_COLOUR, 0.6)));
                if range.to_log2 > self.limit {
                    draw_continuation(svg, (area.right(), row_area.middle()), row_area.height, range.verdict);
                }
            });
        }
    }

    fn draw_references(&self, svg: &mut Svg) {
        let references: Vec<_> = REFERENCE_LENGTHS.iter().filter(|(log2, _)| *log2 <= self.limit).collect();
        let crowded = references.len() == 2 && self.x(references[1].0) - self.x(references[0].0) < 34.0;
        for (index, (log2, name)) in references.iter().enumerate() {
            let x = self.x(*log2);
            svg.line((x, self.plot.y - 5.0), (x, self.plot.bottom()), &Stroke::new(BACKGROUND, 2.6));
            svg.line((x, self.plot.y - 5.0), (x, self.plot.bottom()), &Stroke::new(TEXT_COLOUR, 1.1).dashed("1 3.5"));
            let anchor = match (crowded, index) {
                (false, _) => Anchor::Middle,
                (true, 0) => Anchor::End,
                (true, _) => Anchor::Start,
            };
            let offset = match anchor {
                Anchor::Start => -3.0,
                Anchor::Middle => 0.0,
                Anchor::End => 3.0,
            };
            svg.text((x + offset, self.plot.y - 10.0), name, &TextStyle::new(11.0).coloured(MUTED).anchored(anchor));
        }
    }

    /// Draws the row's marker and the labels of its ranges over everything else.
    fn draw_labels(&self, svg: &mut Svg, row: &HopRow, row_area: RowArea) {
        let marker_range = row.marker.as_ref().and_then(|marker| self.draw_marker(svg, row, marker, row_area));
        for range in &row.ranges {
            self.draw_range_label(svg, range, marker_range, row_area);
        }
    }

    /// Writes the best label that fits between the reference lines, or else across them.
    fn draw_range_label(
        &self,
        svg: &mut Svg,
        range: &ContextRange,
        marker_range: Option<(f64, f64)>,
        row_area: RowArea,
    ) {
        let Some((from, to)) = range.clipped(self.limit) else { return };
        let ends = (self.x(from), self.x(to));
        let fill = palette::verdict_fill(range.verdict);
        let style = TextStyle::new(row_area.size()).coloured(fill.text_colour).anchored(Anchor::Middle);
        let mut obstacles: Vec<(f64, f64)> = marker_range.into_iter().collect();
        let across_references = widest_gap(ends, &obstacles);
        obstacles.extend(REFERENCE_LENGTHS.iter().map(|(log2, _)| (self.x(*log2) - 2.0, self.x(*log2) + 2.0)));
        let between_references = widest_gap(ends, &obstacles);
        for label in range.labels() {
            let width = style.width(&label) + 12.0;
            let Some(gap) = [between_references, across_references].into_iter().find(|gap| gap.1 - gap.0 >= width)
            else {
                continue;
            };
            let centre = f64::midpoint(gap.0, gap.1);
            svg.rect(row_area.label_area(centre - width / 2.0 + 2.0, width - 4.0), &Paint::fill(fill.colour));
            svg.text((centre, row_area.baseline()), &label, &style);
            return;
        }
    }

    /// Draws a marker with its label to the right or left, and returns the range that it covers.
    fn draw_marker(&self, svg: &mut Svg, row: &HopRow, marker: &Marker, row_area: RowArea) -> Option<(f64, f64)> {
        if !(0.0..=self.limit).contains(&marker.tokens_log2) {
            return None;
        }
        let x = self.x(marker.tokens_log2);
        let marker_line = ((x, row_area.y + 1.0), (x, row_area.y + row_area.height - 1.0));
        let style = TextStyle::new(row_area.size() - 0.5);
        let width = style.width(&marker.label) + 8.0;
        let left = if self.label_goes_right(row, marker, x, width) { x } else { x - width };
        let label_area = row_area.label_area(left, width);
        svg.group(
            &format!("{} hops: {} at {} tokens", row.hops, marker.label, text::power(2, marker.tokens_log2)),
            |svg| {
                svg.line(marker_line.0, marker_line.1, &Stroke::new(BACKGROUND, 4.5));
                svg.rect(label_area, &Paint { fill: Some(BACKGROUND), stroke: Some(Stroke::new(TEXT_COLOUR, 0.8)) });
                svg.line(marker_line.0, marker_line.1, &Stroke::new(TEXT_COLOUR, 2.5));
                svg.text((left + 4.0, row_area.baseline()), &marker.label, &style);
            },
        );
        Some((label_area.x - 4.0, label_area.right() + 4.0))
    }

    /// Whether a marker's label goes to the right: it must be inside the plot, and should not cover the next boundary if the left side is
    /// free.
    fn label_goes_right(&self, row: &HopRow, marker: &Marker, x: f64, width: f64) -> bool {
        let edges =
            || row.ranges.iter().flat_map(|range| [range.from_log2, range.to_log2]).filter(|edge| edge.is_finite());
        let right = edges()
            .filter(|edge| *edge > marker.tokens_log2)
            .map(|edge| self.x(edge))
            .fold(self.plot.right(), f64::min);
        let left =
            edges().filter(|edge| *edge < marker.tokens_log2).map(|edge| self.x(edge)).fold(self.plot.x, f64::max);
        let fits_right = x + width <= self.plot.right();
        let fits_left = x - width >= self.plot.x;
        fits_right && (x + width < right || !fits_left || x - width < left)
    }
}

/// Draws a small arrow beyond the right edge: the range continues.
fn draw_continuation(svg: &mut Svg, (x, y): (f64, f64), height: f64, verdict: RangeVerdict) {
    let half = (height / 2.0 - 3.0).min(8.0);
    let arrow = Outline::polygon(&[(x + 2.5, y - half), (x + 10.0, y), (x + 2.5, y + half)]);
    svg.path(
        &arrow,
        &Paint { fill: Some(palette::verdict_fill(verdict).colour), stroke: Some(Stroke::new(TEXT_COLOUR, 0.6)) },
    );
}

/// The widest gap between two ends that no obstacle covers.
fn widest_gap((from, to): (f64, f64), obstacles: &[(f64, f64)]) -> (f64, f64) {
    let mut sorted = obstacles.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut best, mut start) = ((from, from), from);
    let mut consider = |start: f64, end: f64| {
        if end - start > best.1 - best.0 {
            best = (start, end);
        }
    };
    for (left, right) in sorted.into_iter().filter(|(left, right)| *right > from && *left < to) {
        consider(start, left);
        start = start.max(right);
    }
    consider(start, to);
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranges() -> impl Strategy<Value = ContextRange> {
        let end = || {
            prop_oneof![-10.0..1000.0f64, Just(f64::INFINITY), Just(f64::NAN), Just(f64::NEG_INFINITY), any::<f64>()]
        };
        (end(), end(), prop::sample::select(RangeVerdict::ALL.to_vec()))
            .prop_map(|(from, to, verdict)| ContextRange::new(from, to, verdict))
    }

    fn maps() -> impl Strategy<Value = HopMap> {
        let row = (1u32..40, prop::collection::vec(ranges(), 0..4), prop::option::of(any::<f64>()), ".{0,12}")
            .prop_map(|(hops, ranges, tokens_log2, label)| HopRow {
                hops,
                ranges,
                marker: tokens_log2.map(|tokens_log2| Marker { tokens_log2, label }),
            });
        (".{0,90}", prop::collection::vec(row, 0..12), prop::option::of(any::<f64>()))
            .prop_map(|(title, rows, max_log2)| HopMap { title, rows, max_log2 })
    }

    proptest! {
        #[test]
        fn clipped_ranges_are_in_bounds(range in ranges(), max in 1.0..2000.0f64) {
            if let Some((from, to)) = range.clipped(max) {
                prop_assert!(0.0 <= from && from < to && to <= max);
            }
        }

        #[test]
        fn svg_has_no_nan_or_infinity(map in maps()) {
            let map = HopMap { title: "fixed".to_owned(), rows: map.rows.into_iter().map(|row| HopRow {
                marker: row.marker.map(|marker| Marker::papers(marker.tokens_log2)), ..row }).collect(), ..map };
            let svg = map.svg();
            prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }

        #[cfg(feature = "png")]
        #[test]
        fn svg_is_well_formed_for_any_map(map in maps()) {
            let svg = map.svg();
            prop_assert!(resvg::usvg::roxmltree::Document::parse(&svg).is_ok(), "{svg}");
        }

        #[test]
        fn the_widest_gap_has_no_obstacle(ends in (0.0..50.0f64, 50.0..100.0f64), obstacles in prop::collection::vec((0.0..100.0f64, 0.0..20.0f64), 0..5)) {
            let obstacles: Vec<(f64, f64)> = obstacles.into_iter().map(|(left, width)| (left, left + width)).collect();
            let gap = widest_gap(ends, &obstacles);
            prop_assert!(ends.0 <= gap.0 && gap.0 <= gap.1 && gap.1 <= ends.1);
            if gap.1 > gap.0 {
                prop_assert!(obstacles.iter().all(|(left, right)| *right <= gap.0 || *left >= gap.1));
            }
        }
    }

    #[test]
    fn labels_are_rounded_conservatively() {
        assert_eq!(
            ContextRange::new(40.01, f64::INFINITY, RangeVerdict::Impossible).labels()[0],
            "impossible from 2^40.1"
        );
        assert_eq!(ContextRange::new(0.0, 19.99, RangeVerdict::Solved).labels()[0], "solved to 2^19.9");
        assert_eq!(ContextRange::new(60.0 - 1.4 * 24.0, 99.0, RangeVerdict::Impossible).labels()[1], "from 2^26.4");
    }

    #[test]
    fn csv_has_every_range_and_marker() {
        let row = HopRow::new(
            2,
            vec![
                ContextRange::new(0.0, 8.5, RangeVerdict::Solved),
                ContextRange::new(8.5, f64::INFINITY, RangeVerdict::Unknown),
            ],
        );
        let map = HopMap::new("t", vec![row.with_marker(Marker::papers(40.0))]);
        let expected =
            "hops,kind,from_log2_tokens,to_log2_tokens\n2,solved,0,8.5\n2,unknown,8.5,inf\n2,marker: papers,40,40\n";
        assert_eq!(map.csv(), expected);
    }

    #[test]
    fn clipped_drops_nan_and_what_is_beyond_the_limit() {
        assert_eq!(ContextRange::new(f64::NAN, 5.0, RangeVerdict::Solved).clipped(10.0), None);
        assert_eq!(ContextRange::new(12.0, f64::INFINITY, RangeVerdict::Solved).clipped(10.0), None);
        assert_eq!(ContextRange::new(-3.0, f64::INFINITY, RangeVerdict::Solved).clipped(10.0), Some((0.0, 10.0)));
    }
}
