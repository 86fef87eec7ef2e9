//! Depth: does a stack climb as many hops as its layout has rungs, and not one more?
//!
//! Stacks with F full layers and a layer of bounded state in front, F from 0 up, on L hops of function composition. The prediction:
//! L hops are learnable only if L <= F, where the state holds fewer bits than the first table has and each table is cut by more
//! branches than a layer has heads. A state that could hold the table may save a rung: such stacks are shown beside the others, and
//! are told apart in the reading.

use super::table::{Cell, LEARNED, Spread, cells, outline, show};
use super::{Experiment, Page, Reading};
use crate::Evidence;
use crate::chapter::figure_files;
use crate::figure::{AxisSpec, LineChart, Point, Scale, Series};
use crate::report::{Figure, Prose};
use crate::run::Record;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "depth",
    title: "Depth: one full layer, one hop",
    sweeps: [include_str!("depth-smoke.toml"), include_str!("depth-quick.toml"), include_str!("depth-full.toml")],
    show: depth,
};

fn depth(records: &[Record], page: &mut Page<'_>) -> Reading {
    let cells = cells(records);
    for front in fronts(&cells) {
        let own: Vec<&Cell<'_>> = cells.iter().filter(|cell| front_of(cell) == front).collect();
        let chart = chart(&front, &own);
        let name = format!("depth-{}", front.replace(' ', "-"));
        page.artefacts.extend(figure_files(&name, &chart));
        let caption = Prose::new()
            .text("Share of right answers to questions of L hops, against the number of full layers. Bars go from the worst seed to \
                   the best. Lines without marks are the prediction for large tables: nothing better than a guess below F = L, \
                   everything from there on.");
        page.chapter.figure(Figure::new(&chart, caption, page.command.clone(), format!("{name}.csv")));
    }
    page.chapter.table(show("Depth: every stack and task, at the chosen learning rate", &cells));
    reading(&cells)
}

/// The mixer that stands before the first full layer, or `full` if none does.
fn front_of(cell: &Cell<'_>) -> String {
    let outline = outline(&cell.any().config.stack);
    let first = outline.split([' ', '*']).next().unwrap_or_default();
    first.to_owned()
}

fn fronts(cells: &[Cell<'_>]) -> Vec<String> {
    let mut fronts: Vec<String> = Vec::new();
    for cell in cells {
        let front = front_of(cell);
        if !fronts.contains(&front) {
            fronts.push(front);
        }
    }
    fronts
}

fn chart(front: &str, cells: &[&Cell<'_>]) -> LineChart {
    let title = if front == "full" { "full attention alone".to_owned() } else { format!("{front} in front") };
    let mut chart = LineChart::new(
        format!("Accuracy by hops and full layers, {title}"),
        AxisSpec::new("full layers F", Scale::Whole).from_to(-0.25, 4.25),
        AxisSpec::new("right answers", Scale::Linear).from_to(0.0, 1.02),
    );
    let most = cells.iter().map(|cell| cell.hops()).max().unwrap_or(0);
    for hops in 1..=most {
        let mut points: Vec<Point> = Vec::new();
        let own: Vec<_> = cells.iter().filter(|cell| cell.hops() == hops).collect();
        for cell in &own {
            let Spread { mean, low, high } = cell.accuracy(hops);
            // Side by side, so that bars of different hops do not cover each other.
            let x = cell.any().facts.full_layers as f64 + 0.06 * (hops as f64 - 1.5);
            points.push(Point::new(x, mean).between(low, high));
        }
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        if points.is_empty() {
            continue;
        }
        chart = chart.series(Series::line_and_points(format!("{hops}-hop questions, measured"), points));
        let guess = own.iter().map(|cell| cell.any().facts.baseline).fold(1.0, f64::min);
        let needed = if front == "full" { hops + 1 } else { hops } as f64;
        let step = vec![
            Point::new(0.0, guess),
            Point::new(needed - 0.5, guess),
            Point::new(needed - 0.5, 1.0),
            Point::new(4.0, 1.0),
        ];
        chart = chart.series(Series::line(format!("{hops}-hop questions, predicted"), step));
    }
    chart
}

/// How a stack stands to a number of hops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Its layout has as many rungs.
    Within,
    /// One rung short, and the state cannot hold the first table.
    Short,
    /// One rung short, but the state could hold the first table and so save a rung.
    Roomy,
}

fn place(cell: &Cell<'_>, hops: usize) -> Option<Place> {
    let roomy = cell.any().facts.table_bits.is_none_or(|bits| cell.state_bits() >= bits);
    match hops.checked_sub(cell.rungs()) {
        None | Some(0) => Some(Place::Within),
        Some(1) if roomy => Some(Place::Roomy),
        Some(1) => Some(Place::Short),
        // Further below there is nothing to learn from a failure.
        Some(_) => None,
    }
}

/// The best cell of a place at so many hops.
fn best<'a, 'b>(cells: &'b [Cell<'a>], hops: usize, wanted: Place) -> Option<(&'b Cell<'a>, Spread)> {
    let fitting = cells.iter().filter(|cell| cell.hops() == hops && place(cell, hops) == Some(wanted));
    fitting.map(|cell| (cell, cell.accuracy(hops))).max_by(|a, b| a.1.mean.total_cmp(&b.1.mean))
}

fn reading(cells: &[Cell<'_>]) -> Reading {
    let mut reading = Reading::default();
    let most = cells.iter().map(Cell::hops).max().unwrap_or(0);
    let (mut paragraph, mut lines) = (Prose::new(), Vec::new());
    for hops in 1..=most {
        let [within, short, roomy] = [Place::Within, Place::Short, Place::Roomy].map(|place| best(cells, hops, place));
        let plural = if hops == 1 { "1 hop".to_owned() } else { format!("{hops} hops") };
        if let Some((cell, spread)) = within {
            let verdict = if spread.mean >= LEARNED { "is learned by" } else { "is not learned, at best, by" };
            paragraph = paragraph
                .text(format!("{plural}: within the predicted rungs it {verdict} "))
                .code(cell.outline())
                .text(", ")
                .number(spread.percent(), Evidence::Measured)
                .text("; ");
        }
        if let Some((cell, spread)) = short {
            paragraph = paragraph
                .text(format!("one rung short, with {} of state for a table of ", bits(cell.state_bits())))
                .text(format!("{}, the best is ", bits(cell.any().facts.table_bits.unwrap_or(f64::NAN))))
                .code(cell.outline())
                .text(", ")
                .number(spread.percent(), Evidence::Measured)
                .text(format!(", where a guess scores {:.1}%. ", 100.0 * guess(cell, hops)));
        }
        if let Some((cell, spread)) = roomy {
            let found = cell.records.iter().filter(|record| record.mean(hops as u16) >= LEARNED).count();
            paragraph = paragraph
                .text(format!(
                    "One rung short, with {} of state, which could hold the first table and so save a rung, ",
                    bits(cell.state_bits())
                ))
                .code(cell.outline())
                .text(" reaches ")
                .number(spread.percent(), Evidence::Measured)
                .text(format!(": training found such a shortcut in {found} of {} runs. ", cell.records.len()));
        }
        if let (Some((_, inside)), Some((_, outside))) = (within, short) {
            let clear = inside.mean >= LEARNED && outside.high < 0.5;
            let word = if clear { "separated" } else { "not separated" };
            lines.push(format!(
                "{plural} {word} ({:.1}% within, {:.1}% one rung short)",
                100.0 * inside.mean,
                100.0 * outside.mean
            ));
        }
    }
    reading.contradictions = contradictions(cells);
    let count = reading.contradictions.len();
    paragraph = match count {
        0 => paragraph.text("No stack in this experiment contradicts the prediction."),
        _ => paragraph.text(format!("{count} results do not fit the prediction; they are listed below.")),
    };
    reading.paragraph = paragraph;
    reading.line = lines.join("; ");
    reading
}

fn bits(count: f64) -> String {
    format!("{count:.0} bits")
}

/// What a guess that knows the question scores at so many hops: one over the size of the last table it passes.
pub(super) fn guess(cell: &Cell<'_>, hops: usize) -> f64 {
    let task = rung_theory::task::parse(&cell.any().config.task);
    let sizes = task.ok().and_then(|task| crate::run::record::table_sizes(&*task));
    sizes.and_then(|sizes| sizes.get(hops - 1).copied()).map_or(f64::NAN, |size| 1.0 / f64::from(size))
}

/// Within its rungs and not learned, or beyond them and learned.
pub(super) fn contradictions(cells: &[Cell<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    for cell in cells {
        let record = cell.any();
        for hops in record.accuracy.keys().map(|hops| usize::from(*hops)) {
            let spread = cell.accuracy(hops);
            let (stack, rungs, percent) = (&record.config.stack, cell.rungs(), spread.percent());
            let (steps, rates) = (record.config.train.steps, cell.rates.len());
            if hops <= rungs && spread.mean < LEARNED {
                let tried = format!("{steps} steps, {} seeds, {rates} learning rate(s) tried", cell.records.len());
                let why = match &record.facts.verdict {
                    Some([word, _]) if word == "solved" => {
                        "weights that do it exist, and training did not find them in every run"
                    }
                    _ => "no construction is known for these sizes either",
                };
                found.push(format!(
                    "{stack} has {rungs} rungs, but {hops} hop(s) reached only {percent} ({tried}): {why}."
                ));
            } else if hops > rungs && spread.mean >= LEARNED {
                found.push(format!(
                    "{stack} has {rungs} rungs, yet {hops} hop(s) reached {percent}: at this size a shortcut must exist."
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::record;
    use super::*;

    const TASK: &str = "funccomp{hops=1,m=16}";

    #[test]
    fn a_separation_is_told_and_so_is_its_absence() {
        let within = |right| record("gdn full", TASK, 0, 1e-3, &[right]);
        let beyond = |right| record("gdn{heads=1,key=1,value=1,conv=0}", TASK, 0, 1e-3, &[right]);
        let read = |records: &[Record]| reading(&cells(records));
        let clear = read(&[within(998), beyond(130)]);
        assert_eq!(clear.line, "1 hop separated (99.8% within, 13.0% one rung short)");
        assert!(clear.contradictions.is_empty());
        let failed = read(&[within(700), beyond(130)]);
        assert!(failed.line.contains("not separated"));
        assert!(failed.contradictions[0].contains("training did not find them"), "{:?}", failed.contradictions);
        let roomy = read(&[within(998), beyond(130), record("gdn", TASK, 0, 1e-3, &[996])]);
        assert_eq!(roomy.line, clear.line, "a state that could hold the table says nothing about the rungs");
        assert!(
            roomy.paragraph.plain().contains("found such a shortcut in 1 of 1 runs"),
            "{}",
            roomy.paragraph.plain()
        );
        let passed = read(&[within(998), beyond(995)]);
        assert!(passed.contradictions[0].contains("shortcut"), "{:?}", passed.contradictions);
    }
}
