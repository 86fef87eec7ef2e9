//! Tracking: which layers keep a state that every token changes?
//!
//! One layer, on the parity of bits and on products in S3, the permutations of three things; the answer is asked at every token.
//! The prediction: a delta rule keeps parity if its transitions may have negative eigenvalues (a reflection changes a sign), and S3 if
//! it also takes two micro-steps per token (two reflections make a rotation). With eigenvalues from 0 to 1 it keeps neither, and
//! neither does attention.
//!
//! Texts grow in training, and the last question is about texts longer than any of those: a rule that was learned goes on, a table of
//! short texts does not.

use rung_theory::spec::Value;
use rung_theory::stack::{Defaults, Mixer, Plan};
use rung_theory::task;

use super::table::{Cell, LEARNED, Spread, cells};
use super::{Chapter, Experiment, Page, Reading};
use crate::Evidence;
use crate::chapter::figure_files;
use crate::figure::{AxisSpec, LineChart, Point, Scale, Series};
use crate::report::{Cell as TableCell, Column, Figure, Prose, Table};
use crate::run::Record;
use crate::run::tally::Tally;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "tracking",
    title: "Tracking: a state that every token changes",
    chapter: Chapter::Open,
    sweeps: [
        include_str!("tracking-smoke.toml"),
        include_str!("tracking-quick.toml"),
        include_str!("tracking-full.toml"),
    ],
    show: tracking,
};

/// What is tracked: the first word of the task.
const TRACKED: [(&str, &str); 2] = [("parity", "parity"), ("word", "S3")];

fn tracking(records: &[Record], page: &mut Page<'_>) -> Reading {
    let cells = cells(records);
    for (start, what) in TRACKED {
        let own: Vec<&Cell<'_>> = cells.iter().filter(|cell| cell.any().config.task.starts_with(start)).collect();
        if own.is_empty() {
            continue;
        }
        let chart = chart(what, &own);
        let name = format!("tracking-{start}");
        page.artefacts.extend(figure_files(&name, &chart));
        let caption = "Right answers at every token, against the length of the text: after training at that length, and, at the last \
                       point, at a length that was never trained. Bars go from the worst seed to the best.";
        page.chapter.figure(Figure::new(&chart, caption, page.command.clone(), format!("{name}.csv")));
    }
    page.chapter.table(table(&cells));
    reading(&cells)
}

/// Whether a cell's layer should keep what its task asks for.
fn predicted(cell: &Cell<'_>) -> bool {
    let config = &cell.any().config;
    let plan = Plan::parse(&config.stack, &Defaults::default());
    let keeps = |mixer: &Mixer| {
        let negative = mixer.call().options.contains(&("negative".to_owned(), Value::Word("yes".to_owned())));
        negative && (config.task.starts_with("parity") || mixer.number("steps").is_some_and(|steps| steps > 1))
    };
    plan.is_ok_and(|plan| plan.layers.iter().flat_map(|layer| layer.mixers.iter()).any(keeps))
}

/// Accuracy at each length: the last look at each stage of training, and the last evaluation.
fn by_length(cell: &Cell<'_>) -> Vec<(usize, Spread)> {
    let config = &cell.any().config;
    let at_stage = |stage: usize| {
        let length = task::parse(&config.curriculum[stage].task).ok()?.length();
        let last = |record: &&Record| record.looks.iter().rfind(|look| look.stage == stage).cloned();
        let looks = cell.records.iter().filter_map(last);
        let shares: Vec<f64> = looks.filter_map(|look| look.accuracy.get(&1).map(Tally::mean)).collect();
        (!shares.is_empty()).then(|| (length, Spread::of(shares.into_iter())))
    };
    let stages = (0..config.curriculum.len()).filter_map(at_stage);
    stages.chain([(cell.any().facts.tokens, cell.accuracy(1))]).collect()
}

fn chart(what: &str, cells: &[&Cell<'_>]) -> LineChart {
    let mut chart = LineChart::new(
        format!("One layer on {what}, by the length of the text"),
        AxisSpec::new("tokens", Scale::Log2),
        AxisSpec::new("right answers", Scale::Linear).from_to(0.0, 1.02),
    );
    for (index, cell) in cells.iter().enumerate() {
        // Side by side, so that bars do not cover each other.
        let aside = 1.0 + 0.02 * (index as f64 - (cells.len() as f64 - 1.0) / 2.0);
        let point = |(length, Spread { mean, low, high }): (usize, Spread)| {
            Point::new(length as f64 * aside, mean).between(low, high)
        };
        let points = by_length(cell).into_iter().map(point).collect();
        let says = if predicted(cell) { "should keep it" } else { "should not" };
        chart = chart.series(Series::line_and_points(format!("{}: {says}", cell.any().config.stack), points));
    }
    chart
}

fn table(cells: &[Cell<'_>]) -> Table {
    let columns = [
        Column::text("stack"),
        Column::text("asked at the end"),
        Column::text("predicted"),
        Column::number("at the longest trained length"),
        Column::number("at the end, mean over seeds (worst to best)"),
        Column::number("a guess"),
        Column::number("seeds"),
        Column::number("rate (of)"),
    ];
    let mut table = Table::new("Tracking: every layer and task", columns);
    for cell in cells {
        let (record, lengths) = (cell.any(), by_length(cell));
        let trained = lengths.iter().rev().nth(1).map_or_else(|| "-".to_owned(), |(_, spread)| spread.percent());
        table.row([
            TableCell::code(record.config.stack.clone()),
            TableCell::code(record.config.task.clone()),
            TableCell::from(if predicted(cell) { "kept" } else { "not kept" }),
            TableCell::from(Prose::from(trained)).known(Evidence::Measured),
            TableCell::from(Prose::from(cell.accuracy(1).percent())).known(Evidence::Measured),
            TableCell::from(format!("{:.1}%", 100.0 * record.facts.baseline)),
            TableCell::from(cell.records.len().to_string()),
            TableCell::from(format!("{} ({})", record.config.train.rate, cell.rates.len())),
        ]);
    }
    table
}

fn reading(cells: &[Cell<'_>]) -> Reading {
    let mut reading = Reading::default();
    let (mut paragraph, mut lines) = (Prose::new(), Vec::new());
    for (start, what) in TRACKED {
        let own = || cells.iter().filter(|cell| cell.any().config.task.starts_with(start));
        let worst = own().filter(|cell| predicted(cell)).map(|cell| cell.accuracy(1).low).reduce(f64::min);
        let best = own().filter(|cell| !predicted(cell)).map(|cell| cell.accuracy(1).high).reduce(f64::max);
        for cell in own() {
            let (tokens, spread) = (cell.any().facts.tokens, cell.accuracy(1));
            let (should, does) = (predicted(cell), spread.mean >= LEARNED);
            paragraph = paragraph
                .code(cell.any().config.stack.clone())
                .text(if should { " should keep " } else { " should not keep " })
                .text(format!("{what}, and at {tokens} tokens has "))
                .number(spread.percent(), Evidence::Measured)
                .text(if should == does { "; " } else { ", against the prediction; " });
            if should != does {
                let why = if should {
                    "training did not find the weights in every run"
                } else {
                    "at this length something else must do"
                };
                let (stack, percent) = (&cell.any().config.stack, spread.percent());
                reading.contradictions.push(format!("{stack} has {percent} on {what} at {tokens} tokens: {why}."));
            }
        }
        if let (Some(worst), Some(best)) = (worst, best) {
            let word = if worst >= LEARNED && best < LEARNED { "separated" } else { "not separated" };
            let [worst, best] = [worst, best].map(|share| 100.0 * share);
            lines.push(format!("{what} {word} (worst {worst:.1}% where it should be kept, best {best:.1}% where not)"));
        }
    }
    reading.paragraph = paragraph.text(match reading.contradictions.len() {
        0 => "no layer contradicts the prediction.".to_owned(),
        count => format!("{count} results do not fit the prediction; they are listed below."),
    });
    reading.line = lines.join("; ");
    reading
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::record;
    use super::*;

    #[test]
    fn a_separation_is_told_and_so_is_its_absence() {
        let run = |stack: &str, task: &str, right| record(stack, task, 0, 1e-3, &[right]);
        let (plain, signed) = ("deltanet", "deltanet{negative=yes}");
        let (parity, permutations) = ("parity{answer=every}", "word{group=s3}");
        let fine = [
            run(plain, parity, 510),
            run("full", parity, 600),
            run(signed, parity, 1000),
            run(signed, permutations, 300),
            run("deltaproduct{steps=2}", permutations, 999),
        ];
        let fine = reading(&cells(&fine));
        assert!(fine.contradictions.is_empty(), "{:?}", fine.contradictions);
        assert!(fine.line.starts_with("parity separated") && fine.line.contains("; S3 separated"), "{}", fine.line);
        let odd = [run(plain, parity, 1000), run(signed, parity, 700), run("deltaproduct{steps=1}", permutations, 995)];
        let odd = reading(&cells(&odd));
        assert!(odd.line.starts_with("parity not separated"), "{}", odd.line);
        assert_eq!(odd.contradictions.len(), 3, "{:?}", odd.contradictions);
    }
}
