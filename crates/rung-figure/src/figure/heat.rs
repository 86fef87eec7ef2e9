//! The heat map: a table of numbers as colours.
//!
//! Rows and columns have names. A cell has a number, which is also written where it fits. Numbers from zero up go from white to dark blue,
//! negative numbers to dark orange. A frame marks an important cell. A cell without a number is white with a dash, and a cell may have a
//! second, smaller line of text. A map with ordered rows can have a boundary: a stepped line between the cells below and above it.
//!
//! ```
//! use rung_figure::figure::{Chart, HeatCell, HeatMap};
//!
//! let cells = vec![vec![HeatCell::new(0.1), HeatCell::new(0.99).framed()]];
//! let map = HeatMap::new("Hops by layer", ("layer", &["1: full"]), ("hop", &["i_1", "i_2"]), cells);
//! assert!(map.svg().contains("99%") && map.csv().contains("i_2"));
//! ```

use super::Chart;
use super::csv::{Csv, field};
use super::heading::{Heading, MARGIN, WIDTH};
use super::palette::{BACKGROUND, Colour, MUTED, TEXT_COLOUR};
use super::svg::{Anchor, Area, Paint, Stroke, Svg, TextStyle};
use super::text;
use crate::Evidence;

const LABEL_FONT_SIZE: f64 = 11.0;
/// The smallest height of a cell with a second line.
const MIN_DETAIL_HEIGHT: f64 = 40.0;
const BOUNDARY_COLOUR: Colour = Colour(0xd9_8a_0b);

/// A cell of a heat map.
#[derive(Debug, Clone, PartialEq, Default)]
#[must_use]
pub struct HeatCell {
    /// The number; `None` for an empty cell.
    pub value: Option<f64>,
    /// Whether the cell has a frame.
    pub framed: bool,
    /// A second line of text, drawn if cells are high enough.
    pub detail: String,
}

impl HeatCell {
    /// A cell with a number.
    pub fn new(value: f64) -> Self {
        Self { value: Some(value).filter(|value| value.is_finite()), ..Self::default() }
    }

    /// The same cell with a second line.
    pub fn with_detail(self, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    /// The same cell in a frame.
    pub fn framed(self) -> Self {
        Self { framed: true, ..self }
    }
}

/// The format of the numbers in cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellFormat {
    /// Percent without decimals.
    Percent,
    /// Percent with one decimal.
    PercentOneDecimal,
    /// A number with two decimals.
    Number,
    /// No text.
    None,
}

/// A heat map.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct HeatMap {
    /// The title.
    pub title: String,
    /// The title of the vertical axis.
    pub row_title: String,
    /// Names of rows.
    pub rows: Vec<String>,
    /// The title of the horizontal axis.
    pub column_title: String,
    /// Names of columns.
    pub columns: Vec<String>,
    /// The cells, row by row.
    pub cells: Vec<Vec<HeatCell>>,
    /// The format of the numbers.
    pub format: CellFormat,
    /// The number that has the strongest colour; by default the largest.
    pub max: Option<f64>,
    /// The evidence for the numbers.
    pub evidence: Option<Evidence>,
    /// For every column, the number of rows below the boundary, from the lowest; empty for no boundary.
    pub boundary: Vec<usize>,
    /// Text below the chart.
    pub note: String,
}

impl HeatMap {
    /// A map of shares.
    pub fn new<R: ToString, C: ToString>(
        title: impl Into<String>,
        (row_title, rows): (&str, &[R]),
        (column_title, columns): (&str, &[C]),
        cells: Vec<Vec<HeatCell>>,
    ) -> Self {
        Self {
            title: title.into(),
            row_title: row_title.to_owned(),
            rows: rows.iter().map(ToString::to_string).collect(),
            column_title: column_title.to_owned(),
            columns: columns.iter().map(ToString::to_string).collect(),
            cells,
            format: CellFormat::Percent,
            max: Some(1.0),
            evidence: None,
            boundary: Vec::new(),
            note: String::new(),
        }
    }

    /// The same map of numbers instead of shares: the largest has the strongest colour.
    pub fn with_number_format(self, format: CellFormat) -> Self {
        Self { format, max: None, ..self }
    }

    /// The same map, with its evidence.
    pub fn with_evidence(self, evidence: Evidence) -> Self {
        Self { evidence: Some(evidence), ..self }
    }

    /// The same map with a boundary.
    pub fn with_boundary(self, boundary: Vec<usize>) -> Self {
        Self { boundary, ..self }
    }

    /// The same map with a note below.
    pub fn with_note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// The number that has the strongest colour.
    fn max_value(&self) -> f64 {
        let largest = self.cells.iter().flatten().filter_map(|cell| cell.value).map(f64::abs).fold(0.0, f64::max);
        self.max.unwrap_or(largest).max(f64::MIN_POSITIVE)
    }

    fn cell_text(&self, value: f64) -> String {
        match self.format {
            // Larger numbers do not fit into any cell.
            _ if value.abs() > 1e6 => String::new(),
            // Adding 0.0 turns -0.0 into 0.0.
            CellFormat::Percent => format!("{:.0}%", (100.0 * value).round() + 0.0),
            CellFormat::PercentOneDecimal => format!("{:.1}%", 100.0 * value + 0.0),
            CellFormat::Number => format!("{value:.2}"),
            CellFormat::None => String::new(),
        }
    }

    fn draw_cell(&self, svg: &mut Svg, area: Area, cell: &HeatCell) {
        let detailed = !cell.detail.is_empty() && area.height >= MIN_DETAIL_HEIGHT;
        let below_centre = |offset: f64| (area.x + area.width / 2.0, area.y + area.height / 2.0 + offset);
        let Some(value) = cell.value else {
            let style = TextStyle::new(LABEL_FONT_SIZE).coloured(MUTED).anchored(Anchor::Middle);
            return svg.text(below_centre(4.0), if detailed { &cell.detail } else { "–" }, &style);
        };
        let colour = shade(value / self.max_value());
        svg.rect(area, &Paint::fill(colour));
        let text_colour =
            if TEXT_COLOUR.contrast(colour) >= BACKGROUND.contrast(colour) { TEXT_COLOUR } else { BACKGROUND };
        let mut draw_line = |text: &str, size: f64, offset: f64| {
            let style = TextStyle::new(size).anchored(Anchor::Middle).coloured(text_colour);
            if area.height >= 14.0 && style.width(text) + 4.0 <= area.width {
                svg.text(below_centre(offset), text, &style);
            }
        };
        if detailed {
            draw_line(&self.cell_text(value), 16.0, 2.0);
            draw_line(&cell.detail, 10.0, 18.0);
        } else {
            draw_line(&self.cell_text(value), LABEL_FONT_SIZE, 4.0);
        }
    }

    /// Draws the stepped line between the cells below and above the boundary.
    fn draw_boundary(&self, svg: &mut Svg, plot: Area, width: f64, height: f64) {
        let level = |rows: usize| plot.bottom() - rows.min(self.rows.len()) as f64 * height;
        let mut steps: Vec<(f64, f64)> = Vec::new();
        for (column, rows) in self.boundary.iter().enumerate().take(self.columns.len()) {
            let left = plot.x + column as f64 * width;
            steps.extend([(left, level(*rows)), (left + width, level(*rows))]);
        }
        svg.polyline(&steps, &Stroke::new(BOUNDARY_COLOUR, 3.4));
    }
}

/// A colour for a number from -1 to 1.
fn shade(value: f64) -> Colour {
    let end = if value < 0.0 { 0xa6_36_12 } else { 0x0b_3c_6f };
    let share = value.abs().clamp(0.0, 1.0);
    let channel = |shift: u32| {
        let dark = f64::from((end >> shift) & 0xff_u32);
        ((255.0 + share * (dark - 255.0)).round() as u32) << shift
    };
    Colour(channel(16) | channel(8) | channel(0))
}

/// The step between labels that are written, so that they do not overlap.
fn stride(count: usize, available: f64, label_size: f64) -> usize {
    let fitting = (available / label_size.max(1.0)).floor().max(1.0) as usize;
    count.div_ceil(fitting).max(1)
}

impl Chart for HeatMap {
    fn title(&self) -> &str {
        &self.title
    }

    fn svg(&self) -> String {
        let title = match self.evidence {
            Some(evidence) => format!("{} ({evidence})", self.title),
            None => self.title.clone(),
        };
        let heading = Heading::new(&title);
        let label_style = TextStyle::new(LABEL_FONT_SIZE);
        let widest_row_name = self.rows.iter().map(|name| label_style.width(name)).fold(0.0, f64::max);
        let left = MARGIN + 20.0 + widest_row_name.min(240.0) + 8.0;
        let top = MARGIN + heading.height() + 8.0;
        let (rows, columns) = (self.rows.len().max(1), self.columns.len().max(1));
        let width = (WIDTH - MARGIN - left).max(40.0) / columns as f64;
        let width = width.min(110.0);
        let detailed = self.cells.iter().flatten().any(|cell| !cell.detail.is_empty());
        let height = (560.0 / rows as f64).clamp(2.0, if detailed { 54.0 } else { 26.0 });
        let plot = Area::new(left, top, width * columns as f64, height * rows as f64);
        let note = text::wrap(&self.note, LABEL_FONT_SIZE, false, WIDTH - 2.0 * MARGIN);
        let widest_column_name = self.columns.iter().map(|name| label_style.width(name)).fold(0.0, f64::max) + 6.0;
        // Names that are wider than their columns are written vertically.
        let vertical_names = widest_column_name > width;
        let names_height = if vertical_names { widest_column_name.min(160.0) } else { 15.0 };
        let axis_height = names_height + 27.0;
        let note_height = if self.note.is_empty() { 0.0 } else { 10.0 + 15.0 * note.len() as f64 };
        let mut svg = Svg::new(WIDTH, plot.bottom() + axis_height + note_height + MARGIN);
        heading.draw(&mut svg);
        let area = |row: usize, column: usize| {
            Area::new(plot.x + column as f64 * width, plot.y + row as f64 * height, width, height)
        };
        for (row, cells) in self.cells.iter().enumerate().take(rows) {
            for (column, cell) in cells.iter().enumerate().take(columns) {
                self.draw_cell(&mut svg, area(row, column), cell);
            }
        }
        for (row, cells) in self.cells.iter().enumerate().take(rows) {
            for (column, _) in cells.iter().enumerate().take(columns).filter(|(_, cell)| cell.framed) {
                svg.rect(area(row, column), &Paint::stroke(Stroke::new(BOUNDARY_COLOUR, 2.6)));
            }
        }
        svg.rect(plot, &Paint::stroke(Stroke::new(MUTED, 0.8)));
        self.draw_boundary(&mut svg, plot, width, height);
        let step = stride(rows, plot.height, 13.0);
        for (row, name) in self.rows.iter().enumerate().step_by(step) {
            let middle = plot.y + (row as f64 + 0.5) * height + 4.0;
            svg.text((plot.x - 6.0, middle), name, &label_style.anchored(Anchor::End));
        }
        let step = stride(columns, plot.width, if vertical_names { 13.0 } else { widest_column_name });
        for (column, name) in self.columns.iter().enumerate().step_by(step) {
            let middle = plot.x + (column as f64 + 0.5) * width;
            if vertical_names {
                svg.text((middle + 4.0, plot.bottom() + 5.0), name, &label_style.anchored(Anchor::End).upwards());
            } else {
                svg.text((middle, plot.bottom() + 15.0), name, &label_style.anchored(Anchor::Middle));
            }
        }
        let column_title_position = (plot.x + plot.width / 2.0, plot.bottom() + names_height + 19.0);
        svg.text(column_title_position, &self.column_title, &TextStyle::new(12.0).anchored(Anchor::Middle));
        let row_title_position = (MARGIN + 10.0, plot.y + plot.height / 2.0);
        svg.text(row_title_position, &self.row_title, &TextStyle::new(12.0).anchored(Anchor::Middle).upwards());
        for (index, line) in note.iter().enumerate().filter(|_| !self.note.is_empty()) {
            let baseline = (MARGIN, plot.bottom() + axis_height + 14.0 + 15.0 * index as f64);
            svg.text(baseline, line, &label_style.coloured(MUTED));
        }
        svg.finish(&format!("Heat map. {title}"))
    }

    fn csv(&self) -> String {
        let mut csv = Csv::new([&self.row_title, &self.column_title, "value", "framed", "detail"]);
        for (row, cells) in self.rows.iter().zip(&self.cells) {
            for (column, cell) in self.columns.iter().zip(cells) {
                let value = cell.value.map(field).unwrap_or_default();
                csv.row([row.clone(), column.clone(), value, cell.framed.to_string(), cell.detail.clone()]);
            }
        }
        csv.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn svg_has_no_nan_or_infinity(values in prop::collection::vec(prop::collection::vec(any::<f64>(), 0..5), 0..40)) {
            let names: Vec<usize> = (0..values.len()).collect();
            let cells = values.iter().map(|row| row.iter().map(|value| HeatCell::new(*value)).collect()).collect();
            let map = HeatMap::new("t", ("r", &names), ("c", &[0, 1, 2, 3, 4]), cells);
            for map in [map.clone(), map.with_number_format(CellFormat::Number)] {
                let svg = map.svg();
                prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn a_boundary_is_drawn_and_details_are_written() {
        let cells = vec![vec![HeatCell::default().with_detail("not run"), HeatCell::new(0.3).with_detail("2 to 4")]];
        let map = HeatMap::new("t", ("r", &["L = 2"]), ("c", &["F = 1", "F = 2"]), cells).with_boundary(vec![0, 1]);
        let without_boundary = HeatMap { boundary: Vec::new(), ..map.clone() };
        let svg = map.svg();
        assert!(svg.contains("not run") && svg.contains("2 to 4") && svg.contains("30%"));
        assert!(svg.len() > without_boundary.svg().len() && map.csv().contains("2 to 4"));
    }

    #[test]
    fn shade_of_zero_is_paper_and_of_one_is_dark() {
        assert_eq!(shade(0.0), BACKGROUND);
        assert!(
            shade(1.0).contrast(BACKGROUND) > 7.0
                && shade(-1.0).contrast(BACKGROUND) > 5.0
                && shade(1.0) != shade(-1.0)
        );
    }
}
