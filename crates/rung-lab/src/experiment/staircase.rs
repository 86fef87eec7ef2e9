//! The staircase: each full layer adds one hop.
//!
//! One small bounded-state layer and F full layers after it, on L hops of function composition, all trained by one recipe that differs in F
//! and L only. The prediction: L hops are learned for L <= F, and not for L = F + 1, where tables are too large for the state
//! and grow by a larger factor than a layer has heads.
//!
//! A stack of F full layers is trained twice: on up to F hops and on up to F + 1 hops. With more hops it would learn nothing at all, and
//! its failure would show nothing. The prompts of a run mix questions of 1 hop up to the run's maximum, so every cell of the map is
//! measured on a network that was trained on such questions.
//!
//! # The accuracy of known shortcuts
//!
//! A stack whose layout allows L - 1 hops can answer some questions of L hops by shortcuts:
//!
//! - Its state recalls a fraction r of the first table, which saves a hop. Rate distortion bounds r, as in
//!   [`capacity`](super::capacity).
//! - On the other questions, each head of one layer looks up one row group of the last table before the query is known. If there is only
//!   one full layer, it knows the values of the right row group, but not which of them is the answer, and guesses the most frequent.
//!
//! An accuracy below the resulting score can be explained by such shortcuts. A higher accuracy is proved impossible only where
//! `rung decide` says so; at these sizes it mostly does not, because f32 accumulators have many bits.

use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::tables::TableSizes;
use rung_theory::stack::MessageSizeConvention;

use super::capacity::max_accuracy;
use super::seed_runs::{SeedRuns, SeedSpread, chance_accuracy, group_by_setting};
use super::verdicts::StackVerdict;
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, CellFormat, HeatCell, HeatMap, LineChart, Point, Scale, Series};
use rung_figure::report::{Column, Prose, Table, TableCell};
use rung_train::run::record::table_sizes;
use rung_train::run::{AnswerCount, RunRecord};

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "staircase",
    title: "The staircase: one full layer, one hop",
    chapter: ReportChapter::Measured,
    sweeps: [
        include_str!("staircase-smoke.toml"),
        include_str!("staircase-quick.toml"),
        include_str!("staircase-full.toml"),
    ],
    stack_verdicts: Some(decide_stacks),
    render: render_staircase,
};

/// The verdicts of the theory about every cell, for exactly its tables.
fn decide_stacks(records: &[RunRecord]) -> Vec<StackVerdict> {
    let settings = group_by_setting(records);
    let cells = collect_cells(&settings);
    cells.iter().filter_map(|cell| decide_cell(cell.runs?, cell.hops)).collect()
}

fn decide_cell(runs: &SeedRuns<'_>, hops: usize) -> Option<StackVerdict> {
    let sizes = task_table_sizes(runs)?;
    let sizes = sizes.get(..hops)?;
    let ratios = sizes.windows(2).map(|pair| (pair[1] / pair[0]).into()).collect();
    let tables = TableSizes::new(hops, sizes[0].into(), ratios).ok()?;
    let verdict = StackBounds::new(&runs.plan(), MessageSizeConvention::Paper).decide(&tables);
    Some(StackVerdict::new(runs, hops, verdict.name(), verdict.reason()))
}

fn render_staircase(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let settings = group_by_setting(records);
    let cells = collect_cells(&settings);
    let (map, curves) = (heat_map(&cells), learning_curves(&cells));
    output.chapter.table(table(&cells, &output.verdicts));
    let caption = "Accuracy on questions of L hops by F full layers after one bounded-state layer: mean over seeds, and below it the \
                   worst and the best seed. Below the predicted boundary the prediction is learned, above it not learned. Every cell has the same \
                   recipe, width, state, precision and number of steps.";
    let curves_caption = "Learning curves on both sides of the predicted boundary, mean over seeds: as many hops as full layers, and one more.";
    let headline_figures = vec![
        output.figure_with_files("staircase", &map, caption),
        output.figure_with_files("staircase-curves", &curves, curves_caption),
    ];
    Conclusion { headline_figures, ..conclude(&cells) }
}

/// One cell of the heat map: questions of L hops to a stack with F full layers.
pub(super) struct StaircaseCell<'a, 'b> {
    pub(super) full_layers: usize,
    pub(super) hops: usize,
    /// The results of that stack, if it was trained.
    pub(super) runs: Option<&'b SeedRuns<'a>>,
}

impl StaircaseCell<'_, '_> {
    pub(super) fn accuracy(&self) -> Option<SeedSpread> {
        self.runs.map(|runs| runs.accuracy(self.hops))
    }

    /// Whether the layout allows `hops` hops.
    fn is_within_rungs(&self) -> bool {
        self.runs.map_or(self.full_layers, SeedRuns::rungs) >= self.hops
    }

    /// The score of known shortcuts, if the layout allows one hop less than the questions need.
    pub(super) fn shortcut_score(&self) -> Option<ShortcutScore> {
        let runs = self.runs.filter(|runs| runs.rungs() + 1 == self.hops)?;
        ShortcutScore::new(runs, self.hops)
    }
}

/// Accuracy and loss of known shortcuts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ShortcutScore {
    /// The fraction of the first table that the state can recall.
    pub(super) recall: f64,
    /// Accuracy where the state does not recall the entry.
    pub(super) accuracy_without_recall: f64,
    /// Cross-entropy where the state does not recall the entry, in nats.
    pub(super) loss_without_recall: f64,
}

impl ShortcutScore {
    fn new(runs: &SeedRuns<'_>, hops: usize) -> Option<Self> {
        let sizes = task_table_sizes(runs)?;
        let (first, last) = (f64::from(sizes[0]), f64::from(*sizes.get(hops - 1)?));
        let ratio = last / f64::from(*sizes.get(hops.checked_sub(2)?)?);
        let recall = max_accuracy(runs.state_bits() / first, first);
        let (accuracy_without_recall, loss_without_recall) = if hops == 2 {
            (expected_mode_share(sizes[0], sizes[1]), expected_entropy(sizes[0], sizes[1]))
        } else {
            let fraction_prefetched = (runs.first().config.model.heads as f64 / ratio).min(1.0);
            (fraction_prefetched + (1.0 - fraction_prefetched) / last, (1.0 - fraction_prefetched) * last.ln())
        };
        Some(Self { recall, accuracy_without_recall, loss_without_recall })
    }

    /// Accuracy with the help of the state.
    pub(super) fn accuracy(self) -> f64 {
        self.recall + (1.0 - self.recall) * self.accuracy_without_recall
    }
}

/// The expected relative frequency of the most frequent value among `draws` uniform samples of `values` values.
fn expected_mode_share(draws: u32, values: u32) -> f64 {
    let count = draws as usize;
    // The probability that no value is drawn more than `limit` times. It is proportional to the coefficient of x^count in p(x)^values, where p
    // is the Taylor polynomial of exp of degree `limit`.
    let probability_at_most = |limit: usize| {
        let factor: Vec<f64> = (0..=limit)
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
            // Each multiplication also divides by `values`, to avoid overflow; the result below corrects for it.
            power = next;
        }
        let log_factorial: f64 = (1..=count).map(|k| (k as f64).ln()).sum();
        (power[count].ln() + log_factorial + (f64::from(values) - count as f64) * f64::from(values).ln()).exp()
    };
    (0..count).map(|limit| 1.0 - probability_at_most(limit)).sum::<f64>() / f64::from(draws)
}

/// The expected entropy of the histogram of `draws` uniform samples of `values` values, in nats.
fn expected_entropy(draws: u32, values: u32) -> f64 {
    let (n, p) = (f64::from(draws), 1.0 / f64::from(values));
    let mut probability = (1.0 - p).powf(n);
    let mut sum = 0.0;
    for count in 1..=draws {
        let k = f64::from(count);
        probability *= (n - k + 1.0) / k * p / (1.0 - p);
        sum -= probability * (k / n) * (k / n).ln();
    }
    sum * f64::from(values)
}

/// Table sizes of the runs' task.
fn task_table_sizes(runs: &SeedRuns<'_>) -> Option<Vec<u32>> {
    table_sizes(&*rung_theory::task::parse(&runs.first().config.task).ok()?)
}

/// Every cell, F outermost. A cell is measured on the network that was trained on max(L, F) hops.
fn collect_cells<'a, 'b>(settings: &'b [SeedRuns<'a>]) -> Vec<StaircaseCell<'a, 'b>> {
    let max_full_layers = settings.iter().map(|runs| runs.first().facts.full_layers).max().unwrap_or(0);
    let max_hops = settings.iter().map(SeedRuns::hops).max().unwrap_or(0);
    let mut cells = Vec::new();
    for full_layers in 1..=max_full_layers {
        for hops in 1..=max_hops {
            let candidates = settings.iter().filter(|runs| runs.first().facts.full_layers == full_layers);
            let runs = candidates.filter(|runs| runs.hops() >= hops.max(full_layers)).min_by_key(|runs| runs.hops());
            cells.push(StaircaseCell { full_layers, hops, runs });
        }
    }
    cells
}

fn heat_map(cells: &[StaircaseCell<'_, '_>]) -> HeatMap {
    let max_full_layers = cells.iter().map(|cell| cell.full_layers).max().unwrap_or(0);
    let max_hops = cells.iter().map(|cell| cell.hops).max().unwrap_or(0);
    let rows: Vec<String> = (1..=max_hops).rev().map(|hops| format!("L = {hops}")).collect();
    let columns: Vec<String> = (1..=max_full_layers).map(|full_layers| format!("F = {full_layers}")).collect();
    let find_cell = |full_layers: usize, hops: usize| {
        cells.iter().find(|cell| (cell.full_layers, cell.hops) == (full_layers, hops))
    };
    let heat_cell =
        |full_layers: usize, hops: usize| match find_cell(full_layers, hops).and_then(StaircaseCell::accuracy) {
            Some(SeedSpread { mean, low, high, .. }) => {
                HeatCell::new(mean).with_detail(format!("{:.1} to {:.1}", 100.0 * low, 100.0 * high))
            }
            None => HeatCell::default().with_detail("not run"),
        };
    let heat_cells = (1..=max_hops)
        .rev()
        .map(|hops| (1..=max_full_layers).map(|full_layers| heat_cell(full_layers, hops)).collect())
        .collect();
    let title = "Accuracy by full layers and hops";
    let map = HeatMap::new(
        title,
        ("hops of the question", &rows),
        ("full layers after one bounded-state layer", &columns),
        heat_cells,
    );
    let rungs = |full_layers: usize| {
        cells.iter().filter(|cell| cell.full_layers == full_layers && cell.is_within_rungs()).count()
    };
    let boundary = (1..=max_full_layers).map(rungs);
    HeatMap {
        format: CellFormat::PercentOneDecimal,
        ..map.with_evidence(Evidence::Measured).with_boundary(boundary.collect())
    }
}

fn learning_curves(cells: &[StaircaseCell<'_, '_>]) -> LineChart {
    let mut chart = LineChart::new(
        "Learning curves at the predicted boundary",
        AxisSpec::new("training steps", Scale::Linear),
        AxisSpec::new("accuracy", Scale::Linear).with_range(0.0, 1.02),
    );
    for cell in cells.iter().filter(|cell| cell.hops == cell.full_layers || cell.hops == cell.full_layers + 1) {
        let Some(runs) = cell.runs else { continue };
        let evaluations = runs.records.iter().map(|record| record.evaluations.len()).min().unwrap_or(0);
        let group = cell.hops as u16;
        let mean_accuracy = |index: usize| {
            let accuracy =
                |record: &&RunRecord| record.evaluations[index].accuracy.get(&group).map_or(0.0, AnswerCount::accuracy);
            SeedSpread::new(runs.records.iter().map(accuracy)).mean
        };
        let points = (0..evaluations)
            .map(|index| Point::new(runs.first().evaluations[index].step as f64, mean_accuracy(index)))
            .collect();
        let plural = if cell.hops == 1 { "hop" } else { "hops" };
        chart = chart.series(Series::line(format!("F = {}, {} {plural}", cell.full_layers, cell.hops), points));
    }
    chart
}

fn table(cells: &[StaircaseCell<'_, '_>], verdicts: &[StackVerdict]) -> Table {
    let columns = [
        Column::number("F"),
        Column::number("L"),
        Column::text("predicted"),
        Column::number("accuracy, mean over seeds (worst to best)"),
        Column::number("seeds that learned it"),
        Column::number("chance"),
        Column::number("accuracy of known shortcuts"),
        Column::number("loss of L hops (of the shortcut)"),
        Column::text("decided for these tables"),
        Column::number("tokens"),
    ];
    let mut table = Table::new("The staircase: every cell with its prediction and its result", columns);
    for cell in cells {
        let Some((runs, spread)) = cell.runs.zip(cell.accuracy()) else { continue };
        let shortcut = cell.shortcut_score();
        let losses = runs.records.iter().filter_map(|record| record.losses.get(&(cell.hops as u16)).copied());
        let loss = SeedSpread::new(losses).mean;
        let shortcut_loss =
            shortcut.map_or_else(String::new, |shortcut| format!(" ({:.2})", shortcut.loss_without_recall));
        table.row([
            TableCell::from(cell.full_layers.to_string()),
            TableCell::from(cell.hops.to_string()),
            TableCell::from(if cell.is_within_rungs() { "learned" } else { "not learned" }),
            TableCell::from(spread.percent()).with_evidence(Evidence::Measured),
            TableCell::from(spread.learned_text()).with_evidence(Evidence::Measured),
            TableCell::from(format!("{:.1}%", 100.0 * chance_accuracy(runs, cell.hops))),
            TableCell::from(
                shortcut.map_or_else(|| "–".to_owned(), |shortcut| format!("{:.1}%", 100.0 * shortcut.accuracy())),
            ),
            TableCell::from(format!("{loss:.3}{shortcut_loss}")),
            TableCell::from(
                StackVerdict::find(verdicts, runs, cell.hops)
                    .map_or_else(String::new, |verdict| format!("{}: {}", verdict.name, verdict.reason)),
            ),
            TableCell::from(runs.first().facts.tokens.to_string()),
        ]);
    }
    table
}

fn conclude(cells: &[StaircaseCell<'_, '_>]) -> Conclusion {
    let mut paragraph = Prose::new();
    let mut contradictions = Vec::new();
    let measured: Vec<(&StaircaseCell<'_, '_>, SeedSpread)> =
        cells.iter().filter_map(|cell| Some((cell, cell.accuracy()?))).collect();
    let (within_rungs, beyond_rungs): (Vec<_>, Vec<_>) = measured.iter().partition(|(cell, _)| cell.is_within_rungs());
    let learned_count = within_rungs.iter().filter(|(_, spread)| spread.most_seeds_learned()).count();
    paragraph = paragraph.text("Predicted: learned, for L <= F. Measured: ").number(
        format!("{learned_count} of {} cells learned by at least two of three seeds", within_rungs.len()),
        Evidence::Measured,
    );
    for (cell, spread) in within_rungs.iter().filter(|(_, spread)| !spread.most_seeds_learned()) {
        contradictions.push(format!(
            "F = {}, L = {}: predicted learned; learned in {} seeds ({}).",
            cell.full_layers,
            cell.hops,
            spread.learned_text(),
            spread.percent()
        ));
    }
    paragraph = paragraph.text(". Predicted: not learned, for L > F, judged by the best seed. Measured: ");
    let is_below_shortcut = |cell: &StaircaseCell<'_, '_>, spread: &SeedSpread| {
        cell.shortcut_score().is_none_or(|shortcut| spread.high < shortcut.accuracy())
    };
    let confirmed_count = beyond_rungs
        .iter()
        .filter(|(cell, spread)| !spread.any_seed_learned() && is_below_shortcut(cell, spread))
        .count();
    paragraph = paragraph
        .number(format!("{confirmed_count} of {} cells not learned by any seed and below the accuracy of known shortcuts", beyond_rungs.len()), Evidence::Measured)
        .text(
            ". Not learned is a result about training. Impossible would need a proof at this size, and the table says where there is one.",
        );
    for (cell, spread) in
        beyond_rungs.iter().filter(|(cell, spread)| spread.any_seed_learned() || !is_below_shortcut(cell, spread))
    {
        let reason = if spread.any_seed_learned() {
            "one seed learned it"
        } else {
            "the best seed is above the accuracy of known shortcuts"
        };
        contradictions.push(format!(
            "F = {}, L = {}: predicted not learned; {reason} ({}).",
            cell.full_layers,
            cell.hops,
            spread.percent()
        ));
    }
    let summary_line = format!(
        "{learned_count} of {} cells within the rungs learned; {confirmed_count} of {} beyond the rungs not learned",
        within_rungs.len(),
        beyond_rungs.len()
    );
    Conclusion { paragraph, summary_line, contradictions, ..Conclusion::default() }
}

#[cfg(test)]
mod tests {
    use super::super::seed_runs::tests::record;
    use super::*;

    const ONE_HOP: &str = "funccomp{hops=1,m=16,names=levels}";
    const TWO_HOPS: &str = "funccomp{hops=2,m=16,n=[2],mixed=yes,names=levels}";

    /// Records of three seeds; the second accuracy is reached by one seed only.
    fn records(correct_per_thousand: [u64; 4]) -> Vec<RunRecord> {
        let make_record =
            |stack: &str, task: &str, seed: u64, correct: &[u64]| record(stack, task, seed, 1e-3, correct);
        (0..3)
            .flat_map(|seed| {
                [
                    make_record("gated{bits=2} full", ONE_HOP, seed, &correct_per_thousand[..1]),
                    make_record(
                        "gated{bits=2} full",
                        TWO_HOPS,
                        seed,
                        &[999, if seed == 0 { correct_per_thousand[1] } else { 140 }],
                    ),
                    make_record("gated{bits=2} full*2", TWO_HOPS, seed, &correct_per_thousand[2..]),
                ]
            })
            .collect()
    }

    #[test]
    fn cells_are_measured_on_the_network_that_was_trained_on_them() {
        let records = records([998, 140, 997, 996]);
        let settings = group_by_setting(&records);
        let cells = collect_cells(&settings);
        let trained_hops: Vec<_> =
            cells.iter().map(|cell| (cell.full_layers, cell.hops, cell.runs.unwrap().hops())).collect();
        assert_eq!(trained_hops, [(1, 1, 1), (1, 2, 2), (2, 1, 2), (2, 2, 2)]);
        assert_eq!(heat_map(&cells).boundary, [1, 2]);
    }

    #[test]
    fn one_seed_refutes_not_learned_and_two_of_three_confirm_learned() {
        let conclusion = |correct_per_thousand| {
            let records = records(correct_per_thousand);
            conclude(&collect_cells(&group_by_setting(&records)))
        };
        let as_predicted = conclusion([998, 140, 997, 996]);
        assert_eq!(
            as_predicted.summary_line,
            "3 of 3 cells within the rungs learned; 1 of 1 beyond the rungs not learned"
        );
        assert!(as_predicted.contradictions.is_empty());
        let refuted = conclusion([998, 995, 997, 996]);
        assert!(refuted.contradictions[0].contains("one seed learned it"), "{:?}", refuted.contradictions);
        let above_shortcut = conclusion([998, 700, 997, 996]);
        assert!(
            above_shortcut.contradictions[0].contains("above the accuracy of known shortcuts"),
            "{:?}",
            above_shortcut.contradictions
        );
        let not_learned = conclusion([998, 140, 997, 700]);
        assert!(not_learned.contradictions[0].contains("learned in 0 of 3 seeds"), "{:?}", not_learned.contradictions);
    }

    #[test]
    fn shortcut_scores_agree_with_simulation() {
        // Sixteen draws among 32 values: by simulation 14.9% and 2.476 nats.
        assert!((expected_mode_share(16, 32) - 0.149).abs() < 5e-3, "{}", expected_mode_share(16, 32));
        assert!((expected_entropy(16, 32) - 2.476).abs() < 5e-3, "{}", expected_entropy(16, 32));
        assert!((expected_mode_share(1, 7) - 1.0).abs() < 1e-9 && expected_entropy(1, 7).abs() < 1e-9);
        let task = "funccomp{hops=3,m=16,n=[2,3],mixed=yes,names=levels}";
        let mut record = record("gated{bits=2} full*2", task, 0, 1e-3, &[999, 999, 340]);
        record.config.model.heads = 1;
        let records = [record];
        let settings = group_by_setting(&records);
        let shortcut = ShortcutScore::new(&settings[0], 3).unwrap();
        assert!(
            (shortcut.accuracy_without_recall - 0.3403).abs() < 1e-3
                && (shortcut.loss_without_recall - 3.043).abs() < 1e-3,
            "{shortcut:?}"
        );
        assert!((shortcut.recall - 0.488).abs() < 2e-3, "{shortcut:?}");
    }
}
