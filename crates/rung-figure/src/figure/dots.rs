//! The dot chart: a row for each name, and dots at numbers along a horizontal axis.
//!
//! It is for categories without an order: mixers, patterns of layers, kinds of training. Every series has a colour and a marker; a dot can
//! have a spread. An open dot marks a result that needs attention, for example because it contradicts a prediction.
//!
//! ```
//! use rung_figure::figure::{AxisSpec, Chart, Dot, DotChart, Scale};
//!
//! let x_axis = AxisSpec::new("accuracy", Scale::Linear).with_range(0.0, 1.0);
//! let dots = vec![Dot::new(0, 0.97).with_spread(0.9, 1.0), Dot::new(1, 0.2).open()];
//! let chart = DotChart::new("One hop", x_axis, &["gdn full", "gdn"]).series("1 hop", dots);
//! assert!(chart.svg().contains("gdn full") && chart.csv().contains("gdn,1 hop,,0.2,,"));
//! ```

use super::Chart;
use super::axis::{self, TICK_FONT_SIZE};
use super::csv::{Csv, field};
use super::heading::{Heading, MARGIN, WIDTH};
use super::legend::{Legend, LegendEntry, LegendKey, MarkerShape};
use super::lines::AxisSpec;
use super::palette::{self, GRID, TEXT_COLOUR};
use super::svg::{Anchor, Area, Stroke, Svg, TextStyle};
use super::text;
use crate::Evidence;

/// The largest width of the column of names; longer names are wrapped.
const MAX_NAME_WIDTH: f64 = 300.0;
const LINE_HEIGHT: f64 = 15.0;
/// Vertical distance between two series within a row.
const SERIES_OFFSET: f64 = 6.5;

/// A dot in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
#[must_use]
pub struct Dot {
    /// The row, from 0.
    pub row: usize,
    /// The number.
    pub value: f64,
    /// Lower and upper end of the spread.
    pub spread: Option<(f64, f64)>,
    /// Whether the marker is drawn as an outline.
    pub open: bool,
}

impl Dot {
    /// A dot without a spread.
    pub fn new(row: usize, value: f64) -> Self {
        Self { row, value, spread: None, open: false }
    }

    /// The same dot with a spread.
    pub fn with_spread(self, low: f64, high: f64) -> Self {
        Self { spread: Some((low, high)), ..self }
    }

    /// The same dot, open.
    pub fn open(self) -> Self {
        Self { open: true, ..self }
    }
}

/// A dot chart.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct DotChart {
    title: String,
    x_axis: AxisSpec,
    rows: Vec<String>,
    series: Vec<(String, Vec<Dot>)>,
    evidence: Option<Evidence>,
}

impl DotChart {
    /// A chart with rows and without series.
    pub fn new<R: ToString>(title: impl Into<String>, x_axis: AxisSpec, rows: &[R]) -> Self {
        let rows = rows.iter().map(ToString::to_string).collect();
        Self { title: title.into(), x_axis, rows, series: Vec::new(), evidence: None }
    }

    /// The same chart with one more series.
    pub fn series(mut self, name: impl Into<String>, dots: Vec<Dot>) -> Self {
        self.series.push((name.into(), dots));
        self
    }

    /// The same chart, with its evidence.
    pub fn with_evidence(self, evidence: Evidence) -> Self {
        Self { evidence: Some(evidence), ..self }
    }

    fn legend(&self) -> Legend {
        let evidence = self.evidence.map(|evidence| format!(" ({evidence})")).unwrap_or_default();
        let entry = |(index, (name, _)): (usize, &(String, Vec<Dot>))| LegendEntry {
            key: LegendKey::Line {
                stroke: None,
                marker: Some((MarkerShape::of_series(index), palette::series_colour(index))),
            },
            name: format!("{name}{evidence}"),
        };
        Legend::new(self.series.iter().enumerate().map(entry).collect(), WIDTH - 2.0 * MARGIN)
    }
}

impl Chart for DotChart {
    fn title(&self) -> &str {
        &self.title
    }

    fn svg(&self) -> String {
        let heading = Heading::new(&self.title);
        let legend = self.legend();
        let top = MARGIN + heading.height() + 6.0 + legend.height() + 14.0;

        let names: Vec<Vec<String>> =
            self.rows.iter().map(|name| text::wrap(name, TICK_FONT_SIZE, false, MAX_NAME_WIDTH)).collect();
        let widest = names.iter().flatten().map(|line| text::width(line, TICK_FONT_SIZE, false)).fold(0.0, f64::max);
        let min_height = SERIES_OFFSET * self.series.len() as f64 + 9.5;
        let heights: Vec<f64> =
            names.iter().map(|lines| (lines.len() as f64 * LINE_HEIGHT + 5.0).max(min_height)).collect();
        let left = MARGIN + widest + 12.0;
        let plot = Area::new(left, top, WIDTH - left - MARGIN - 10.0, heights.iter().sum::<f64>().max(LINE_HEIGHT));
        let numbers = self.series.iter().flat_map(|(_, dots)| dots).map(|dot| dot.value);
        let x_axis = self.x_axis.axis(numbers).with_pixels(plot.x, plot.right());
        let ticks = x_axis.ticks_that_fit(10, |tick| tick.label.clone());

        let mut svg = Svg::new(WIDTH, plot.bottom() + 39.0 + MARGIN);
        heading.draw(&mut svg);
        legend.draw(&mut svg, (MARGIN, MARGIN + heading.height() + 6.0));
        axis::draw_bottom(&mut svg, plot, &x_axis, &ticks, &self.x_axis.title, true);
        svg.line((plot.x, plot.y), (plot.x, plot.bottom()), &Stroke::new(TEXT_COLOUR, 1.0));

        let mut middles = Vec::with_capacity(heights.len());
        let mut row_top = top;
        for (lines, height) in names.iter().zip(&heights) {
            let middle = row_top + height / 2.0;
            svg.line((plot.x, middle), (plot.right(), middle), &Stroke::new(GRID, 1.0));
            let first_baseline = middle - (lines.len() as f64 - 1.0) * LINE_HEIGHT / 2.0 + TICK_FONT_SIZE * 0.36;
            for (index, line) in lines.iter().enumerate() {
                let baseline = (plot.x - 8.0, first_baseline + index as f64 * LINE_HEIGHT);
                svg.text(baseline, line, &TextStyle::new(TICK_FONT_SIZE).anchored(Anchor::End));
            }
            middles.push(middle);
            row_top += height;
        }
        for (index, (name, dots)) in self.series.iter().enumerate() {
            let (colour, marker) = (palette::series_colour(index), MarkerShape::of_series(index));
            let offset = (index as f64 - (self.series.len() as f64 - 1.0) / 2.0) * SERIES_OFFSET;
            svg.group(name, |svg| {
                for dot in dots {
                    let pixel = |value: f64| x_axis.position(value).map(|x| x.clamp(plot.x, plot.right()));
                    let Some((x, y)) = pixel(dot.value).zip(middles.get(dot.row)) else { continue };
                    let y = y + offset;
                    if let Some((low, high)) = dot.spread.and_then(|(low, high)| pixel(low).zip(pixel(high))) {
                        svg.line((low, y), (high, y), &Stroke::new(colour, 1.5));
                    }
                    if dot.open { marker.draw_open(svg, (x, y), colour) } else { marker.draw(svg, (x, y), colour) }
                }
            });
        }
        svg.finish(&format!("Dot chart. {}", self.title))
    }

    fn csv(&self) -> String {
        let mut csv = Csv::new(["row", "series", "evidence", "value", "low", "high"]);
        let evidence = self.evidence.map(|evidence| evidence.to_string()).unwrap_or_default();
        for (name, dots) in &self.series {
            for dot in dots {
                let row = self.rows.get(dot.row).cloned().unwrap_or_default();
                let (low, high) = dot.spread.map(|(low, high)| (field(low), field(high))).unwrap_or_default();
                csv.row([row, name.clone(), evidence.clone(), field(dot.value), low, high]);
            }
        }
        csv.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Scale;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_names_and_numbers_give_a_valid_svg(
            rows in prop::collection::vec(".*", 0..5),
            dots in prop::collection::vec((0usize..7, any::<f64>(), prop::option::of((any::<f64>(), any::<f64>())), any::<bool>()), 0..9),
        ) {
            let dots = dots.into_iter().map(|(row, value, spread, open)| Dot { row, value, spread, open }).collect();
            let chart = DotChart::new("t", AxisSpec::new("x", Scale::Linear), &rows).series("s", dots);
            let svg = chart.svg();
            // A name may contain these words; numbers of the drawing begin after a quotation mark.
            prop_assert!(!svg.contains("\"NaN") && !svg.contains("\"inf") && !svg.contains("\"-inf"), "{svg}");
            #[cfg(feature = "png")]
            prop_assert!(resvg::usvg::roxmltree::Document::parse(&svg).is_ok(), "{svg}");
        }
    }

    #[test]
    fn every_row_is_as_high_as_its_name_and_its_series_need() {
        let x_axis = || AxisSpec::new("x", Scale::Linear).with_range(0.0, 1.0);
        let height = |chart: &DotChart| {
            let svg = chart.svg();
            let number = svg.split("height=\"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned);
            number.and_then(|number| number.parse::<f64>().ok()).unwrap()
        };
        let short = DotChart::new("t", x_axis(), &["a"]).series("s", vec![Dot::new(0, 0.5)]);
        let long = DotChart::new("t", x_axis(), &["many words ".repeat(12)]).series("s", vec![Dot::new(0, 0.5)]);
        let many = (0..6).fold(short.clone(), |chart, index| chart.series(index.to_string(), vec![Dot::new(0, 0.1)]));
        assert!(height(&long) > height(&short) && height(&many) > height(&short));
    }
}
