//! Both ways: where recurrences and hybrids win.
//!
//! The hierarchy of hops is one order among stacks; here is another. The parity of bits and products of permutations must be kept by a
//! state that every token changes; parity-conditioned retrieval needs such a state and a look-up as well.
//!
//! The prediction: a delta rule keeps parity if its transitions may have negative eigenvalues (a reflection changes a sign), and S3 if
//! it also takes two micro-steps per token (two reflections make a rotation). With eigenvalues from 0 to 1 it keeps neither, and
//! neither does attention. A state that keeps parity, then a full layer, does parity-conditioned retrieval. Nothing is said about S5.
//!
//! Texts grow in training, and the last question is about texts longer than any of those: a rule that was learned goes on, a table of
//! short texts does not.

use rung_theory::task;

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, conclude, render};
use super::table::{ResultCell, SeedSpread, cells};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::figure::Scale;
use rung_train::run::RunRecord;
use rung_train::run::accuracy::AnswerCount;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "tracking",
    title: "Both ways: where recurrences and hybrids win",
    chapter: ReportChapter::Open,
    sweeps: [
        include_str!("tracking-smoke.toml"),
        include_str!("tracking-quick.toml"),
        include_str!("tracking-quick.toml"),
    ],
    render: tracking,
};

/// What is tracked: how its tasks begin, what it is called, its figure's files, and the figure's title.
const TRACKED: [(&str, &str, &str, &str); 4] = [
    ("parity{", "parity", "tracking-parity", "Parity, by the length of the text"),
    ("word{group=s3", "word s3", "tracking-s3", "Products in S3, by the length of the text"),
    ("word{group=s5", "word s5", "tracking-s5", "Products in S5, by the length of the text"),
    (
        "parity-retrieval",
        "parity-retrieval",
        "tracking-retrieval",
        "Parity-conditioned retrieval, by the length of the text",
    ),
];

fn tracking(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let cells = cells(records);
    // What is said is about the length that was never trained.
    let mut ends = Vec::new();
    for (start, what, file, title) in TRACKED {
        let own = cells.iter().filter(|cell| cell.first().config.task.starts_with(start));
        let lines: Vec<Vec<ComparisonPoint>> = own.map(|cell| by_length(cell, what)).collect();
        ends.extend(lines.iter().filter_map(|line| line.last().cloned()));
        let points: Vec<ComparisonPoint> = lines.into_iter().flatten().collect();
        if points.is_empty() {
            continue;
        }
        let view = ComparisonFigure {
            file,
            title,
            along: AxisKind::Measure("tokens", Scale::Log2),
            proved: None,
            caption: "Right answers after training at each length, and, at the last point, at a length that was never trained. Bars go from the \
                      worst seed to the best.",
        };
        render(&points, &view, page);
    }
    conclude(&ends, "Which layers keep what every token changes?")
}

/// Whether a cell's layers should keep what its task asks for; none where nothing is known.
fn predicted(cell: &ResultCell<'_>) -> Option<(bool, &'static str)> {
    let config = &cell.first().config;
    let plan = cell.plan();
    let mixers = plan.layers.iter().flat_map(|layer| layer.mixers.iter());
    let reflections = mixers.map(|mixer| mixer.facts().reflections).max().unwrap_or_default();
    let (reflects, turns) = (reflections > 0, reflections > 1);
    let full = plan.layers.iter().any(rung_theory::stack::Layer::is_full);
    Some(match config.task.as_str() {
        task if task.starts_with("parity{") && reflects => (true, "negative eigenvalues"),
        task if task.starts_with("parity{") => (false, "no negative eigenvalues"),
        task if task.starts_with("word{group=s3") && turns => (true, "two reflections a token make a rotation"),
        task if task.starts_with("word{group=s3") => (false, "fewer than two reflections a token"),
        task if task.starts_with("parity-retrieval") && reflects && full => (true, "constructed"),
        _ => return None,
    })
}

/// Accuracy at each length: the last look at each stage of training, and the last evaluation.
fn by_length(cell: &ResultCell<'_>, what: &str) -> Vec<ComparisonPoint> {
    let (config, series) = (&cell.first().config, cell.first().config.stack.clone());
    let point = |length: usize| {
        ComparisonPoint::of(cell, 1, series.clone(), length as f64, format!("on {what} at {length} tokens"))
    };
    let at_stage = |stage: usize| {
        let length = task::parse(&config.curriculum[stage].task).ok()?.length();
        let last =
            |record: &&RunRecord| record.evaluations.iter().rfind(|evaluation| evaluation.stage == stage).cloned();
        let evaluations = cell.records.iter().filter_map(last);
        let shares: Vec<f64> =
            evaluations.filter_map(|evaluation| evaluation.accuracy.get(&1).map(AnswerCount::mean)).collect();
        (!shares.is_empty()).then(|| point(length).found(SeedSpread::of(shares.into_iter())))
    };
    let mut points: Vec<ComparisonPoint> = (0..config.curriculum.len()).filter_map(at_stage).collect();
    let end = point(cell.first().facts.tokens);
    points.push(match predicted(cell) {
        Some((learned, by)) => end.predicted(learned, by),
        None => end,
    });
    points
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::record;
    use super::*;

    #[test]
    fn a_separation_is_told_and_so_is_its_absence() {
        let run = |stack: &str, task: &str, right| record(stack, task, 0, 1e-3, &[right]);
        let verdict = |records: &[RunRecord]| {
            let points: Vec<ComparisonPoint> = cells(records).iter().flat_map(|cell| by_length(cell, "it")).collect();
            conclude(&points, "")
        };
        let (plain, signed) = ("deltanet", "deltanet{negative=yes}");
        let (parity, permutations) = ("parity{answer=every}", "word{group=s3}");
        let fine = verdict(&[
            run(plain, parity, 510),
            run("full", parity, 600),
            run(signed, parity, 1000),
            run(signed, permutations, 300),
            run("deltaproduct{steps=2}", permutations, 999),
            run("deltaproduct{steps=4}", "word{group=s5}", 999),
        ]);
        assert_eq!((fine.line.as_str(), fine.contradictions.len()), ("5 of 5 predictions held", 0));
        let odd = verdict(&[
            run(plain, parity, 1000),
            run(signed, parity, 700),
            run("deltaproduct{steps=1}", permutations, 995),
            run("deltanet{negative=yes} full", "parity-retrieval", 995),
        ]);
        assert_eq!((odd.line.as_str(), odd.contradictions.len()), ("1 of 4 predictions held", 3));
    }
}
