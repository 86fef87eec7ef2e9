//! Cells set side by side: points along an axis, some of them with a prediction.
//!
//! Most questions have the same shape: something is varied, accuracy is measured, and for some points the theory says what must or
//! should come out. An experiment turns its cells into [`ComparisonPoint`]s; the figure, the table, the paragraph and what contradicts the
//! prediction follow from those alone, so that no sentence can say more than the data.

use super::table::{LEARNED, ResultCell, SeedSpread};
use super::{Conclusion, ExperimentOutput};
use crate::artefact::figure_files;
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, Chart, Dot, DotChart, LineChart, Point, Scale, Series};
use rung_figure::report::{Column, Figure, Prose, Table, TableCell};

/// One point.
#[derive(Clone)]
pub struct ComparisonPoint {
    /// The line it belongs to.
    pub series: String,
    /// Where it stands along the axis.
    pub at: f64,
    /// The same in words: "at 4 thoughts".
    pub label: String,
    /// Right answers, over seeds.
    pub found: SeedSpread,
    /// What a guess scores.
    pub guess: f64,
    /// Whether it should be learned, where something says so, and what.
    pub predicted: Option<(bool, &'static str)>,
    /// The run behind it: stack, task.
    pub behind: [String; 2],
    /// What is decided about all hops of exactly these tables, if it is function composition.
    pub decided: Option<String>,
}

impl ComparisonPoint {
    /// Of a cell, at some group of questions.
    pub fn of(
        cell: &ResultCell<'_>,
        group: usize,
        series: impl Into<String>,
        at: f64,
        label: impl Into<String>,
    ) -> Self {
        let record = cell.first();
        Self {
            series: series.into(),
            at,
            label: label.into(),
            found: cell.accuracy(group),
            guess: record.facts.baseline,
            predicted: None,
            behind: [record.config.stack.clone(), record.config.task.clone()],
            decided: record.facts.verdict.as_ref().map(|[word, _]| word.clone()),
        }
    }

    /// With what is said about it.
    #[must_use]
    pub fn predicted(self, learned: bool, by: &'static str) -> Self {
        Self { predicted: Some((learned, by)), ..self }
    }

    /// With another spread than that of the task itself.
    #[must_use]
    pub fn found(self, found: SeedSpread) -> Self {
        Self { found, ..self }
    }

    /// With another guess than that of the task itself.
    #[must_use]
    pub fn guess(self, guess: f64) -> Self {
        Self { guess, ..self }
    }

    /// Whether it counts as learned: where that is predicted, if most seeds learned it; otherwise if one did.
    fn learned(&self) -> bool {
        match self.predicted {
            Some((true, _)) => self.found.mostly_learned(),
            _ => self.found.once_learned(),
        }
    }

    /// Whether it came out otherwise than predicted.
    fn surprises(&self) -> bool {
        self.predicted.is_some_and(|(learned, _)| learned != self.learned())
    }
}

/// What the points of a figure stand along.
pub enum AxisKind {
    /// A measure: lines over an axis with these words.
    Measure(&'static str, Scale),
    /// Nothing that has an order: a row for every series, and in it a dot for every place.
    Names,
}

/// How points are shown.
pub struct ComparisonFigure {
    /// The name of the figure's files.
    pub file: &'static str,
    /// Over the figure.
    pub title: &'static str,
    /// Along it.
    pub along: AxisKind,
    /// A place along a measure that a proof singles out, and its name.
    pub proved: Option<(f64, &'static str)>,
    /// Under it.
    pub caption: &'static str,
}

/// Figure and table into the page.
pub fn render(points: &[ComparisonPoint], view: &ComparisonFigure, page: &mut ExperimentOutput<'_>) {
    match view.along {
        AxisKind::Measure(words, scale) => {
            figure(&lines(points, view, words, scale), view.caption.to_owned(), view, page);
        }
        AxisKind::Names => {
            let caption = format!("{} Open marks are against the prediction.", view.caption);
            figure(&dots(points, view), caption, view, page);
        }
    }
    page.chapter.table(table(points, view));
}

fn figure(chart: &dyn Chart, caption: String, view: &ComparisonFigure, page: &mut ExperimentOutput<'_>) {
    page.artefacts.extend(figure_files(view.file, chart));
    page.chapter.figure(Figure::new(chart, caption, page.command.clone(), format!("{}.csv", view.file)));
}

/// What points are called, each name once, in order.
fn names<'a>(points: &'a [ComparisonPoint], name: impl Fn(&'a ComparisonPoint) -> &'a str) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for point in points {
        if !names.contains(&name(point)) {
            names.push(name(point));
        }
    }
    names
}

fn right_answers() -> AxisSpec {
    AxisSpec::new("right answers", Scale::Linear).from_to(0.0, 1.02)
}

fn dots(points: &[ComparisonPoint], view: &ComparisonFigure) -> DotChart {
    let rows = names(points, |point| &point.series);
    let mut chart = DotChart::new(view.title, right_answers(), &rows).known(Evidence::Measured);
    for label in names(points, |point| &point.label) {
        let own = points.iter().filter(|point| point.label == label);
        let dot = |point: &ComparisonPoint| {
            let row = rows.iter().position(|name| *name == point.series).unwrap_or_default();
            let dot = Dot::new(row, point.found.mean).between(point.found.low, point.found.high);
            if point.surprises() { dot.open() } else { dot }
        };
        chart = chart.series(label, own.map(dot).collect());
    }
    chart
}

/// How far lines stand apart, so that their spreads do not cover each other.
const ASIDE: f64 = 6.0;

fn lines(points: &[ComparisonPoint], view: &ComparisonFigure, words: &'static str, scale: Scale) -> LineChart {
    let positions: Vec<f64> =
        points.iter().map(|point| point.at).chain(view.proved.iter().map(|(at, _)| *at)).collect();
    let [low, high] =
        [positions.iter().copied().fold(f64::NAN, f64::min), positions.iter().copied().fold(f64::NAN, f64::max)];
    let names = names(points, |point| &point.series);
    // Room at both ends for what stands aside.
    let axis = if matches!(scale, Scale::Log2 | Scale::Log10) {
        let margin = (high / low).max(2.0).powf(0.06);
        AxisSpec::new(words, scale).from_to(low / margin, high * margin)
    } else {
        let margin = 0.06 * (high - low).max(1.0);
        AxisSpec::new(words, scale).from_to(low - margin, high + margin)
    };
    let mut chart = LineChart::new(view.title, axis, right_answers());
    if let Some((at, name)) = view.proved {
        let ends = vec![Point::new(at, 0.0), Point::new(at, 1.0)];
        chart = chart.series(Series::line(name, ends).known(Evidence::Proved));
    }
    for (index, name) in names.iter().enumerate() {
        let own = points.iter().filter(|point| point.series == *name);
        let mut line_points: Vec<Point> = own
            .map(|point| Point::new(point.at, point.found.mean).between(point.found.low, point.found.high))
            .collect();
        line_points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let aside = ASIDE * (index as f64 - (names.len() as f64 - 1.0) / 2.0);
        chart = chart.series(Series::line_and_points(*name, line_points).known(Evidence::Measured).aside(aside));
    }
    chart
}

fn table(points: &[ComparisonPoint], view: &ComparisonFigure) -> Table {
    let columns = [
        Column::text("what"),
        Column::text("where"),
        Column::number("right answers, mean over seeds (worst to best)"),
        Column::text("predicted"),
        Column::text("bound at this size"),
        Column::number("a guess"),
        Column::number("seeds that learned it"),
        Column::text("stack"),
        Column::text("task"),
    ];
    let mut table = Table::new(format!("{}: every point", view.title), columns);
    for point in points {
        let predicted = point.predicted.map_or_else(
            || "nothing".to_owned(),
            |(learned, by)| format!("{}: {by}", if learned { "learned" } else { "not learned" }),
        );
        let [stack, task] = &point.behind;
        // A prediction from rungs is about large tables; only a decision is about these.
        let bound = match point.decided.as_deref() {
            Some("unknown") => "does not reach it: unknown",
            Some(word) => word,
            None => "none",
        };
        table.row([
            TableCell::from(point.series.clone()),
            TableCell::from(point.label.clone()),
            TableCell::from(Prose::from(point.found.percent())).known(Evidence::Measured),
            TableCell::from(predicted),
            TableCell::from(bound),
            TableCell::from(format!("{:.1}%", 100.0 * point.guess)),
            TableCell::from(point.found.share()),
            TableCell::code(stack.clone()),
            TableCell::code(task.clone()),
        ]);
    }
    table
}

/// Series beyond this number are named by the figure and its table alone.
const FEW: usize = 12;

/// The paragraph: how each prediction fared, then where each line went. `question` begins it.
pub fn conclude(points: &[ComparisonPoint], question: &str) -> Conclusion {
    let mut paragraph = Prose::new().strong(format!("{question} "));
    let mut predictions: Vec<(bool, &str)> = Vec::new();
    for prediction in points.iter().filter_map(|point| point.predicted) {
        if !predictions.contains(&prediction) {
            predictions.push(prediction);
            let own: Vec<&ComparisonPoint> =
                points.iter().filter(|point| point.predicted == Some(prediction)).collect();
            paragraph = outcome(paragraph, prediction, &own);
        }
    }
    let names = names(points, |point| &point.series);
    if names.len() <= FEW {
        for name in names {
            let own: Vec<&ComparisonPoint> = points.iter().filter(|point| point.series == name).collect();
            paragraph = course(paragraph.code(name).text(": "), &own);
        }
    }
    let judged = points.iter().filter(|point| point.predicted.is_some()).count();
    let contradictions: Vec<String> = points.iter().filter_map(contradiction).collect();
    let line = match judged {
        0 => "nothing was predicted".to_owned(),
        _ => format!("{} of {judged} predictions held", judged - contradictions.len()),
    };
    Conclusion { paragraph, line, contradictions, ..Conclusion::default() }
}

/// How one prediction fared at the points that it is about.
fn outcome(paragraph: Prose, (learned, by): (bool, &str), own: &[&ComparisonPoint]) -> Prose {
    let count = own.iter().filter(|point| point.learned()).count();
    let means = own.iter().map(|point| point.found.mean);
    let [low, high] = [means.clone().fold(f64::INFINITY, f64::min), means.fold(0.0, f64::max)]
        .map(|mean| format!("{:.1}%", 100.0 * mean));
    let range = if low == high { low } else { format!("{low} to {high}") };
    let verb = match (own.len(), count) {
        (1, 0) => "not learned".to_owned(),
        (1, _) => "learned".to_owned(),
        (_, 0) => format!("none of {} learned", own.len()),
        (all, count) if all == count => format!("all {all} learned"),
        (all, count) => format!("{count} of {all} learned"),
    };
    let should = if learned { "Predicted: learned" } else { "Predicted: not learned" };
    paragraph.text(format!("{should} ({by}). Measured: {verb}, ")).number(range, Evidence::Measured).text(". ")
}

/// The points of one line, or where it is lowest and highest if there are many.
fn course(paragraph: Prose, own: &[&ComparisonPoint]) -> Prose {
    let at = |point: &ComparisonPoint| format!("{} {}", point.found.percent(), point.label);
    // Among equals the first.
    let extreme = |sign: f64| own.iter().rev().max_by(|a, b| (sign * a.found.mean).total_cmp(&(sign * b.found.mean)));
    let words = match own {
        [_, _, _, _, ..] => {
            let ends = extreme(-1.0).zip(extreme(1.0)).map(|(low, high)| format!("from {} to {}", at(low), at(high)));
            ends.unwrap_or_default()
        }
        few => few.iter().map(|point| at(point)).collect::<Vec<String>>().join(", "),
    };
    paragraph.number(words, Evidence::Measured).text(". ")
}

fn contradiction(point: &ComparisonPoint) -> Option<String> {
    let (learned, by) = point.predicted.filter(|_| point.surprises())?;
    let ComparisonPoint { series, label, found, .. } = point;
    let percent = found.percent();
    Some(if learned {
        let (least, share) = (100.0 * LEARNED, found.share());
        format!("{series} {label}: predicted learned ({by}); {share} seeds reached {least}% ({percent}).")
    } else {
        let share = found.share();
        format!(
            "{series} {label}: predicted not learned ({by}); {share} seeds learned it ({percent}): at this size a shortcut must exist."
        )
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
        let point = |index: usize, at: f64| ComparisonPoint::of(&cells[index], 1, "line", at, format!("at {at}"));
        let fine = [point(0, 1.0).predicted(true, "a construction"), point(1, 2.0).predicted(false, "the rungs")];
        let reading = conclude(&fine, "Does it?");
        assert_eq!(reading.line, "2 of 2 predictions held");
        assert_eq!(
            reading.paragraph.plain(),
            "Does it? Predicted: learned (a construction). Measured: learned, 99.5%. Predicted: not learned (the rungs). \
             Measured: not learned, 65.0%. \
             line: 99.5% at 1, 65.0% (60.0 to 70.0) at 2. "
        );
        assert!(reading.contradictions.is_empty());
        let odd = [
            point(0, 1.0).predicted(false, "the rungs"),
            point(1, 2.0).predicted(true, "a construction"),
            point(1, 3.0),
            point(1, 4.0),
        ];
        let reading = conclude(&odd, "Does it?");
        assert_eq!((reading.line.as_str(), reading.contradictions.len()), ("0 of 2 predictions held", 2));
        assert!(reading.contradictions[0].contains("a shortcut must exist"), "{:?}", reading.contradictions);
        let words = reading.paragraph.plain();
        assert!(words.contains("line: from 65.0% (60.0 to 70.0) at 2 to 99.5% at 1. "), "{words}");
        assert_eq!(conclude(&[point(0, 1.0)], "Does it?").line, "nothing was predicted");
    }

    #[test]
    fn one_seed_of_three_refutes_not_learned_and_does_not_confirm_learned() {
        let records: Vec<_> = [(0, 998), (1, 993), (2, 91)]
            .into_iter()
            .map(|(seed, right)| record("deltanet full", "funccomp{hops=1,m=16}", seed, 1e-3, &[right]))
            .collect();
        let judge = |records: &[rung_train::run::RunRecord], learned: bool| {
            let cells = cells(records);
            conclude(&[ComparisonPoint::of(&cells[0], 1, "line", 1.0, "here").predicted(learned, "it")], "?")
                .contradictions
                .len()
        };
        assert_eq!((judge(&records, false), judge(&records, true)), (1, 0), "two of three learned it");
        assert_eq!((judge(&records[1..], false), judge(&records[1..], true)), (1, 1), "one of two is not most");
        assert_eq!((judge(&records[2..], false), judge(&records[2..], true)), (0, 1));
    }

    #[test]
    fn surprises_are_open_dots_in_the_rows_of_their_series() {
        let records = [record("full", "parity", 0, 1e-3, &[995]), record("gdn", "parity", 0, 1e-3, &[600])];
        let cells = cells(&records);
        let point = |index: usize| {
            ComparisonPoint::of(&cells[index], 1, format!("row {index}"), 1.0, "here").predicted(true, "it")
        };
        let view = ComparisonFigure { file: "f", title: "t", along: AxisKind::Names, proved: None, caption: "" };
        let chart = dots(&[point(0), point(1)], &view);
        let dot = |row, mean| Dot::new(row, mean).between(mean, mean);
        let expected = DotChart::new("t", right_answers(), &["row 0", "row 1"]).known(Evidence::Measured);
        assert_eq!(chart, expected.series("here", vec![dot(0, 0.995), dot(1, 0.6).open()]));
    }
}
