//! The report: one HTML file that can be sent, kept and printed.
//!
//! Everything is in the file. There is no script, no font, style sheet or picture to fetch; figures are inline SVG and
//! their numbers hang on them as a CSV link. It reads on a telephone, in the dark and on paper. The same [`Report`]
//! gives the same bytes every time: there is no clock in here, and a date belongs among the [facts](Report::fact) if
//! the caller wants one.
//!
//! A report is data until it is written:
//!
//! ```text
//! Report ── Chapter ── ReportBlock: Heading | Paragraph | Table | Figure | Command | Note
//!                                        │
//!                                        └─ Prose: text, numbers with their Evidence, code, links
//! ```
//!
//! * [`prose`] is running text, where a number may carry a badge that says *proved*, *constructed* or *measured*.
//! * [`block`] is what a chapter is made of.
//! * `html` turns all that into text. Each string goes through the escape function; there is no way to pass markup in.
//!
//! ```
//! use rung_figure::Evidence;
//! use rung_figure::report::{TableCell, Chapter, Column, Prose, Report, Table};
//!
//! let mut chapter = Chapter::new("bounds", "Bounds");
//! let mut table = Table::new("Where impossibility begins", [Column::text("stack"), Column::number("tokens")]);
//! table.row([TableCell::from("full linear*3"), TableCell::from("2⁹⁸").known(Evidence::Proved)]);
//! chapter.table(table);
//! let report = Report::new("Four hops").summary("What is known about four hops.").chapter(chapter);
//! assert!(report.html()?.contains("<table>"));
//! # Ok::<(), rung_figure::report::ReportError>(())
//! ```

pub mod block;
mod html;
pub mod prose;

use thiserror::Error;

pub use block::{Column, Figure, ReportBlock, StripCell, Table, TableCell};
pub use prose::{Piece, Prose};

/// A whole report.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Report {
    /// What it is called.
    pub title: String,
    /// What a reader in a hurry takes away, a paragraph each.
    pub summary: Vec<Prose>,
    /// How it came about: version, seed, preset, and a date if the caller passes one.
    pub facts: Vec<(String, String)>,
    /// The chapters, in order.
    pub chapters: Vec<Chapter>,
}

impl Report {
    /// A report with nothing in it yet.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), summary: Vec::new(), facts: Vec::new(), chapters: Vec::new() }
    }

    /// The same report with one more paragraph of summary.
    pub fn summary(mut self, prose: impl Into<Prose>) -> Self {
        self.summary.push(prose.into());
        self
    }

    /// The same report with one more fact about how it came about.
    pub fn fact(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.facts.push((name.into(), value.into()));
        self
    }

    /// The same report with one more chapter.
    pub fn chapter(mut self, chapter: Chapter) -> Self {
        self.chapters.push(chapter);
        self
    }

    /// The report as an HTML document.
    ///
    /// # Errors
    /// When a chapter's id cannot be used or is used twice, or a table has a row of the wrong width.
    pub fn html(&self) -> Result<String, ReportError> {
        self.check()?;
        Ok(html::document(self))
    }

    fn check(&self) -> Result<(), ReportError> {
        for (index, chapter) in self.chapters.iter().enumerate() {
            chapter.check()?;
            if self.chapters[..index].iter().any(|earlier| earlier.id == chapter.id) {
                return Err(ReportError::SameId { id: chapter.id.clone() });
            }
        }
        Ok(())
    }
}

/// A chapter of a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Chapter {
    /// Its name in addresses: lower-case letters, digits and hyphens, beginning with a letter.
    pub id: String,
    /// What it is called.
    pub title: String,
    /// What it is made of.
    pub blocks: Vec<ReportBlock>,
}

impl Chapter {
    /// A chapter with nothing in it yet.
    pub fn new(id: impl Into<String>, title: impl Into<String>) -> Self {
        Self { id: id.into(), title: title.into(), blocks: Vec::new() }
    }

    /// Adds a heading below the chapter's own.
    pub fn heading(&mut self, title: impl Into<String>) -> &mut Self {
        self.push(ReportBlock::Heading(title.into()))
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, prose: impl Into<Prose>) -> &mut Self {
        self.push(ReportBlock::Paragraph(prose.into()))
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) -> &mut Self {
        self.push(ReportBlock::Table(table))
    }

    /// Adds a figure.
    pub fn figure(&mut self, figure: Figure) -> &mut Self {
        self.push(ReportBlock::Figure(figure))
    }

    /// Adds a command or a piece of code, set as it is.
    pub fn command(&mut self, text: impl Into<String>) -> &mut Self {
        self.push(ReportBlock::Command(text.into()))
    }

    /// Adds a remark set apart from the text.
    pub fn note(&mut self, prose: impl Into<Prose>) -> &mut Self {
        self.push(ReportBlock::Note(prose.into()))
    }

    /// Adds a row of coloured cells.
    pub fn strip(&mut self, cells: Vec<StripCell>) -> &mut Self {
        self.push(ReportBlock::Strip(cells))
    }

    fn push(&mut self, block: ReportBlock) -> &mut Self {
        self.blocks.push(block);
        self
    }

    fn check(&self) -> Result<(), ReportError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !self.id.starts_with(|first: char| first.is_ascii_lowercase()) || !self.id.bytes().all(plain) {
            return Err(ReportError::Id { id: self.id.clone(), title: self.title.clone() });
        }
        let tables = self
            .blocks
            .iter()
            .filter_map(|block| if let ReportBlock::Table(table) = block { Some(table) } else { None });
        tables.into_iter().try_for_each(Table::check)
    }
}

/// Why a report could not be made.
#[derive(Debug, Error)]
pub enum ReportError {
    /// A chapter's id cannot stand in an address.
    #[error(
        "chapter \"{title}\" has the id \"{id}\"; an id has lower-case letters, digits and hyphens, and begins with a letter"
    )]
    Id {
        /// The id.
        id: String,
        /// The chapter that has it.
        title: String,
    },
    /// Two chapters have one id.
    #[error("two chapters have the id \"{id}\"; give each its own")]
    SameId {
        /// The id.
        id: String,
    },
    /// A table row has more or fewer cells than the table has columns.
    #[error("row {row} of table \"{table}\" has {found} cells; the table has {expected} columns")]
    RowWidth {
        /// The table's caption.
        table: String,
        /// The row, counted from 1.
        row: usize,
        /// Cells in the row.
        found: usize,
        /// Columns of the table.
        expected: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_checked() {
        for id in ["", "Proved", "1st", "a b", "é", "-a"] {
            let report = Report::new("t").chapter(Chapter::new(id, "c"));
            assert!(matches!(report.html(), Err(ReportError::Id { .. })), "{id}");
        }
        let twice = Report::new("t").chapter(Chapter::new("a", "one")).chapter(Chapter::new("a", "two"));
        assert_eq!(twice.html().unwrap_err().to_string(), "two chapters have the id \"a\"; give each its own");
    }

    #[test]
    fn row_widths_are_checked() {
        let mut table = Table::new("sizes", [Column::text("a"), Column::number("b")]);
        table.row([TableCell::from("x"), TableCell::from("1")]).row([TableCell::from("y")]);
        let mut chapter = Chapter::new("c", "c");
        chapter.table(table);
        let error = Report::new("t").chapter(chapter).html().unwrap_err();
        assert_eq!(error.to_string(), "row 2 of table \"sizes\" has 1 cells; the table has 2 columns");
    }
}
