//! The staircase: one full layer, one hop.
//!
//! F full layers behind one small layer of bounded state, on L hops of function composition, all trained by one recipe that differs
//! in F and L only. The prediction: L hops are learned for L <= F, and not for L = F + 1, where tables are too large for the state
//! and have more branches than a layer has heads.
//!
//! A stack is trained on as many hops as it has full layers, and once more on one hop more: a stack that is several hops
//! short of its prompts learns nothing at all, and its failure would show nothing. A question of fewer hops is asked of the same
//! network, so every square of the map is a question to a network that was trained on it.
//!
//! # The mark
//!
//! What a stack one rung short can score without making the last hop, by the shortcuts that are known: its state recalls a share r of
//! the first table (Shannon's converse, as in [`capacity`](super::capacity)) and so saves a rung; otherwise one layer prefetches as
//! many of the last table's branches as it has heads, or, with a single full layer, knows the values of the branch but not which. A
//! cell below its mark shows no more than such shortcuts give. A cell is impossible only where the program decides so, and at these
//! sizes it mostly cannot: messages of f32 accumulators are wide.

use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::tables::TableSizes;
use rung_theory::stack::Convention;

use super::capacity::max_accuracy;
use super::table::{ResultCell, SeedSpread, cells, guess};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use crate::artefact::figure_files;
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, CellFormat, HeatCell, HeatMap, LineChart, Point, Scale, Series};
use rung_figure::report::{Column, Figure, Prose, Table, TableCell};
use rung_train::run::record::table_sizes;
use rung_train::run::{AnswerCount, RunRecord};

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "staircase",
    title: "The staircase: one full layer, one hop",
    chapter: ReportChapter::Measured,
    sweeps: [
        include_str!("staircase-smoke.toml"),
        include_str!("staircase-quick.toml"),
        include_str!("staircase-full.toml"),
    ],
    render: staircase,
};

fn staircase(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let cells = cells(records);
    let squares = squares(&cells);
    let (map, curves) = (map(&squares), curves(&squares));
    page.artefacts.extend(figure_files("staircase", &map));
    page.artefacts.extend(figure_files("staircase-curves", &curves));
    page.chapter.table(table(&squares));
    let caption = "Right answers to questions of L hops by F full layers behind one bounded-state layer: mean over seeds, and below it the \
                   worst and the best seed. Below the line learned is predicted, above it not learned. Every square has the same \
                   recipe, width, state, precision and number of steps.";
    let figures = [
        Figure::new(&map, caption, page.command.clone(), "staircase.csv"),
        Figure::new(
            &curves,
            "Learning curves on both sides of the line, mean over seeds: as many hops as full layers, and one more.",
            page.command.clone(),
            "staircase-curves.csv",
        ),
    ];
    Conclusion { headline: figures.to_vec(), ..conclude(&squares) }
}

/// One square of the map: L hops asked of a stack with F full layers.
pub(super) struct StaircaseCell<'a, 'b> {
    pub(super) full: usize,
    pub(super) hops: usize,
    /// The network that is asked, if one was trained.
    pub(super) cell: Option<&'b ResultCell<'a>>,
}

impl StaircaseCell<'_, '_> {
    pub(super) fn accuracy(&self) -> Option<SeedSpread> {
        self.cell.map(|cell| cell.accuracy(self.hops))
    }

    fn within(&self) -> bool {
        self.cell.map_or(self.full, ResultCell::rungs) >= self.hops
    }

    /// What the program decides about exactly these tables.
    fn verdict(&self) -> Option<[String; 2]> {
        let cell = self.cell?;
        let sizes = sizes(cell)?;
        let sizes = sizes.get(..self.hops)?;
        let branches = sizes.windows(2).map(|pair| (pair[1] / pair[0]).into()).collect();
        let tables = TableSizes::new(self.hops, sizes[0].into(), branches).ok()?;
        let verdict = StackBounds::new(&cell.plan(), Convention::Paper).decide(&tables);
        Some([verdict.word().to_owned(), verdict.reason()])
    }

    /// What known shortcuts score, where the stack is one rung short.
    pub(super) fn shortcut_score(&self) -> Option<ShortcutScore> {
        let cell = self.cell.filter(|cell| cell.rungs() + 1 == self.hops)?;
        ShortcutScore::of(cell, self.hops)
    }
}

/// What known shortcuts score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ShortcutScore {
    /// The share of the first table that the state can recall.
    pub(super) recalled: f64,
    /// Accuracy without it.
    pub(super) guessed: f64,
    /// Cross-entropy without it, in nats.
    pub(super) loss: f64,
}

impl ShortcutScore {
    fn of(cell: &ResultCell<'_>, hops: usize) -> Option<Self> {
        let sizes = sizes(cell)?;
        let (first, last) = (f64::from(sizes[0]), f64::from(*sizes.get(hops - 1)?));
        let branches = last / f64::from(*sizes.get(hops.checked_sub(2)?)?);
        let recalled = max_accuracy(cell.state_bits() / first, first);
        let (guessed, loss) = if hops == 2 {
            (most_frequent(sizes[0], sizes[1]), entropy(sizes[0], sizes[1]))
        } else {
            let share = (cell.first().config.model.heads as f64 / branches).min(1.0);
            (share + (1.0 - share) / last, (1.0 - share) * last.ln())
        };
        Some(Self { recalled, guessed, loss })
    }

    /// With the help of the state.
    pub(super) fn accuracy(self) -> f64 {
        self.recalled + (1.0 - self.recalled) * self.guessed
    }
}

/// The expected share of the most frequent value among so many uniform draws.
fn most_frequent(draws: u32, values: u32) -> f64 {
    let count = draws as usize;
    // The chance that no value is drawn more than k times: a coefficient of the k-th partial exponential to the power of `values`.
    let at_most = |most: usize| {
        let factor: Vec<f64> = (0..=most)
            .scan(1.0, |term, k| {
                if k > 0 {
                    *term /= k as f64;
                }
                Some(*term)
            })
            .collect();
        let mut power = vec![0.0; count + 1];
        power[0] = 1.0;
        for _ in 0..values {
            let mut next = vec![0.0; count + 1];
            for (i, a) in power.iter().enumerate() {
                for (j, b) in factor.iter().enumerate().take(count + 1 - i) {
                    next[i + j] += a * b / f64::from(values);
                }
            }
            // One factor of 1/values for each draw, taken out below.
            power = next;
        }
        let factorial: f64 = (1..=count).map(|k| (k as f64).ln()).sum();
        (power[count].ln() + factorial + (f64::from(values) - count as f64) * f64::from(values).ln()).exp()
    };
    (0..count).map(|most| 1.0 - at_most(most)).sum::<f64>() / f64::from(draws)
}

/// The expected entropy of the histogram of so many uniform draws, in nats.
fn entropy(draws: u32, values: u32) -> f64 {
    let (n, p) = (f64::from(draws), 1.0 / f64::from(values));
    let mut chance = (1.0 - p).powf(n);
    let mut sum = 0.0;
    for count in 1..=draws {
        let k = f64::from(count);
        chance *= (n - k + 1.0) / k * p / (1.0 - p);
        sum -= chance * (k / n) * (k / n).ln();
    }
    sum * f64::from(values)
}

fn sizes(cell: &ResultCell<'_>) -> Option<Vec<u32>> {
    table_sizes(&*rung_theory::task::parse(&cell.first().config.task).ok()?)
}

/// Every square, F outermost. A square is asked of the network trained on as many hops as it has full layers, or on more if it asks
/// for more.
fn squares<'a, 'b>(cells: &'b [ResultCell<'a>]) -> Vec<StaircaseCell<'a, 'b>> {
    let fulls = cells.iter().map(|cell| cell.first().facts.full_layers).max().unwrap_or(0);
    let most = cells.iter().map(ResultCell::hops).max().unwrap_or(0);
    let mut squares = Vec::new();
    for full in 1..=fulls {
        for hops in 1..=most {
            let own = cells.iter().filter(|cell| cell.first().facts.full_layers == full);
            let cell = own.filter(|cell| cell.hops() >= hops.max(full)).min_by_key(|cell| cell.hops());
            squares.push(StaircaseCell { full, hops, cell });
        }
    }
    squares
}

fn map(squares: &[StaircaseCell<'_, '_>]) -> HeatMap {
    let fulls = squares.iter().map(|square| square.full).max().unwrap_or(0);
    let most = squares.iter().map(|square| square.hops).max().unwrap_or(0);
    let rows: Vec<String> = (1..=most).rev().map(|hops| format!("L = {hops}")).collect();
    let columns: Vec<String> = (1..=fulls).map(|full| format!("F = {full}")).collect();
    let of = |full: usize, hops: usize| squares.iter().find(|square| (square.full, square.hops) == (full, hops));
    let cell = |full: usize, hops: usize| match of(full, hops).and_then(StaircaseCell::accuracy) {
        Some(SeedSpread { mean, low, high, .. }) => {
            HeatCell::new(mean).detailed(format!("{:.1} to {:.1}", 100.0 * low, 100.0 * high))
        }
        None => HeatCell::default().detailed("not run"),
    };
    let cells = (1..=most).rev().map(|hops| (1..=fulls).map(|full| cell(full, hops)).collect()).collect();
    let title = "Right answers by full layers and hops";
    let map =
        HeatMap::new(title, ("hops asked for", &rows), ("full layers behind one bounded-state layer", &columns), cells);
    let line = (1..=fulls).map(|full| squares.iter().filter(|square| square.full == full && square.within()).count());
    HeatMap { letters: CellFormat::Tenths, ..map.known(Evidence::Measured).bounded(line.collect()) }
}

fn curves(squares: &[StaircaseCell<'_, '_>]) -> LineChart {
    let mut chart = LineChart::new(
        "Learning curves at the line",
        AxisSpec::new("training steps", Scale::Linear),
        AxisSpec::new("right answers", Scale::Linear).from_to(0.0, 1.02),
    );
    for square in squares.iter().filter(|square| square.hops == square.full || square.hops == square.full + 1) {
        let Some(cell) = square.cell else { continue };
        let evaluations = cell.records.iter().map(|record| record.evaluations.len()).min().unwrap_or(0);
        let group = square.hops as u16;
        let mean = |at: usize| {
            let share =
                |record: &&RunRecord| record.evaluations[at].accuracy.get(&group).map_or(0.0, AnswerCount::mean);
            SeedSpread::of(cell.records.iter().map(share)).mean
        };
        let points =
            (0..evaluations).map(|at| Point::new(cell.first().evaluations[at].step as f64, mean(at))).collect();
        let plural = if square.hops == 1 { "hop" } else { "hops" };
        chart = chart.series(Series::line(format!("F = {}, {} {plural}", square.full, square.hops), points));
    }
    chart
}

fn table(squares: &[StaircaseCell<'_, '_>]) -> Table {
    let columns = [
        Column::number("F"),
        Column::number("L"),
        Column::text("predicted"),
        Column::number("right answers, mean over seeds (worst to best)"),
        Column::number("seeds that learned it"),
        Column::number("a guess"),
        Column::number("mark of known shortcuts"),
        Column::number("loss of L hops (of the shortcut)"),
        Column::text("decided for these tables"),
        Column::number("tokens"),
    ];
    let mut table = Table::new("The staircase: every square, what is known about it, and what training found", columns);
    for square in squares {
        let Some((cell, spread)) = square.cell.zip(square.accuracy()) else { continue };
        let shortcut = square.shortcut_score();
        let losses = cell.records.iter().filter_map(|record| record.losses.get(&(square.hops as u16)).copied());
        let loss = SeedSpread::of(losses).mean;
        let floor = shortcut.map_or_else(String::new, |shortcut| format!(" ({:.2})", shortcut.loss));
        table.row([
            TableCell::from(square.full.to_string()),
            TableCell::from(square.hops.to_string()),
            TableCell::from(if square.within() { "learned" } else { "not learned" }),
            TableCell::from(spread.percent()).known(Evidence::Measured),
            TableCell::from(spread.share()).known(Evidence::Measured),
            TableCell::from(format!("{:.1}%", 100.0 * guess(cell, square.hops))),
            TableCell::from(
                shortcut.map_or_else(|| "–".to_owned(), |shortcut| format!("{:.1}%", 100.0 * shortcut.accuracy())),
            ),
            TableCell::from(format!("{loss:.3}{floor}")),
            TableCell::from(square.verdict().map_or_else(String::new, |[word, why]| format!("{word}: {why}"))),
            TableCell::from(cell.first().facts.tokens.to_string()),
        ]);
    }
    table
}

fn conclude(squares: &[StaircaseCell<'_, '_>]) -> Conclusion {
    let mut paragraph = Prose::new();
    let mut contradictions = Vec::new();
    let asked: Vec<(&StaircaseCell<'_, '_>, SeedSpread)> =
        squares.iter().filter_map(|square| Some((square, square.accuracy()?))).collect();
    let (within, short): (Vec<_>, Vec<_>) = asked.iter().partition(|(square, _)| square.within());
    let learned = within.iter().filter(|(_, spread)| spread.mostly_learned()).count();
    paragraph = paragraph.text("Predicted: learned, for L <= F. Measured: ").number(
        format!("{learned} of {} squares learned by at least two of three seeds", within.len()),
        Evidence::Measured,
    );
    for (square, spread) in within.iter().filter(|(_, spread)| !spread.mostly_learned()) {
        contradictions.push(format!(
            "F = {}, L = {}: predicted learned; training found it in {} seeds ({}).",
            square.full,
            square.hops,
            spread.share(),
            spread.percent()
        ));
    }
    paragraph = paragraph.text(". Predicted: not learned, for L > F, judged by the best seed. Measured: ");
    let below = |square: &StaircaseCell<'_, '_>, spread: &SeedSpread| {
        square.shortcut_score().is_none_or(|shortcut| spread.high < shortcut.accuracy())
    };
    let held = short.iter().filter(|(square, spread)| !spread.once_learned() && below(square, spread)).count();
    paragraph = paragraph
        .number(format!("{held} of {} squares not learned by any seed and below their mark", short.len()), Evidence::Measured)
        .text(
            ". Not learned is a finding about training. Cannot would need a proof at this size, and the table says where there is one.",
        );
    for (square, spread) in short.iter().filter(|(square, spread)| spread.once_learned() || !below(square, spread)) {
        let word = if spread.once_learned() { "one seed learned it" } else { "the best seed is above its mark" };
        contradictions.push(format!(
            "F = {}, L = {}: predicted not learned; {word} ({}).",
            square.full,
            square.hops,
            spread.percent()
        ));
    }
    let line = format!(
        "{learned} of {} squares within the rungs learned; {held} of {} one rung short not learned",
        within.len(),
        short.len()
    );
    Conclusion { paragraph, line, contradictions, ..Conclusion::default() }
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::record;
    use super::*;

    const ONE: &str = "funccomp{hops=1,m=16,names=levels}";
    const TWO: &str = "funccomp{hops=2,m=16,n=[2],mixed=yes,names=levels}";

    fn stairs(right: [u64; 4]) -> Vec<RunRecord> {
        let make = |stack: &str, task: &str, seed: u64, right: &[u64]| record(stack, task, seed, 1e-3, right);
        (0..3)
            .flat_map(|seed| {
                [
                    make("gated{bits=2} full", ONE, seed, &right[..1]),
                    make("gated{bits=2} full", TWO, seed, &[999, if seed == 0 { right[1] } else { 140 }]),
                    make("gated{bits=2} full*2", TWO, seed, &right[2..]),
                ]
            })
            .collect()
    }

    #[test]
    fn squares_are_asked_of_the_network_that_was_trained_on_them() {
        let records = stairs([998, 140, 997, 996]);
        let cells = cells(&records);
        let squares = squares(&cells);
        let found: Vec<_> =
            squares.iter().map(|square| (square.full, square.hops, square.cell.unwrap().hops())).collect();
        assert_eq!(found, [(1, 1, 1), (1, 2, 2), (2, 1, 2), (2, 2, 2)]);
        assert_eq!(map(&squares).boundary, [1, 2]);
    }

    #[test]
    fn one_seed_refutes_and_two_of_three_confirm() {
        let read = |right| {
            let records = stairs(right);
            conclude(&squares(&cells(&records)))
        };
        let clear = read([998, 140, 997, 996]);
        assert_eq!(clear.line, "3 of 3 squares within the rungs learned; 1 of 1 one rung short not learned");
        assert!(clear.contradictions.is_empty());
        let refuted = read([998, 995, 997, 996]);
        assert!(refuted.contradictions[0].contains("one seed learned it"), "{:?}", refuted.contradictions);
        let above = read([998, 700, 997, 996]);
        assert!(above.contradictions[0].contains("above its mark"), "{:?}", above.contradictions);
        let failed = read([998, 140, 997, 700]);
        assert!(failed.contradictions[0].contains("found it in 0 of 3 seeds"), "{:?}", failed.contradictions);
    }

    #[test]
    fn marks_are_what_shortcuts_score() {
        // Sixteen draws among 32 values: by simulation 14.9% and 2.476 nats.
        assert!((most_frequent(16, 32) - 0.149).abs() < 5e-3, "{}", most_frequent(16, 32));
        assert!((entropy(16, 32) - 2.476).abs() < 5e-3, "{}", entropy(16, 32));
        assert!((most_frequent(1, 7) - 1.0).abs() < 1e-9 && entropy(1, 7).abs() < 1e-9);
        let task = "funccomp{hops=3,m=16,n=[2,3],mixed=yes,names=levels}";
        let mut one = record("gated{bits=2} full*2", task, 0, 1e-3, &[999, 999, 340]);
        one.config.model.heads = 1;
        let records = [one];
        let cells = cells(&records);
        let shortcut = ShortcutScore::of(&cells[0], 3).unwrap();
        assert!((shortcut.guessed - 0.3403).abs() < 1e-3 && (shortcut.loss - 3.043).abs() < 1e-3, "{shortcut:?}");
        assert!((shortcut.recalled - 0.488).abs() < 2e-3, "{shortcut:?}");
    }
}
