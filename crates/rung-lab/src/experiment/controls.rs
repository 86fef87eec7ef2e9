//! Controls: is a stack that fails at the last hop well trained, and does anything but a full layer help?
//!
//! If a stack whose layout allows one hop less than the task does not learn the last hop, the cause may be bad training. Here the same
//! stacks are trained for longer, made wider, and given one more full layer. The failure supports the theory if the stack learns every lower
//! hop, if neither steps nor width bring the last hop, and if one more full layer does. Otherwise the conclusion is "training did not find
//! it".

use super::staircase::{ShortcutScore, StaircaseSquare};
use super::table::{LEARNED, ResultCell, SeedSpread, group_by_setting};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use crate::artefact::figure_files;
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, Dot, DotChart, Scale};
use rung_figure::report::{Column, Figure, Prose, Table, TableCell};
use rung_train::run::RunRecord;

/// Name, sweeps and report of the experiment.
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
    let cells = group_by_setting(records);
    let arms = arms(&cells);
    let chart = chart(&arms);
    page.artefacts.extend(figure_files("controls", &chart));
    let caption = "The hop that the layout does not have: more steps and more width against one more full layer. Bars go from the worst \
                   seed to the best.";
    page.chapter.figure(Figure::new(&chart, caption, page.command.clone(), "controls.csv"));
    page.chapter.table(table(&arms));
    conclude(&arms)
}

/// A stack on a task, beside the smallest stack on the same task, whose layout allows one hop less than the task.
struct ControlArm<'a, 'b> {
    cell: &'b ResultCell<'a>,
    baseline: &'b ResultCell<'a>,
}

impl ControlArm<'_, '_> {
    /// What differs from the baseline.
    fn change(&self) -> String {
        let [record, baseline] = [self.cell, self.baseline].map(ResultCell::first);
        let mut changes = Vec::new();
        let added_layers = record.facts.full_layers - baseline.facts.full_layers;
        if added_layers > 0 {
            changes.push(format!("{added_layers} more full layer{}", if added_layers > 1 { "s" } else { "" }));
        }
        let factor = |value: f64, baseline: f64, quantity: &str| {
            (value > baseline).then(|| format!("{:.3} times the {quantity}", value / baseline))
        };
        changes.extend(factor(record.config.train.steps as f64, baseline.config.train.steps as f64, "steps"));
        changes.extend(factor(width(record), width(baseline), "width"));
        if changes.is_empty() { "one rung short".to_owned() } else { changes.join(", ").replace(".000", "") }
    }

    fn hops(&self) -> usize {
        self.cell.hops()
    }

    /// Whether the layout allows the hops of the task.
    fn is_within_rungs(&self) -> bool {
        self.cell.rungs() >= self.hops()
    }

    /// Accuracy at the highest number of hops.
    fn top_accuracy(&self) -> SeedSpread {
        self.cell.accuracy(self.hops())
    }

    /// The lowest accuracy of any seed on questions of fewer hops.
    fn worst_lower_hop(&self) -> f64 {
        (1..self.hops()).map(|hops| self.cell.accuracy(hops).low).fold(1.0, f64::min)
    }

    /// Mean loss at the highest number of hops.
    fn top_loss(&self) -> f64 {
        let top = self.hops() as u16;
        SeedSpread::new(self.cell.records.iter().filter_map(|record| record.losses.get(&top).copied())).mean
    }

    fn shortcut_score(&self) -> Option<ShortcutScore> {
        let cell = self.cell;
        StaircaseSquare { full_layers: cell.first().facts.full_layers, hops: self.hops(), cell: Some(cell) }
            .shortcut_score()
    }

    fn name(&self) -> String {
        format!("L = {}: {}", self.hops(), self.change())
    }
}

fn width(record: &RunRecord) -> f64 {
    let model = &record.config.model;
    model.width.unwrap_or(model.heads * model.head) as f64
}

/// Pairs every stack with the smallest one on the same task.
fn arms<'a, 'b>(cells: &'b [ResultCell<'a>]) -> Vec<ControlArm<'a, 'b>> {
    let size = |cell: &ResultCell<'_>| {
        let record = cell.first();
        (record.facts.full_layers, width(record) as u64, record.config.train.steps)
    };
    let mut arms: Vec<ControlArm<'a, 'b>> = cells
        .iter()
        .filter_map(|cell| {
            let same_task = cells.iter().filter(|other| other.first().config.task == cell.first().config.task);
            Some(ControlArm { cell, baseline: same_task.min_by_key(|other| size(other))? })
        })
        .collect();
    arms.sort_by_key(|arm| (arm.hops(), size(arm.cell)));
    arms
}

fn chart(arms: &[ControlArm<'_, '_>]) -> DotChart {
    let names: Vec<String> = arms.iter().map(ControlArm::name).collect();
    let axis = AxisSpec::new("right answers at the highest hop", Scale::Linear).from_to(0.0, 1.02);
    let dots = arms.iter().enumerate().map(|(row, arm)| {
        let SeedSpread { mean, low, high, .. } = arm.top_accuracy();
        Dot::new(row, mean).between(low, high)
    });
    let chart = DotChart::new("The highest hop, and what was changed", axis, &names).known(Evidence::Measured);
    chart.series("mean over seeds", dots.collect())
}

fn table(arms: &[ControlArm<'_, '_>]) -> Table {
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
        let percent = |accuracy: f64| format!("{:.1}%", 100.0 * accuracy);
        let shortcut_loss = shortcut.map_or_else(String::new, |shortcut| format!(" ({:.2})", shortcut.loss));
        table.row([
            TableCell::from(arm.hops().to_string()),
            TableCell::from(record.facts.full_layers.to_string()),
            TableCell::from(arm.change()),
            TableCell::from(percent(arm.worst_lower_hop())).known(Evidence::Measured),
            TableCell::from(arm.top_accuracy().percent()).known(Evidence::Measured),
            TableCell::from(shortcut.map_or_else(|| "–".to_owned(), |shortcut| percent(shortcut.accuracy()))),
            TableCell::from(format!("{:.3}{shortcut_loss}", arm.top_loss())),
            TableCell::from(record.config.train.steps.to_string()),
            TableCell::from(arm.cell.records.len().to_string()),
        ]);
    }
    table
}

fn conclude(arms: &[ControlArm<'_, '_>]) -> Conclusion {
    let (mut paragraph, mut contradictions, mut lines) = (Prose::new(), Vec::new(), Vec::new());
    let mut tasks: Vec<usize> = arms.iter().map(ControlArm::hops).collect();
    tasks.dedup();
    for hops in tasks {
        let (within, short): (Vec<_>, Vec<_>) =
            arms.iter().filter(|arm| arm.hops() == hops).partition(|arm| arm.is_within_rungs());
        let lower = short.iter().map(|arm| arm.worst_lower_hop()).fold(1.0, f64::min);
        let best = short.iter().map(|arm| arm.top_accuracy().high).fold(0.0, f64::max);
        let learned_with_layer = within.iter().any(|arm| arm.top_accuracy().mostly_learned());
        let well_trained = lower >= LEARNED;
        let verdict = match (well_trained && learned_with_layer, best >= LEARNED) {
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
                if learned_with_layer { "learns it" } else { "did not learn it" }
            ));
        lines.push(format!("{hops} hops: {verdict}"));
        if verdict != "not learned without the layer" {
            contradictions.push(format!(
                "{hops} hops: {verdict} (lower hops {:.1}%, last hop at most {:.1}%).",
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

    /// The conclusion from the right answers per thousand of three stacks.
    fn conclusion(baseline: &[u64], more_steps: &[u64], one_more_layer: &[u64]) -> Conclusion {
        let mut long = record("gated{bits=2} full", TASK, 0, 1e-3, more_steps);
        long.config.train.steps *= 4;
        let records = [
            record("gated{bits=2} full", TASK, 0, 1e-3, baseline),
            long,
            record("gated{bits=2} full*2", TASK, 0, 1e-3, one_more_layer),
        ];
        let cells = group_by_setting(&records);
        let arms = arms(&cells);
        let changes: Vec<String> = arms.iter().map(ControlArm::change).collect();
        assert_eq!(changes, ["one rung short", "4 times the steps", "1 more full layer"]);
        conclude(&arms)
    }

    #[test]
    fn failure_counts_only_if_all_controls_agree() {
        let as_predicted = conclusion(&[999, 140], &[1000, 150], &[1000, 999]);
        assert_eq!(as_predicted.line, "2 hops: not learned without the layer");
        assert!(as_predicted.contradictions.is_empty());
        assert_eq!(conclusion(&[600, 140], &[1000, 150], &[1000, 999]).line, "2 hops: training did not find it");
        assert_eq!(conclusion(&[999, 140], &[1000, 150], &[1000, 700]).line, "2 hops: training did not find it");
        assert_eq!(conclusion(&[999, 140], &[1000, 995], &[1000, 999]).line, "2 hops: learned without the layer");
    }
}
