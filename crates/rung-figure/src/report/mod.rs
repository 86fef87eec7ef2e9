//! The report: one self-contained HTML file.
//!
//! There is no script, font, style sheet or image to load; figures are inline SVG, and their numbers are attached as a CSV link. The page
//! adapts to narrow screens, dark mode and print. The same [`Report`] always gives the same bytes: there is no clock here, and a caller who
//! wants a date adds it to the [facts](Report::fact).
//!
//! A report is plain data until it is rendered:
//!
//! ```text
//! Report ── Chapter ── ReportBlock: Heading | Paragraph | Table | Figure | Command | Note
//!                                        │
//!                                        └─ Prose: text, numbers with their Evidence, code, links
//! ```
//!
//! * [`prose`] is running text, in which a number can have a badge that says *proved*, *constructed* or *measured*.
//! * [`block`] has the blocks of a chapter.
//! * `html` renders them. Every string is escaped; there is no way to pass markup in.
//!
//! ```
//! use rung_figure::Evidence;
//! use rung_figure::report::{TableCell, Chapter, Column, Prose, Report, Table};
//!
//! let mut chapter = Chapter::new("bounds", "Bounds");
//! let mut table = Table::new("Where impossibility begins", [Column::text("stack"), Column::number("tokens")]);
//! table.row([TableCell::from("full linear*3"), TableCell::from("2⁹⁸").with_evidence(Evidence::Proved)]);
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
pub use prose::{Inline, Prose};

/// A report.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Report {
    /// The title.
    pub title: String,
    /// The paragraphs of the summary.
    pub summary: Vec<Prose>,
    /// How it was made, as names and values: version, seed, preset, and a date if the caller adds one.
    pub facts: Vec<(String, String)>,
    /// The chapters, in order.
    pub chapters: Vec<Chapter>,
}

impl Report {
    /// A report without chapters.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), summary: Vec::new(), facts: Vec::new(), chapters: Vec::new() }
    }

    /// The same report with one more paragraph of summary.
    pub fn summary(mut self, prose: impl Into<Prose>) -> Self {
        self.summary.push(prose.into());
        self
    }

    /// The same report with one more fact about how it was made.
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
        Ok(html::render(self))
    }

    fn check(&self) -> Result<(), ReportError> {
        for (index, chapter) in self.chapters.iter().enumerate() {
            chapter.check()?;
            if self.chapters[..index].iter().any(|earlier| earlier.id == chapter.id) {
                return Err(ReportError::DuplicateId { id: chapter.id.clone() });
            }
        }
        Ok(())
    }
}

/// A chapter of a report.
#[derive(Debug, Clone, PartialEq)]
pub struct Chapter {
    /// The HTML id: lower-case letters, digits and hyphens, beginning with a letter.
    pub id: String,
    /// The title.
    pub title: String,
    /// The content.
    pub blocks: Vec<ReportBlock>,
}

impl Chapter {
    /// A chapter without blocks.
    pub fn new(id: impl Into<String>, title: impl Into<String>) -> Self {
        Self { id: id.into(), title: title.into(), blocks: Vec::new() }
    }

    /// Adds a section heading.
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

    /// Adds a command or code, shown verbatim.
    pub fn command(&mut self, text: impl Into<String>) -> &mut Self {
        self.push(ReportBlock::Command(text.into()))
    }

    /// Adds a remark in a box.
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
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !self.id.starts_with(|first: char| first.is_ascii_lowercase()) || !self.id.bytes().all(allowed) {
            return Err(ReportError::InvalidId { id: self.id.clone(), title: self.title.clone() });
        }
        let tables = self
            .blocks
            .iter()
            .filter_map(|block| if let ReportBlock::Table(table) = block { Some(table) } else { None });
        tables.into_iter().try_for_each(Table::check)
    }
}

/// Why a report cannot be rendered.
#[derive(Debug, Error)]
pub enum ReportError {
    /// A chapter's id has characters that are not allowed.
    #[error(
        "chapter \"{title}\" has the id \"{id}\"; an id has lower-case letters, digits and hyphens, and begins with a letter"
    )]
    InvalidId {
        /// The id.
        id: String,
        /// The chapter that has it.
        title: String,
    },
    /// Two chapters have the same id.
    #[error("two chapters have the id \"{id}\"; give each its own")]
    DuplicateId {
        /// The id.
        id: String,
    },
    /// A table row has more or fewer cells than the table has columns.
    #[error("row {row} of table \"{table}\" has {found} cells; the table has {expected} columns")]
    WrongCellCount {
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
    fn invalid_and_repeated_ids_are_rejected() {
        for id in ["", "Proved", "1st", "a b", "é", "-a"] {
            let report = Report::new("t").chapter(Chapter::new(id, "c"));
            assert!(matches!(report.html(), Err(ReportError::InvalidId { .. })), "{id}");
        }
        let duplicate = Report::new("t").chapter(Chapter::new("a", "one")).chapter(Chapter::new("a", "two"));
        assert_eq!(duplicate.html().unwrap_err().to_string(), "two chapters have the id \"a\"; give each its own");
    }

    #[test]
    fn rows_with_a_wrong_number_of_cells_are_rejected() {
        let mut table = Table::new("sizes", [Column::text("a"), Column::number("b")]);
        table.row([TableCell::from("x"), TableCell::from("1")]).row([TableCell::from("y")]);
        let mut chapter = Chapter::new("c", "c");
        chapter.table(table);
        let error = Report::new("t").chapter(chapter).html().unwrap_err();
        assert_eq!(error.to_string(), "row 2 of table \"sizes\" has 1 cells; the table has 2 columns");
    }
}
