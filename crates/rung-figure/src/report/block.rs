//! The blocks of a chapter: paragraphs, tables, figures and so on.
//!
//! A [`Table`] has columns of text and of numbers; numbers are right-aligned with digits of equal width. A [`Figure`] can only be made from
//! a [`Chart`], so that no foreign markup gets into a report and the drawing and its CSV show the same numbers.

use super::ReportError;
use super::prose::Prose;
use crate::Evidence;
use crate::figure::Chart;
use crate::figure::palette::Colour;

/// A block of a chapter.
#[derive(Debug, Clone, PartialEq)]
pub enum ReportBlock {
    /// A heading of a section within the chapter.
    Heading(String),
    /// A paragraph.
    Paragraph(Prose),
    /// A table.
    Table(Table),
    /// A figure.
    Figure(Figure),
    /// A command or code, shown verbatim.
    Command(String),
    /// A remark in a box.
    Note(Prose),
    /// A row of coloured cells with a letter each, such as the layers of a model.
    Strip(Vec<StripCell>),
}

/// A cell of a strip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripCell {
    /// The letter in the cell.
    pub letter: char,
    /// Background colour.
    pub background: Colour,
    /// Colour of the letter.
    pub text_colour: Colour,
    /// The tooltip.
    pub tooltip: String,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The text in the header.
    pub title: String,
    /// Whether it has numbers, which are right-aligned.
    pub numeric: bool,
}

impl Column {
    /// A column of words.
    pub fn text(title: impl Into<String>) -> Self {
        Self { title: title.into(), numeric: false }
    }

    /// A column of numbers.
    pub fn number(title: impl Into<String>) -> Self {
        Self { title: title.into(), numeric: true }
    }
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct TableCell {
    /// The content.
    pub prose: Prose,
    /// The evidence for the content.
    pub evidence: Option<Evidence>,
}

impl TableCell {
    /// A cell with code, such as a stack or an option.
    pub fn code(code: impl Into<String>) -> Self {
        Self { prose: Prose::new().code(code), evidence: None }
    }

    /// The same cell, with its evidence.
    pub fn with_evidence(self, evidence: Evidence) -> Self {
        Self { evidence: Some(evidence), ..self }
    }
}

impl<T: Into<Prose>> From<T> for TableCell {
    fn from(prose: T) -> Self {
        Self { prose: prose.into(), evidence: None }
    }
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The caption.
    pub caption: Prose,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows, each with one cell for each column.
    pub rows: Vec<Vec<TableCell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(caption: impl Into<Prose>, columns: impl IntoIterator<Item = Column>) -> Self {
        Self { caption: caption.into(), columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = TableCell>) -> &mut Self {
        self.rows.push(cells.into_iter().collect());
        self
    }

    pub(super) fn check(&self) -> Result<(), ReportError> {
        let expected = self.columns.len();
        match self.rows.iter().position(|row| row.len() != expected) {
            None => Ok(()),
            Some(index) => Err(ReportError::WrongCellCount {
                table: self.caption.plain_text(),
                row: index + 1,
                found: self.rows[index].len(),
                expected,
            }),
        }
    }
}

/// A figure: the drawing, its numbers, a caption and the command that makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    pub(super) svg: String,
    pub(super) csv: String,
    /// The caption.
    pub caption: Prose,
    /// The command that makes the figure; may be empty.
    pub command: String,
    /// The name under which a browser saves the numbers.
    pub csv_name: String,
}

impl Figure {
    /// A figure of a chart.
    pub fn new(
        chart: &dyn Chart,
        caption: impl Into<Prose>,
        command: impl Into<String>,
        csv_name: impl Into<String>,
    ) -> Self {
        Self {
            svg: chart.svg(),
            csv: chart.csv(),
            caption: caption.into(),
            command: command.into(),
            csv_name: csv_name.into(),
        }
    }
}
