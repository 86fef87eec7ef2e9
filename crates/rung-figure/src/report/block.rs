//! What a chapter is made of.
//!
//! A [`Table`] says for each column whether it holds words or numbers; numbers are set to the right in figures of equal
//! width, so that sizes can be compared by eye. A [`Figure`] is made from a [`Chart`] and from nothing else: that keeps
//! foreign markup out of the report, and makes sure that the drawing and the CSV beside it show the same numbers.

use super::ReportError;
use super::prose::Prose;
use crate::Evidence;
use crate::figure::Chart;
use crate::figure::palette::Colour;

/// A part of a chapter.
#[derive(Debug, Clone, PartialEq)]
pub enum ReportBlock {
    /// A heading below the chapter's own.
    Heading(String),
    /// A paragraph.
    Paragraph(Prose),
    /// A table.
    Table(Table),
    /// A figure.
    Figure(Figure),
    /// A command or a piece of code, set as it is.
    Command(String),
    /// A remark set apart from the text.
    Note(Prose),
    /// A row of coloured cells with a letter each, such as the layers of a model.
    Strip(Vec<StripCell>),
}

/// A cell of a strip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripCell {
    /// What stands in it.
    pub letter: char,
    /// Its colour.
    pub ground: Colour,
    /// The colour of the letter.
    pub ink: Colour,
    /// What a reader sees when pointing at it.
    pub hint: String,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// What stands at its head.
    pub title: String,
    /// Whether it holds numbers, which are set to the right.
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
    /// What it says.
    pub prose: Prose,
    /// How that is known.
    pub evidence: Option<Evidence>,
}

impl TableCell {
    /// A cell with a name to type in it: a stack, an option.
    pub fn code(code: impl Into<String>) -> Self {
        Self { prose: Prose::new().code(code), evidence: None }
    }

    /// The same cell, with its evidence.
    pub fn known(self, evidence: Evidence) -> Self {
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
    /// What it shows.
    pub caption: Prose,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, each with one cell for each column.
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
            Some(index) => Err(ReportError::RowWidth {
                table: self.caption.plain(),
                row: index + 1,
                found: self.rows[index].len(),
                expected,
            }),
        }
    }
}

/// A figure: the drawing, its numbers, what it shows and how to make it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    pub(super) svg: String,
    pub(super) csv: String,
    /// What it shows.
    pub caption: Prose,
    /// The command that makes it; may be empty.
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
