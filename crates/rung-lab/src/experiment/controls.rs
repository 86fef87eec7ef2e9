//! Controls: is a stack that fails one hop well trained, and would anything but a full layer help?
//!
//! A stack one rung short that does not learn the last hop shows little by itself: it may be trained badly. Here the same stacks are
//! trained for longer and made wider, and given one more full layer. Its failure means something if it learns every lower hop, if
//! neither time nor width brings the last one, and if one more full layer does. Without these a low number is called "training did
//! not find it".

use super::staircase::{ShortcutScore, StaircaseCell};
use super::table::{LEARNED, ResultCell, SeedSpread, cells};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use crate::artefact::figure_files;
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, Dot, DotChart, Scale};
use rung_figure::report::{Column, Figure, Prose, Table, TableCell};
use rung_train::run::RunRecord;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "controls",
    title: "Controls: what a failure means",
    chapter: ReportChapter::Measured,
    sweeps: [
        include_str!("controls-smoke.toml"),
        include_str!("controls-quick.toml"),
        include_str!("controls-full.toml"),
    ],
    render: controls,
};

fn controls(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let cells = cells(records);
    let arms = arms(&cells);
    let chart = chart(&arms);
    page.artefacts.extend(figure_files("controls", &chart));
    let caption = "The hop that the layout does not have: more steps and more width against one more full layer. Bars go from the worst \
                   seed to the best.";
    page.chapter.figure(Figure::new(&chart, caption, page.command.clone(), "controls.csv"));
    page.chapter.table(table(&arms));
    conclude(&arms)
}

/// A stack on a task, beside the stack that is one rung short of it.
struct Arm<'a, 'b> {
    cell: &'b ResultCell<'a>,
    short: &'b ResultCell<'a>,
}

impl Arm<'_, '_> {
    /// What differs from the short stack.
    fn change(&self) -> String {
        let [own, base] = [self.cell, self.short].map(ResultCell::first);
        let mut changes = Vec::new();
        let more = own.facts.full_layers - base.facts.full_layers;
        if more > 0 {
            changes.push(format!("{more} more full layer{}", if more > 1 { "s" } else { "" }));
        }
        let times =
            |own: f64, base: f64, what: &str| (own > base).then(|| format!("{:.3} times the {what}", own / base));
        changes.extend(times(own.config.train.steps as f64, base.config.train.steps as f64, "steps"));
        changes.extend(times(width(own), width(base), "width"));
        if changes.is_empty() { "one rung short".to_owned() } else { changes.join(", ").replace(".000", "") }
    }

    fn hops(&self) -> usize {
        self.cell.hops()
    }

    fn within(&self) -> bool {
        self.cell.rungs() >= self.hops()
    }

    fn top(&self) -> SeedSpread {
        self.cell.accuracy(self.hops())
    }

    /// The worst seed's worst lower hop.
    fn lower(&self) -> f64 {
        (1..self.hops()).map(|hops| self.cell.accuracy(hops).low).fold(1.0, f64::min)
    }

    fn loss(&self) -> f64 {
        let top = self.hops() as u16;
        SeedSpread::of(self.cell.records.iter().filter_map(|record| record.losses.get(&top).copied())).mean
    }

    fn shortcut_score(&self) -> Option<ShortcutScore> {
        let cell = self.cell;
        StaircaseCell { full: cell.first().facts.full_layers, hops: self.hops(), cell: Some(cell) }.shortcut_score()
    }

    fn name(&self) -> String {
        format!("L = {}: {}", self.hops(), self.change())
    }
}

fn width(record: &RunRecord) -> f64 {
    let model = &record.config.model;
    model.width.unwrap_or(model.heads * model.head) as f64
}

/// Every stack beside the smallest one on the same task.
fn arms<'a, 'b>(cells: &'b [ResultCell<'a>]) -> Vec<Arm<'a, 'b>> {
    let size = |cell: &ResultCell<'_>| {
        let record = cell.first();
        (record.facts.full_layers, width(record) as u64, record.config.train.steps)
    };
    let mut arms: Vec<Arm<'a, 'b>> = cells
        .iter()
        .filter_map(|cell| {
            let same = cells.iter().filter(|other| other.first().config.task == cell.first().config.task);
            Some(Arm { cell, short: same.min_by_key(|other| size(other))? })
        })
        .collect();
    arms.sort_by_key(|arm| (arm.hops(), size(arm.cell)));
    arms
}

fn chart(arms: &[Arm<'_, '_>]) -> DotChart {
    let names: Vec<String> = arms.iter().map(Arm::name).collect();
    let axis = AxisSpec::new("right answers at the highest hop", Scale::Linear).from_to(0.0, 1.02);
    let dots = arms.iter().enumerate().map(|(row, arm)| {
        let SeedSpread { mean, low, high, .. } = arm.top();
        Dot::new(row, mean).between(low, high)
    });
    let chart = DotChart::new("The highest hop, and what was changed", axis, &names).known(Evidence::Measured);
    chart.series("mean over seeds", dots.collect())
}

fn table(arms: &[Arm<'_, '_>]) -> Table {
    let columns = [
        Column::number("L"),
        Column::number("F"),
        Column::text("change"),
        Column::number("lower hops, worst seed"),
        Column::number("hop L, mean over seeds (worst to best)"),
        Column::number("mark of known shortcuts"),
        Column::number("loss of hop L (of the shortcut)"),
        Column::number("steps"),
        Column::number("seeds"),
    ];
    let mut table = Table::new("Controls: the stack one rung short, and what was changed about it", columns);
    for arm in arms {
        let (record, shortcut) = (arm.cell.first(), arm.shortcut_score());
        let share = |share: f64| format!("{:.1}%", 100.0 * share);
        let floor = shortcut.map_or_else(String::new, |shortcut| format!(" ({:.2})", shortcut.loss));
        table.row([
            TableCell::from(arm.hops().to_string()),
            TableCell::from(record.facts.full_layers.to_string()),
            TableCell::from(arm.change()),
            TableCell::from(share(arm.lower())).known(Evidence::Measured),
            TableCell::from(arm.top().percent()).known(Evidence::Measured),
            TableCell::from(shortcut.map_or_else(|| "–".to_owned(), |shortcut| share(shortcut.accuracy()))),
            TableCell::from(format!("{:.3}{floor}", arm.loss())),
            TableCell::from(record.config.train.steps.to_string()),
            TableCell::from(arm.cell.records.len().to_string()),
        ]);
    }
    table
}

fn conclude(arms: &[Arm<'_, '_>]) -> Conclusion {
    let (mut paragraph, mut contradictions, mut lines) = (Prose::new(), Vec::new(), Vec::new());
    let mut tasks: Vec<usize> = arms.iter().map(Arm::hops).collect();
    tasks.dedup();
    for hops in tasks {
        let own: Vec<&Arm<'_, '_>> = arms.iter().filter(|arm| arm.hops() == hops).collect();
        let (within, short): (Vec<_>, Vec<_>) = own.into_iter().partition(|arm| arm.within());
        let lower = short.iter().map(|arm| arm.lower()).fold(1.0, f64::min);
        let best = short.iter().map(|arm| arm.top().high).fold(0.0, f64::max);
        let helped = within.iter().any(|arm| arm.top().mostly_learned());
        let trained = lower >= LEARNED;
        let word = match (trained && helped, best >= LEARNED) {
            (_, true) => "learned without the layer",
            (true, false) => "not learned without the layer",
            (false, false) => "training did not find it",
        };
        paragraph = paragraph
            .text(format!("{hops} hops, one rung short: lower hops at least "))
            .number(format!("{:.1}%", 100.0 * lower), Evidence::Measured)
            .text(", the last one at most ")
            .number(format!("{:.1}%", 100.0 * best), Evidence::Measured)
            .text(format!(
                " in {} settings; one more full layer {}. ",
                short.len(),
                if helped { "learns it" } else { "did not learn it" }
            ));
        lines.push(format!("{hops} hops: {word}"));
        if word != "not learned without the layer" {
            contradictions.push(format!(
                "{hops} hops: {word} (lower hops {:.1}%, last hop at most {:.1}%).",
                100.0 * lower,
                100.0 * best
            ));
        }
    }
    Conclusion { paragraph, line: lines.join("; "), contradictions, ..Conclusion::default() }
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::record;
    use super::*;

    const TASK: &str = "funccomp{hops=2,m=16,n=[2],mixed=yes,names=levels}";

    fn read(short: &[u64], longer: &[u64], more: &[u64]) -> Conclusion {
        let mut long = record("gated{bits=2} full", TASK, 0, 1e-3, longer);
        long.config.train.steps *= 4;
        let records = [
            record("gated{bits=2} full", TASK, 0, 1e-3, short),
            long,
            record("gated{bits=2} full*2", TASK, 0, 1e-3, more),
        ];
        let cells = cells(&records);
        let arms = arms(&cells);
        let changes: Vec<String> = arms.iter().map(Arm::change).collect();
        assert_eq!(changes, ["one rung short", "4 times the steps", "1 more full layer"]);
        conclude(&arms)
    }

    #[test]
    fn failure_means_something_only_with_its_controls() {
        let clear = read(&[999, 140], &[1000, 150], &[1000, 999]);
        assert_eq!(clear.line, "2 hops: not learned without the layer");
        assert!(clear.contradictions.is_empty());
        assert_eq!(read(&[600, 140], &[1000, 150], &[1000, 999]).line, "2 hops: training did not find it");
        assert_eq!(read(&[999, 140], &[1000, 150], &[1000, 700]).line, "2 hops: training did not find it");
        assert_eq!(read(&[999, 140], &[1000, 995], &[1000, 999]).line, "2 hops: learned without the layer");
    }
}
