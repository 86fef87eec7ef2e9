//! A table of numbers as a table of colours.
//!
//! Rows and columns have names, a cell a number and, where there is room, a few letters. Numbers from zero up go from paper to dark
//! blue; where some are negative, zero is paper, and below it goes to dark orange. A cell can be framed: the one that answers the
//! question. A cell without a number is left as paper with a dash, and a cell may have a second, smaller line of letters. A map whose
//! rows are in order can have a boundary: a line of steps between the cells below it and those above.
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
use super::palette::{Colour, INK, MUTED, PAPER};
use super::svg::{Anchor, Area, Paint, Stroke, Svg, TextStyle};
use super::text;
use crate::Evidence;

const LABEL: f64 = 11.0;
/// Cells from this height on have room for a second line.
const DETAILED: f64 = 40.0;
const BOUNDARY: Colour = Colour(0xd9_8a_0b);

/// A cell.
#[derive(Debug, Clone, PartialEq, Default)]
#[must_use]
pub struct HeatCell {
    /// Its number, if it has one.
    pub value: Option<f64>,
    /// Whether it is framed.
    pub framed: bool,
    /// A second line of letters, where cells are high enough.
    pub detail: String,
}

impl HeatCell {
    /// A cell with a number.
    pub fn new(value: f64) -> Self {
        Self { value: Some(value).filter(|value| value.is_finite()), ..Self::default() }
    }

    /// The same cell with a second line.
    pub fn detailed(self, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..self }
    }

    /// The same cell in a frame.
    pub fn framed(self) -> Self {
        Self { framed: true, ..self }
    }
}

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellFormat {
    /// As a share.
    Percent,
    /// As a share with one digit after the point.
    Tenths,
    /// With two digits after the point.
    Number,
    /// Not at all.
    None,
}

/// The chart.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct HeatMap {
    /// What it is called.
    pub title: String,
    /// What rows are.
    pub row_title: String,
    /// Names of rows.
    pub rows: Vec<String>,
    /// What columns are.
    pub column_title: String,
    /// Names of columns.
    pub columns: Vec<String>,
    /// The cells, row by row.
    pub cells: Vec<Vec<HeatCell>>,
    /// How numbers are written.
    pub letters: CellFormat,
    /// The number that is darkest; the largest there is if absent.
    pub most: Option<f64>,
    /// How the numbers are known.
    pub evidence: Option<Evidence>,
    /// For every column, how many of the lowest rows are below the boundary; empty for none.
    pub boundary: Vec<usize>,
    /// A few words below.
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
            letters: CellFormat::Percent,
            most: Some(1.0),
            evidence: None,
            boundary: Vec::new(),
            note: String::new(),
        }
    }

    /// The same map of plain numbers, dark at the largest.
    pub fn of_numbers(self, letters: CellFormat) -> Self {
        Self { letters, most: None, ..self }
    }

    /// The same map, with its evidence.
    pub fn known(self, evidence: Evidence) -> Self {
        Self { evidence: Some(evidence), ..self }
    }

    /// The same map with a boundary.
    pub fn bounded(self, boundary: Vec<usize>) -> Self {
        Self { boundary, ..self }
    }

    /// The same map, with a few words below.
    pub fn noted(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// The number that is darkest.
    fn largest(&self) -> f64 {
        let found = self.cells.iter().flatten().filter_map(|cell| cell.value).map(f64::abs).fold(0.0, f64::max);
        self.most.unwrap_or(found).max(f64::MIN_POSITIVE)
    }

    fn letters(&self, value: f64) -> String {
        match self.letters {
            // Numbers that no cell has room for.
            _ if value.abs() > 1e6 => String::new(),
            // A zero that was a little below stays a plain zero.
            CellFormat::Percent => format!("{:.0}%", (100.0 * value).round() + 0.0),
            CellFormat::Tenths => format!("{:.1}%", 100.0 * value + 0.0),
            CellFormat::Number => format!("{value:.2}"),
            CellFormat::None => String::new(),
        }
    }

    fn draw_cell(&self, svg: &mut Svg, area: Area, cell: &HeatCell) {
        let detailed = !cell.detail.is_empty() && area.height >= DETAILED;
        let middle = |down: f64| (area.x + area.width / 2.0, area.y + area.height / 2.0 + down);
        let Some(value) = cell.value else {
            let lettering = TextStyle::new(LABEL).coloured(MUTED).anchored(Anchor::Middle);
            return svg.text(middle(4.0), if detailed { &cell.detail } else { "–" }, &lettering);
        };
        let colour = shade(value / self.largest());
        svg.rect(area, &Paint::fill(colour));
        let ink = if INK.contrast(colour) >= PAPER.contrast(colour) { INK } else { PAPER };
        let mut line = |letters: &str, size: f64, down: f64| {
            let lettering = TextStyle::new(size).anchored(Anchor::Middle).coloured(ink);
            if area.height >= 14.0 && lettering.width(letters) + 4.0 <= area.width {
                svg.text(middle(down), letters, &lettering);
            }
        };
        if detailed {
            line(&self.letters(value), 16.0, 2.0);
            line(&cell.detail, 10.0, 18.0);
        } else {
            line(&self.letters(value), LABEL, 4.0);
        }
    }

    /// The steps between the cells below the boundary and those above, from left to right.
    fn draw_boundary(&self, svg: &mut Svg, plot: Area, width: f64, height: f64) {
        let level = |rows: usize| plot.bottom() - rows.min(self.rows.len()) as f64 * height;
        let mut steps: Vec<(f64, f64)> = Vec::new();
        for (column, rows) in self.boundary.iter().enumerate().take(self.columns.len()) {
            let left = plot.x + column as f64 * width;
            steps.extend([(left, level(*rows)), (left + width, level(*rows))]);
        }
        svg.polyline(&steps, &Stroke::new(BOUNDARY, 3.4));
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

/// Every how manieth label is written, so that they do not touch.
fn stride(count: usize, room: f64, needed: f64) -> usize {
    let fitting = (room / needed.max(1.0)).floor().max(1.0) as usize;
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
        let label = TextStyle::new(LABEL);
        let names = self.rows.iter().map(|name| label.width(name)).fold(0.0, f64::max);
        let left = MARGIN + 20.0 + names.min(240.0) + 8.0;
        let top = MARGIN + heading.height() + 8.0;
        let (rows, columns) = (self.rows.len().max(1), self.columns.len().max(1));
        let width = (WIDTH - MARGIN - left).max(40.0) / columns as f64;
        let width = width.min(110.0);
        let detailed = self.cells.iter().flatten().any(|cell| !cell.detail.is_empty());
        let height = (560.0 / rows as f64).clamp(2.0, if detailed { 54.0 } else { 26.0 });
        let plot = Area::new(left, top, width * columns as f64, height * rows as f64);
        let note = text::wrap(&self.note, LABEL, false, WIDTH - 2.0 * MARGIN);
        let widest = self.columns.iter().map(|name| label.width(name)).fold(0.0, f64::max) + 6.0;
        // Names that are wider than their columns are written upwards.
        let tall = widest > width;
        let names_below = if tall { widest.min(160.0) } else { 15.0 };
        let foot = names_below + 27.0;
        let notes = if self.note.is_empty() { 0.0 } else { 10.0 + 15.0 * note.len() as f64 };
        let mut svg = Svg::new(WIDTH, plot.bottom() + foot + notes + MARGIN);
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
                svg.rect(area(row, column), &Paint::stroke(Stroke::new(BOUNDARY, 2.6)));
            }
        }
        svg.rect(plot, &Paint::stroke(Stroke::new(MUTED, 0.8)));
        self.draw_boundary(&mut svg, plot, width, height);
        let every = stride(rows, plot.height, 13.0);
        for (row, name) in self.rows.iter().enumerate().step_by(every) {
            let middle = plot.y + (row as f64 + 0.5) * height + 4.0;
            svg.text((plot.x - 6.0, middle), name, &label.anchored(Anchor::End));
        }
        let every = stride(columns, plot.width, if tall { 13.0 } else { widest });
        for (column, name) in self.columns.iter().enumerate().step_by(every) {
            let middle = plot.x + (column as f64 + 0.5) * width;
            if tall {
                svg.text((middle + 4.0, plot.bottom() + 5.0), name, &label.anchored(Anchor::End).upwards());
            } else {
                svg.text((middle, plot.bottom() + 15.0), name, &label.anchored(Anchor::Middle));
            }
        }
        let below = (plot.x + plot.width / 2.0, plot.bottom() + names_below + 19.0);
        svg.text(below, &self.column_title, &TextStyle::new(12.0).anchored(Anchor::Middle));
        let beside = (MARGIN + 10.0, plot.y + plot.height / 2.0);
        svg.text(beside, &self.row_title, &TextStyle::new(12.0).anchored(Anchor::Middle).upwards());
        for (index, line) in note.iter().enumerate().filter(|_| !self.note.is_empty()) {
            let at = (MARGIN, plot.bottom() + foot + 14.0 + 15.0 * index as f64);
            svg.text(at, line, &label.coloured(MUTED));
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
        fn no_map_has_a_broken_number(values in prop::collection::vec(prop::collection::vec(any::<f64>(), 0..5), 0..40)) {
            let names: Vec<usize> = (0..values.len()).collect();
            let cells = values.iter().map(|row| row.iter().map(|value| HeatCell::new(*value)).collect()).collect();
            let map = HeatMap::new("t", ("r", &names), ("c", &[0, 1, 2, 3, 4]), cells);
            for map in [map.clone(), map.of_numbers(CellFormat::Number)] {
                let svg = map.svg();
                prop_assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            }
        }
    }

    #[test]
    fn a_boundary_is_drawn_and_details_are_written() {
        let cells = vec![vec![HeatCell::default().detailed("not run"), HeatCell::new(0.3).detailed("2 to 4")]];
        let map = HeatMap::new("t", ("r", &["L = 2"]), ("c", &["F = 1", "F = 2"]), cells).bounded(vec![0, 1]);
        let plain = HeatMap { boundary: Vec::new(), ..map.clone() };
        let svg = map.svg();
        assert!(svg.contains("not run") && svg.contains("2 to 4") && svg.contains("30%"));
        assert!(svg.len() > plain.svg().len() && map.csv().contains("2 to 4"));
    }

    #[test]
    fn zero_is_paper_and_ends_are_dark() {
        assert_eq!(shade(0.0), PAPER);
        assert!(shade(1.0).contrast(PAPER) > 7.0 && shade(-1.0).contrast(PAPER) > 5.0 && shade(1.0) != shade(-1.0));
    }
}
