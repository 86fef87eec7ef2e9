//! Renders a report as HTML.
//!
//! The document is both HTML and well-formed XML: every element is closed and every attribute quoted, so that tests can parse it strictly.
//!
//! Tables and figures are in boxes that scroll horizontally on narrow screens, so the page itself does not.

use std::fmt::Write as _;

use super::block::{Column, Figure, ReportBlock, StripCell, Table, TableCell};
use super::prose::{Inline, Prose};
use super::{Chapter, Report};
use crate::Evidence;
use crate::made_by::GENERATOR;
use crate::markup::{escape, percent_encode};

const STYLE: &str = include_str!("style.css");

/// The HTML document of a report.
pub(super) fn render(report: &Report) -> String {
    let mut page = Page::default();
    page.write_head(report);
    page.push("<body>\n");
    page.write_contents(report);
    page.push("<main>\n");
    page.write_title_page(report);
    for chapter in &report.chapters {
        page.write_chapter(chapter);
    }
    page.push("</main>\n</body>\n</html>\n");
    page.text
}

/// A document under construction, with the counts of figures and tables so far.
#[derive(Default)]
struct Page {
    text: String,
    figure_count: usize,
    table_count: usize,
}

impl Page {
    fn push(&mut self, markup: &str) {
        self.text.push_str(markup);
    }

    fn write_head(&mut self, report: &Report) {
        let title = escape(&report.title);
        // Writing to a String cannot fail, here and below.
        let _ = write!(
            self.text,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <meta name=\"color-scheme\" content=\"light dark\"/>\n{GENERATOR}\n\
             <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n"
        );
    }

    fn write_contents(&mut self, report: &Report) {
        if report.chapters.is_empty() {
            return;
        }
        self.push("<nav aria-label=\"Contents\">\n<p class=\"nav-title\">Contents</p>\n<ol>\n");
        for chapter in &report.chapters {
            let _ = write!(self.text, "<li><a href=\"#{}\">{}</a>", escape(&chapter.id), escape(&chapter.title));
            let headings: Vec<_> = headings(chapter).collect();
            if !headings.is_empty() {
                self.push("\n<ul>\n");
                for (id, title) in headings {
                    let _ = writeln!(self.text, "<li><a href=\"#{}\">{}</a></li>", escape(&id), escape(title));
                }
                self.push("</ul>\n");
            }
            self.push("</li>\n");
        }
        self.push("</ol>\n</nav>\n");
    }

    fn write_title_page(&mut self, report: &Report) {
        let _ = writeln!(self.text, "<header>\n<h1>{}</h1>", escape(&report.title));
        for paragraph in &report.summary {
            let _ = writeln!(self.text, "<p class=\"summary\">{}</p>", prose(paragraph));
        }
        if !report.facts.is_empty() {
            self.push("<dl class=\"facts\">\n");
            for (name, value) in &report.facts {
                let _ = writeln!(self.text, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
            }
            self.push("</dl>\n");
        }
        self.push("<div class=\"key\">\n<p>Every number says what evidence there is for it:</p>\n<ul>\n");
        for evidence in Evidence::ALL {
            let _ = writeln!(self.text, "<li>{} {}</li>", badge(evidence), escape(evidence.meaning()));
        }
        self.push("</ul>\n</div>\n</header>\n");
    }

    fn write_chapter(&mut self, chapter: &Chapter) {
        let id = escape(&chapter.id);
        let _ = writeln!(self.text, "<section aria-labelledby=\"{id}\">");
        self.write_heading(2, &chapter.id, &chapter.title);
        let mut headings = headings(chapter);
        for block in &chapter.blocks {
            match block {
                ReportBlock::Heading(_) => {
                    if let Some((id, title)) = headings.next() {
                        self.write_heading(3, &id, title);
                    }
                }
                ReportBlock::Paragraph(text) => {
                    let _ = writeln!(self.text, "<p>{}</p>", prose(text));
                }
                ReportBlock::Table(table) => self.write_table(table),
                ReportBlock::Figure(figure) => self.write_figure(figure),
                ReportBlock::Command(text) => {
                    let _ = writeln!(self.text, "<pre tabindex=\"0\"><code>{}</code></pre>", escape(text));
                }
                ReportBlock::Note(text) => {
                    let _ = writeln!(self.text, "<aside class=\"note\">{}</aside>", prose(text));
                }
                ReportBlock::Strip(cells) => self.write_strip(cells),
            }
        }
        self.push("</section>\n");
    }

    fn write_heading(&mut self, level: u8, id: &str, title: &str) {
        let (id, title) = (escape(id), escape(title));
        let anchor = format!("<a class=\"anchor\" href=\"#{id}\" aria-label=\"Link to this section\">#</a>");
        let _ = writeln!(self.text, "<h{level} id=\"{id}\">{title} {anchor}</h{level}>");
    }

    fn write_table(&mut self, table: &Table) {
        self.table_count += 1;
        let number = self.table_count;
        let _ = write!(
            self.text,
            "<figure class=\"table\" id=\"table-{number}\">\n<figcaption><b>Table {number}.</b> {}</figcaption>\n\
             <div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"Table {number}\">\n<table>\n<thead>\n<tr>",
            prose(&table.caption)
        );
        for column in &table.columns {
            let _ = write!(self.text, "<th scope=\"col\"{}>{}</th>", class(column), escape(&column.title));
        }
        self.push("</tr>\n</thead>\n<tbody>\n");
        for row in &table.rows {
            self.push("<tr>");
            for (column, cell) in table.columns.iter().zip(row) {
                let _ = write!(self.text, "<td{}>{}</td>", class(column), cell_content(cell));
            }
            self.push("</tr>\n");
        }
        self.push("</tbody>\n</table>\n</div>\n</figure>\n");
    }

    fn write_strip(&mut self, cells: &[StripCell]) {
        self.push("<div class=\"strip\">");
        for StripCell { letter, background, text_colour, tooltip } in cells {
            let (letter, tooltip) = (escape(&letter.to_string()), escape(tooltip));
            let _ = write!(
                self.text,
                "<span style=\"background:{background};color:{text_colour}\" title=\"{tooltip}\">{letter}</span>"
            );
        }
        self.push("</div>\n");
    }

    fn write_figure(&mut self, figure: &Figure) {
        self.figure_count += 1;
        let number = self.figure_count;
        let _ = writeln!(
            self.text,
            "<figure class=\"chart\" id=\"figure-{number}\">\n\
             <div class=\"scroll card\" role=\"region\" tabindex=\"0\" aria-label=\"Figure {number}\">\n{}</div>\n\
             <figcaption><b>Figure {number}.</b> {}",
            figure.svg,
            prose(&figure.caption)
        );
        self.push("<span class=\"source\">");
        if !figure.command.is_empty() {
            let _ = write!(self.text, "Made by <code>{}</code>. ", escape(&figure.command));
        }
        let _ = writeln!(
            self.text,
            "<a download=\"{}\" href=\"data:text/csv;charset=utf-8,{}\">Numbers as CSV</a></span></figcaption>\n</figure>",
            escape(&figure.csv_name),
            percent_encode(&figure.csv)
        );
    }
}

/// The ids and titles of a chapter's section headings.
fn headings(chapter: &Chapter) -> impl Iterator<Item = (String, &str)> {
    let titles = chapter.blocks.iter().filter_map(|block| match block {
        ReportBlock::Heading(title) => Some(title.as_str()),
        _ => None,
    });
    // A chapter's id cannot contain a dot, so these ids are different from all of them.
    titles.enumerate().map(|(index, title)| (format!("{}.{}", chapter.id, index + 1), title))
}

fn class(column: &Column) -> &'static str {
    if column.numeric { " class=\"number\"" } else { "" }
}

fn cell_content(cell: &TableCell) -> String {
    let content = prose(&cell.prose);
    match cell.evidence {
        None => content,
        Some(evidence) => format!("<span class=\"known\">{content}&#160;{}</span>", badge(evidence)),
    }
}

fn badge(evidence: Evidence) -> String {
    let label = evidence.label();
    format!("<span class=\"badge {label}\">{label}</span>")
}

fn prose(prose: &Prose) -> String {
    prose.inlines.iter().map(inline).collect()
}

fn inline(inline: &Inline) -> String {
    match inline {
        Inline::Strong(text) => format!("<strong>{}</strong>", escape(text)),
        Inline::Code(text) => format!("<code>{}</code>", escape(text)),
        Inline::WithEvidence(text, evidence) => {
            format!("<span class=\"known\">{}&#160;{}</span>", escape(text), badge(*evidence))
        }
        Inline::Link { text, address } if is_safe(address) => {
            format!("<a href=\"{}\">{}</a>", escape(address), escape(text))
        }
        // A link with an unsafe address is shown as plain text.
        Inline::Text(text) | Inline::Link { text, .. } => escape(text),
    }
}

/// Whether an address is a web page or a heading of this page, and not for example a script.
fn is_safe(address: &str) -> bool {
    ["https://", "http://", "#"].iter().any(|start| address.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Chart, ContextRange, HopMap, HopRow, RangeVerdict};
    #[cfg(feature = "png")]
    use proptest::prelude::*;

    /// A report with every kind of block, all with the same text.
    fn report_of(text: &str) -> Report {
        let map =
            HopMap::new(text, vec![HopRow::new(1, vec![ContextRange::new(0.0, f64::INFINITY, RangeVerdict::Solved)])]);
        let prose = Prose::new()
            .text(text)
            .strong(text)
            .code(text)
            .number(text, Evidence::Measured)
            .link(text, format!("https://example.org/{text}"))
            .link(text, text);
        let mut table = Table::new(prose.clone(), [Column::text(text), Column::number(text)]);
        table.row([TableCell::from(text), TableCell::from(text).with_evidence(Evidence::Proved)]);
        let mut chapter = Chapter::new("all", text);
        chapter.heading(text).paragraph(prose.clone()).table(table).command(text).note(prose.clone());
        chapter.figure(Figure::new(&map, prose, text, text));
        Report::new(text).summary(text).fact(text, text).chapter(chapter)
    }

    #[cfg(feature = "png")]
    fn parse_error(html: &str) -> Option<String> {
        use resvg::usvg::roxmltree::{Document, ParsingOptions};
        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        Document::parse_with_options(html, options).err().map(|error| error.to_string())
    }

    #[cfg(feature = "png")]
    proptest! {
        #[test]
        fn reports_are_well_formed_for_any_text(text in "\\PC{0,40}|[<>&'\"]{0,8}|.{0,20}") {
            let html = report_of(&text).html().unwrap();
            prop_assert_eq!(parse_error(&html), None, "{}", html);
        }
    }

    #[test]
    fn markup_in_any_text_is_escaped() {
        let html = report_of("<script>alert('x')</script>").html().unwrap();
        assert!(!html.contains("<script"));
        assert!(html.matches("&lt;script&gt;").count() > 15);
    }

    #[test]
    fn html_has_no_scripts_and_loads_nothing() {
        let html = report_of("plain").html().unwrap();
        for forbidden in ["<script", "<link", "<img", "@import", "url(", " src=", "onload"] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
    }

    #[test]
    fn unsafe_addresses_are_not_links() {
        let html = prose(&Prose::new().link("a", "javascript:alert(1)").link("b", "#all"));
        assert_eq!(html, "a<a href=\"#b\">b</a>".replace("#b", "#all"));
    }

    #[test]
    fn every_link_inside_the_page_has_a_target() {
        let html = report_of("plain").html().unwrap();
        let targets: Vec<&str> = html.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(targets.len() >= 4);
        for target in targets {
            assert_eq!(html.matches(&format!(" id=\"{target}\"")).count(), 1, "{target}");
        }
    }

    #[test]
    fn the_csv_link_contains_the_numbers() {
        let map = HopMap::new("m", vec![HopRow::new(3, vec![ContextRange::new(0.0, 1.5, RangeVerdict::Unknown)])]);
        let mut chapter = Chapter::new("c", "c");
        chapter.figure(Figure::new(&map, "", "", "m.csv"));
        let html = Report::new("t").chapter(chapter).html().unwrap();
        assert!(html.contains(&format!("data:text/csv;charset=utf-8,{}", percent_encode(&map.csv()))));
    }

    #[test]
    fn the_same_report_gives_the_same_html() {
        assert_eq!(report_of("x").html().unwrap(), report_of("x").html().unwrap());
    }
}
