//! Comparison of settings ([`SeedRuns`], runs that differ in their seed only): points along an axis, some of them with a prediction.
//!
//! Most experiments have the same shape: something is varied, accuracy is measured, and for some points the theory predicts whether the task is
//! learned. An experiment turns its settings into [`ComparisonPoint`]s; the figure, the table, the paragraph and the list of contradictions are
//! computed from those points alone.

use super::seed_runs::{LEARNED_ACCURACY, SeedRuns, SeedSpread};
use super::{Conclusion, ExperimentOutput};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, Dot, DotChart, LineChart, Point, Scale, Series};
use rung_figure::report::{Column, Prose, Table, TableCell};

/// Whether the theory predicts that training learns a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prediction {
    /// Most seeds learn it.
    Learned,
    /// No seed learns it.
    NotLearned,
}

impl Prediction {
    /// The prediction for questions of `hops` hops to a layout of `rungs` rungs.
    pub fn from_rungs(hops: usize, rungs: usize) -> Self {
        if hops <= rungs { Self::Learned } else { Self::NotLearned }
    }

    /// The prediction in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Learned => "learned",
            Self::NotLearned => "not learned",
        }
    }
}

/// The accuracy of one setting, with its position in the figure and its prediction.
#[derive(Clone)]
pub struct ComparisonPoint {
    /// Name of the line or row that it belongs to.
    pub series: String,
    /// Position along the axis.
    pub position: f64,
    /// The position in words: "at 4 thoughts".
    pub label: String,
    /// Accuracy over seeds.
    pub accuracy: SeedSpread,
    /// Accuracy of chance.
    pub chance_accuracy: f64,
    /// Whether the task is predicted to be learned, and the reason; none without a prediction.
    pub prediction: Option<(Prediction, &'static str)>,
    /// Stack and task of the runs.
    pub stack_and_task: [String; 2],
    /// The verdict of the theory about all hops of exactly these tables, if the task is function composition.
    pub verdict: Option<String>,
}

impl ComparisonPoint {
    /// The point of a setting, with the accuracy on one metric group.
    pub fn new(
        runs: &SeedRuns<'_>,
        group: usize,
        series: impl Into<String>,
        position: f64,
        label: impl Into<String>,
    ) -> Self {
        let record = runs.first();
        Self {
            series: series.into(),
            position,
            label: label.into(),
            accuracy: runs.accuracy(group),
            chance_accuracy: record.facts.baseline,
            prediction: None,
            stack_and_task: [record.config.stack.clone(), record.config.task.clone()],
            verdict: record.facts.verdict.as_ref().map(|[verdict, _]| verdict.clone()),
        }
    }

    /// Adds a prediction and its reason.
    #[must_use]
    pub fn with_prediction(self, prediction: Prediction, reason: &'static str) -> Self {
        Self { prediction: Some((prediction, reason)), ..self }
    }

    /// Replaces the accuracy.
    #[must_use]
    pub fn with_accuracy(self, accuracy: SeedSpread) -> Self {
        Self { accuracy, ..self }
    }

    /// Replaces the accuracy of chance.
    #[must_use]
    pub fn with_chance_accuracy(self, chance_accuracy: f64) -> Self {
        Self { chance_accuracy, ..self }
    }

    /// Whether the task counts as learned: if learning is predicted, most seeds must have learned it; otherwise one seed is enough.
    fn is_learned(&self) -> bool {
        match self.prediction {
            Some((Prediction::Learned, _)) => self.accuracy.most_seeds_learned(),
            _ => self.accuracy.any_seed_learned(),
        }
    }

    /// Whether the result contradicts the prediction.
    fn contradicts_prediction(&self) -> bool {
        self.prediction.is_some_and(|(prediction, _)| (prediction == Prediction::Learned) != self.is_learned())
    }
}

/// The horizontal axis of a figure.
pub enum AxisKind {
    /// A number with this label: the figure has lines over the axis.
    Number(&'static str, Scale),
    /// Names without an order: the figure has a row for every series, with a dot for every label.
    Names,
}

/// Description of a figure of points.
pub struct ComparisonFigure {
    /// The name of the figure's files.
    pub file: &'static str,
    /// Title of the figure.
    pub title: &'static str,
    /// Horizontal axis.
    pub axis: AxisKind,
    /// An optional vertical line at a proved bound: its position on a numeric axis, and its name.
    pub proved_line: Option<(f64, &'static str)>,
    /// Caption of the figure.
    pub caption: &'static str,
}

/// Adds the figure and the table to the page.
pub fn render(points: &[ComparisonPoint], figure: &ComparisonFigure, output: &mut ExperimentOutput<'_>) {
    match figure.axis {
        AxisKind::Number(axis_label, scale) => {
            output.add_figure(figure.file, &line_chart(points, figure, axis_label, scale), figure.caption);
        }
        AxisKind::Names => {
            let caption = format!("{} Open markers contradict the prediction.", figure.caption);
            output.add_figure(figure.file, &dot_chart(points, figure), caption);
        }
    }
    output.chapter.table(table(points, figure));
}

/// The distinct names of points, in order of first occurrence.
fn distinct_names<'a>(points: &'a [ComparisonPoint], name: impl Fn(&'a ComparisonPoint) -> &'a str) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for point in points {
        if !names.contains(&name(point)) {
            names.push(name(point));
        }
    }
    names
}

fn accuracy_axis() -> AxisSpec {
    AxisSpec::new("accuracy", Scale::Linear).with_range(0.0, 1.02)
}

fn dot_chart(points: &[ComparisonPoint], figure: &ComparisonFigure) -> DotChart {
    let rows = distinct_names(points, |point| &point.series);
    let mut chart = DotChart::new(figure.title, accuracy_axis(), &rows).with_evidence(Evidence::Measured);
    for label in distinct_names(points, |point| &point.label) {
        let labelled = points.iter().filter(|point| point.label == label);
        let dot = |point: &ComparisonPoint| {
            let row = rows.iter().position(|name| *name == point.series).unwrap_or_default();
            let dot = Dot::new(row, point.accuracy.mean).with_spread(point.accuracy.low, point.accuracy.high);
            if point.contradicts_prediction() { dot.open() } else { dot }
        };
        chart = chart.series(label, labelled.map(dot).collect());
    }
    chart
}

/// Horizontal offset between lines in pixels, so that their error bars do not overlap.
const LINE_OFFSET: f64 = 6.0;

fn line_chart(
    points: &[ComparisonPoint],
    figure: &ComparisonFigure,
    axis_label: &'static str,
    scale: Scale,
) -> LineChart {
    let positions: Vec<f64> = points
        .iter()
        .map(|point| point.position)
        .chain(figure.proved_line.iter().map(|(position, _)| *position))
        .collect();
    let [low, high] =
        [positions.iter().copied().fold(f64::NAN, f64::min), positions.iter().copied().fold(f64::NAN, f64::max)];
    let names = distinct_names(points, |point| &point.series);
    // Room at both ends for the offsets of lines.
    let axis = if matches!(scale, Scale::Log2 | Scale::Log10) {
        let margin = (high / low).max(2.0).powf(0.06);
        AxisSpec::new(axis_label, scale).with_range(low / margin, high * margin)
    } else {
        let margin = 0.06 * (high - low).max(1.0);
        AxisSpec::new(axis_label, scale).with_range(low - margin, high + margin)
    };
    let mut chart = LineChart::new(figure.title, axis, accuracy_axis());
    if let Some((position, name)) = figure.proved_line {
        let ends = vec![Point::new(position, 0.0), Point::new(position, 1.0)];
        chart = chart.series(Series::line(name, ends).with_evidence(Evidence::Proved));
    }
    for (index, name) in names.iter().enumerate() {
        let series_points = points.iter().filter(|point| point.series == *name);
        let mut line_points: Vec<Point> = series_points
            .map(|point| {
                Point::new(point.position, point.accuracy.mean).with_spread(point.accuracy.low, point.accuracy.high)
            })
            .collect();
        line_points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let offset = LINE_OFFSET * (index as f64 - (names.len() as f64 - 1.0) / 2.0);
        chart =
            chart.series(Series::line_and_points(*name, line_points).with_evidence(Evidence::Measured).shifted(offset));
    }
    chart
}

fn table(points: &[ComparisonPoint], figure: &ComparisonFigure) -> Table {
    let columns = [
        Column::text("series"),
        Column::text("point"),
        Column::number("accuracy, mean over seeds (worst to best)"),
        Column::text("predicted"),
        Column::text("bound at this size"),
        Column::number("chance"),
        Column::number("seeds that learned it"),
        Column::text("stack"),
        Column::text("task"),
    ];
    let mut table = Table::new(format!("{}: every point", figure.title), columns);
    for point in points {
        let prediction = point.prediction.map_or_else(
            || "no prediction".to_owned(),
            |(prediction, reason)| format!("{}: {reason}", prediction.name()),
        );
        let [stack, task] = &point.stack_and_task;
        // A prediction from rungs is about large tables; only a verdict is about tables of this size.
        let bound = match point.verdict.as_deref() {
            Some("unknown") => "unknown: the bound does not apply",
            Some(verdict) => verdict,
            None => "none",
        };
        table.row([
            TableCell::from(point.series.clone()),
            TableCell::from(point.label.clone()),
            TableCell::from(Prose::from(point.accuracy.percent())).with_evidence(Evidence::Measured),
            TableCell::from(prediction),
            TableCell::from(bound),
            TableCell::from(format!("{:.1}%", 100.0 * point.chance_accuracy)),
            TableCell::from(point.accuracy.learned_text()),
            TableCell::code(stack.clone()),
            TableCell::code(task.clone()),
        ]);
    }
    table
}

/// With more series than this, the paragraph does not describe each of them.
const MAX_DESCRIBED_SERIES: usize = 12;

/// The conclusion. Its paragraph begins with `question`, then compares each prediction with the results, then describes each series.
pub fn conclude(points: &[ComparisonPoint], question: &str) -> Conclusion {
    let mut paragraph = Prose::new().strong(format!("{question} "));
    let mut predictions: Vec<(Prediction, &str)> = Vec::new();
    for prediction in points.iter().filter_map(|point| point.prediction) {
        if !predictions.contains(&prediction) {
            predictions.push(prediction);
            let predicted: Vec<&ComparisonPoint> =
                points.iter().filter(|point| point.prediction == Some(prediction)).collect();
            paragraph = describe_prediction(paragraph, prediction, &predicted);
        }
    }
    let names = distinct_names(points, |point| &point.series);
    if names.len() <= MAX_DESCRIBED_SERIES {
        for name in names {
            let series: Vec<&ComparisonPoint> = points.iter().filter(|point| point.series == name).collect();
            paragraph = describe_series(paragraph.code(name).text(": "), &series);
        }
    }
    let predictions = points.iter().filter(|point| point.prediction.is_some()).count();
    let contradictions: Vec<String> = points.iter().filter_map(describe_contradiction).collect();
    let summary_line = match predictions {
        0 => "no prediction".to_owned(),
        _ => format!("{} of {predictions} predictions held", predictions - contradictions.len()),
    };
    Conclusion { paragraph, summary_line, contradictions, ..Conclusion::default() }
}

/// Compares one prediction with the results of its points.
fn describe_prediction(
    paragraph: Prose,
    (prediction, reason): (Prediction, &str),
    points: &[&ComparisonPoint],
) -> Prose {
    let count = points.iter().filter(|point| point.is_learned()).count();
    let means = points.iter().map(|point| point.accuracy.mean);
    let [low, high] = [means.clone().fold(f64::INFINITY, f64::min), means.fold(0.0, f64::max)]
        .map(|mean| format!("{:.1}%", 100.0 * mean));
    let range = if low == high { low } else { format!("{low} to {high}") };
    let result = match (points.len(), count) {
        (1, 0) => "not learned".to_owned(),
        (1, _) => "learned".to_owned(),
        (_, 0) => format!("none of {} learned", points.len()),
        (all, count) if all == count => format!("all {all} learned"),
        (all, count) => format!("{count} of {all} learned"),
    };
    paragraph
        .text(format!("Predicted: {} ({reason}). Measured: {result}, ", prediction.name()))
        .number(range, Evidence::Measured)
        .text(". ")
}

/// Lists the points of one series, or the lowest and the highest if there are more than three.
fn describe_series(paragraph: Prose, series: &[&ComparisonPoint]) -> Prose {
    let text = |point: &ComparisonPoint| format!("{} {}", point.accuracy.percent(), point.label);
    // Among equal points the first.
    let extreme_point =
        |sign: f64| series.iter().rev().max_by(|a, b| (sign * a.accuracy.mean).total_cmp(&(sign * b.accuracy.mean)));
    let description = match series {
        [_, _, _, _, ..] => {
            let ends = extreme_point(-1.0)
                .zip(extreme_point(1.0))
                .map(|(low, high)| format!("from {} to {}", text(low), text(high)));
            ends.unwrap_or_default()
        }
        points => points.iter().map(|point| text(point)).collect::<Vec<String>>().join(", "),
    };
    paragraph.number(description, Evidence::Measured).text(". ")
}

/// A sentence about a point that contradicts its prediction.
fn describe_contradiction(point: &ComparisonPoint) -> Option<String> {
    let (prediction, reason) = point.prediction.filter(|_| point.contradicts_prediction())?;
    let ComparisonPoint { series, label, accuracy, .. } = point;
    let (percent, seeds) = (accuracy.percent(), accuracy.learned_text());
    Some(if prediction == Prediction::Learned {
        let threshold = 100.0 * LEARNED_ACCURACY;
        format!("{series} {label}: predicted learned ({reason}); {seeds} seeds reached {threshold}% ({percent}).")
    } else {
        format!(
            "{series} {label}: predicted not learned ({reason}); {seeds} seeds learned it ({percent}): at this size a shortcut must exist."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::seed_runs::group_by_setting;
    use super::super::seed_runs::tests::record;
    use super::*;

    #[test]
    fn conclusion_compares_predictions_with_results() {
        let records = [
            record("full", "parity", 0, 1e-3, &[995]),
            record("gdn", "parity", 0, 1e-3, &[600]),
            record("gdn", "parity", 1, 1e-3, &[700]),
        ];
        let settings = group_by_setting(&records);
        let point = |index: usize, position: f64| {
            ComparisonPoint::new(&settings[index], 1, "line", position, format!("at {position}"))
        };
        let as_predicted = [
            point(0, 1.0).with_prediction(Prediction::Learned, "a construction"),
            point(1, 2.0).with_prediction(Prediction::NotLearned, "the rungs"),
        ];
        let conclusion = conclude(&as_predicted, "Does it?");
        assert_eq!(conclusion.summary_line, "2 of 2 predictions held");
        assert_eq!(
            conclusion.paragraph.plain_text(),
            "Does it? Predicted: learned (a construction). Measured: learned, 99.5%. Predicted: not learned (the rungs). \
             Measured: not learned, 65.0%. \
             line: 99.5% at 1, 65.0% (60.0 to 70.0) at 2. "
        );
        assert!(conclusion.contradictions.is_empty());
        let contradicting = [
            point(0, 1.0).with_prediction(Prediction::NotLearned, "the rungs"),
            point(1, 2.0).with_prediction(Prediction::Learned, "a construction"),
            point(1, 3.0),
            point(1, 4.0),
        ];
        let conclusion = conclude(&contradicting, "Does it?");
        assert_eq!((conclusion.summary_line.as_str(), conclusion.contradictions.len()), ("0 of 2 predictions held", 2));
        assert!(conclusion.contradictions[0].contains("a shortcut must exist"), "{:?}", conclusion.contradictions);
        let text = conclusion.paragraph.plain_text();
        assert!(text.contains("line: from 65.0% (60.0 to 70.0) at 2 to 99.5% at 1. "), "{text}");
        assert_eq!(conclude(&[point(0, 1.0)], "Does it?").summary_line, "no prediction");
    }

    #[test]
    fn one_seed_of_three_refutes_not_learned_and_does_not_confirm_learned() {
        let records: Vec<_> = [(0, 998), (1, 993), (2, 91)]
            .into_iter()
            .map(|(seed, right)| record("deltanet full", "funccomp{hops=1,m=16}", seed, 1e-3, &[right]))
            .collect();
        let contradictions = |records: &[rung_train::run::RunRecord], prediction: Prediction| {
            let settings = group_by_setting(records);
            conclude(
                &[ComparisonPoint::new(&settings[0], 1, "line", 1.0, "here").with_prediction(prediction, "it")],
                "?",
            )
            .contradictions
            .len()
        };
        assert_eq!(
            (contradictions(&records, Prediction::NotLearned), contradictions(&records, Prediction::Learned)),
            (1, 0),
            "two of three learned it"
        );
        assert_eq!(
            (contradictions(&records[1..], Prediction::NotLearned), contradictions(&records[1..], Prediction::Learned)),
            (1, 1),
            "one of two is not most"
        );
        assert_eq!(
            (contradictions(&records[2..], Prediction::NotLearned), contradictions(&records[2..], Prediction::Learned)),
            (0, 1)
        );
    }

    #[test]
    fn contradicted_predictions_are_open_dots_in_the_rows_of_their_series() {
        let records = [record("full", "parity", 0, 1e-3, &[995]), record("gdn", "parity", 0, 1e-3, &[600])];
        let settings = group_by_setting(&records);
        let point = |index: usize| {
            ComparisonPoint::new(&settings[index], 1, format!("row {index}"), 1.0, "here")
                .with_prediction(Prediction::Learned, "it")
        };
        let figure = ComparisonFigure { file: "f", title: "t", axis: AxisKind::Names, proved_line: None, caption: "" };
        let chart = dot_chart(&[point(0), point(1)], &figure);
        let dot = |row, mean| Dot::new(row, mean).with_spread(mean, mean);
        let expected = DotChart::new("t", accuracy_axis(), &["row 0", "row 1"]).with_evidence(Evidence::Measured);
        assert_eq!(chart, expected.series("here", vec![dot(0, 0.995), dot(1, 0.6).open()]));
    }
}
