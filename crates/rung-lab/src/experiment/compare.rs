//! Cells set side by side: points along an axis, some of them with a prediction.
//!
//! Most questions have the same shape: something is varied, accuracy is looked at, and for some points the theory says what must or
//! should come out. An experiment turns its cells into [`Entry`]s; the figure, the table, the paragraph and what contradicts the
//! prediction follow from those alone, so that no sentence can say more than the data.

use super::table::{Cell, LEARNED, Spread};
use super::{Page, Reading};
use crate::Evidence;
use crate::chapter::figure_files;
use crate::figure::{AxisSpec, LineChart, Point, Scale, Series};
use crate::report::{Cell as TableCell, Column, Figure, Prose, Table};

/// One point.
pub struct Entry {
    /// The line it belongs to.
    pub series: String,
    /// Where it stands along the axis.
    pub at: f64,
    /// The same in words: "at 4 thoughts".
    pub place: String,
    /// Right answers, over seeds.
    pub found: Spread,
    /// What a guess scores.
    pub guess: f64,
    /// Whether it should be learned, where something says so, and what.
    pub predicted: Option<(bool, &'static str)>,
    /// The run behind it: stack, task, seeds.
    pub behind: [String; 3],
}

impl Entry {
    /// Of a cell, at some group of questions.
    pub fn of(cell: &Cell<'_>, group: usize, series: impl Into<String>, at: f64, place: impl Into<String>) -> Self {
        let record = cell.any();
        Self {
            series: series.into(),
            at,
            place: place.into(),
            found: cell.accuracy(group),
            guess: record.facts.baseline,
            predicted: None,
            behind: [record.config.stack.clone(), record.config.task.clone(), cell.records.len().to_string()],
        }
    }

    /// With what is said about it.
    #[must_use]
    pub fn predicted(self, learned: bool, by: &'static str) -> Self {
        Self { predicted: Some((learned, by)), ..self }
    }

    /// With another spread than that of the task itself.
    #[must_use]
    pub fn found(self, found: Spread) -> Self {
        Self { found, ..self }
    }

    /// With another guess than that of the task itself.
    #[must_use]
    pub fn guess(self, guess: f64) -> Self {
        Self { guess, ..self }
    }

    fn learned(&self) -> bool {
        self.found.mean >= LEARNED
    }
}

/// How entries are shown.
pub struct View {
    /// The name of the figure's files.
    pub file: &'static str,
    /// Over the figure.
    pub title: &'static str,
    /// Along it.
    pub axis: (&'static str, Scale),
    /// A place along it that a proof singles out, and its name.
    pub proved: Option<(f64, &'static str)>,
    /// Under it.
    pub caption: &'static str,
}

/// Figure and table into the page.
pub fn show(entries: &[Entry], view: &View, page: &mut Page<'_>) {
    let chart = chart(entries, view);
    page.artefacts.extend(figure_files(view.file, &chart));
    page.chapter.figure(Figure::new(&chart, view.caption, page.command.clone(), format!("{}.csv", view.file)));
    page.chapter.table(table(entries, view));
}

fn names(entries: &[Entry]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for entry in entries {
        if !names.contains(&entry.series.as_str()) {
            names.push(&entry.series);
        }
    }
    names
}

fn chart(entries: &[Entry], view: &View) -> LineChart {
    let (words, scale) = view.axis;
    let places: Vec<f64> = entries.iter().map(|entry| entry.at).collect();
    let [low, high] =
        [places.iter().copied().fold(f64::NAN, f64::min), places.iter().copied().fold(f64::NAN, f64::max)];
    let names = names(entries);
    // Side by side, so that bars do not cover each other.
    let logarithmic = matches!(scale, Scale::Log2 | Scale::Log10);
    let aside = |at: f64, index: usize| {
        let steps = index as f64 - (names.len() as f64 - 1.0) / 2.0;
        if logarithmic { at * (1.0 + 0.015 * steps) } else { at + 0.008 * steps * (high - low).max(1.0) }
    };
    let axis = if logarithmic {
        AxisSpec::new(words, scale)
    } else {
        let margin = 0.06 * (high - low).max(1.0);
        AxisSpec::new(words, scale).from_to(low - margin, high + margin)
    };
    let mut chart = LineChart::new(view.title, axis, AxisSpec::new("right answers", Scale::Linear).from_to(0.0, 1.02));
    if let Some((at, name)) = view.proved {
        let ends = vec![Point::new(at, 0.0), Point::new(at, 1.0)];
        chart = chart.series(Series::line(name, ends).known(Evidence::Proved));
    }
    for (index, name) in names.iter().enumerate() {
        let own = entries.iter().filter(|entry| entry.series == *name);
        let mut points: Vec<Point> = own
            .map(|entry| {
                Point::new(aside(entry.at, index), entry.found.mean).between(entry.found.low, entry.found.high)
            })
            .collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        chart = chart.series(Series::line_and_points(*name, points).known(Evidence::Measured));
    }
    chart
}

fn table(entries: &[Entry], view: &View) -> Table {
    let columns = [
        Column::text("stack"),
        Column::text("task"),
        Column::text("where"),
        Column::text("predicted"),
        Column::number("right answers, mean over seeds (worst to best)"),
        Column::number("a guess"),
        Column::number("seeds"),
    ];
    let mut table = Table::new(format!("{}: every point", view.title), columns);
    for entry in entries {
        let predicted = entry.predicted.map_or_else(
            || "nothing".to_owned(),
            |(learned, by)| format!("{}: {by}", if learned { "learned" } else { "not learned" }),
        );
        let [stack, task, seeds] = &entry.behind;
        table.row([
            TableCell::code(stack.clone()),
            TableCell::code(task.clone()),
            TableCell::from(entry.place.clone()),
            TableCell::from(predicted),
            TableCell::from(Prose::from(entry.found.percent())).known(Evidence::Measured),
            TableCell::from(format!("{:.1}%", 100.0 * entry.guess)),
            TableCell::from(seeds.clone()),
        ]);
    }
    table
}

/// The paragraph: every line with its points, then how many predictions held. `question` begins it.
pub fn read(entries: &[Entry], question: &str) -> Reading {
    let mut paragraph = Prose::new().text(format!("{question} "));
    for name in names(entries) {
        paragraph = paragraph.code(name).text(": ");
        let own: Vec<&Entry> = entries.iter().filter(|entry| entry.series == name).collect();
        for (index, entry) in own.iter().enumerate() {
            let end = if index + 1 == own.len() { ". " } else { ", " };
            paragraph =
                paragraph.number(entry.found.percent(), Evidence::Measured).text(format!(" {}{end}", entry.place));
        }
    }
    let judged = entries.iter().filter(|entry| entry.predicted.is_some()).count();
    let contradictions: Vec<String> = entries.iter().filter_map(contradiction).collect();
    let held = judged - contradictions.len();
    let line = format!("{held} of {judged} predictions held");
    if judged > 0 {
        paragraph = paragraph.text(format!("Of {judged} predictions {held} held."));
    }
    Reading { paragraph, line, contradictions }
}

fn contradiction(entry: &Entry) -> Option<String> {
    let (learned, by) = entry.predicted?;
    if learned == entry.learned() {
        return None;
    }
    let Entry { series, place, found, .. } = entry;
    let percent = found.percent();
    Some(if learned {
        let least = 100.0 * LEARNED;
        format!(
            "{series} {place} should be learned ({by}) and has {percent}: not in every run did training reach {least}%."
        )
    } else {
        format!("{series} {place} should not be learned ({by}), yet has {percent}: at this size a shortcut must exist.")
    })
}

#[cfg(test)]
mod tests {
    use super::super::table::cells;
    use super::super::table::tests::record;
    use super::*;

    #[test]
    fn what_is_said_follows_from_the_points() {
        let records = [
            record("full", "parity", 0, 1e-3, &[995]),
            record("gdn", "parity", 0, 1e-3, &[600]),
            record("gdn", "parity", 1, 1e-3, &[700]),
        ];
        let cells = cells(&records);
        let entry = |index: usize, at: f64| Entry::of(&cells[index], 1, "line", at, format!("at {at}"));
        let fine = [entry(0, 1.0).predicted(true, "a construction"), entry(1, 2.0).predicted(false, "the rungs")];
        let reading = read(&fine, "Does it?");
        assert_eq!(reading.line, "2 of 2 predictions held");
        assert!(reading.paragraph.plain().starts_with("Does it? line: 99.5%"), "{}", reading.paragraph.plain());
        assert!(reading.paragraph.plain().contains("65.0% (60.0 to 70.0)") && reading.contradictions.is_empty());
        let odd = [
            entry(0, 1.0).predicted(false, "the rungs"),
            entry(1, 2.0).predicted(true, "a construction"),
            entry(1, 3.0),
        ];
        let reading = read(&odd, "Does it?");
        assert_eq!((reading.line.as_str(), reading.contradictions.len()), ("0 of 2 predictions held", 2));
        assert!(reading.contradictions[0].contains("a shortcut must exist"), "{:?}", reading.contradictions);
    }
}
