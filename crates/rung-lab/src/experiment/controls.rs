//! Controls: is a stack that fails at the last hop well trained, and does anything but a full layer help?
//!
//! If a stack whose layout allows one hop less than the task does not learn the last hop, the cause may be bad training. Here the same
//! stacks are trained for longer, made wider, and given one more full layer. The failure supports the theory if the stack learns every lower
//! hop, if neither steps nor width bring the last hop, and if one more full layer does. Otherwise the conclusion is "training did not find
//! it".

use super::seed_runs::{LEARNED_ACCURACY, SeedRuns, SeedSpread, group_by_setting};
use super::staircase::{ShortcutScore, StaircaseCell};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, Dot, DotChart, Scale};
use rung_figure::report::{Column, Prose, Table, TableCell};
use rung_train::run::RunRecord;

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "controls",
    title: "Controls: whether a failure is due to training",
    chapter: ReportChapter::Measured,
    sweeps: [
        include_str!("controls-smoke.toml"),
        include_str!("controls-quick.toml"),
        include_str!("controls-full.toml"),
    ],
    stack_verdicts: None,
    render: render_controls,
};

fn render_controls(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let settings = group_by_setting(records);
    let arms = control_arms(&settings);
    let chart = chart(&arms);
    let caption = "The hop that the layout does not allow: more steps and more width against one more full layer. Bars go from the worst \
                   seed to the best.";
    output.add_figure("controls", &chart, caption);
    output.chapter.table(table(&arms));
    conclude(&arms)
}

/// A stack on a task, beside the smallest stack on the same task, whose layout allows one hop less than the task.
struct ControlArm<'a, 'b> {
    runs: &'b SeedRuns<'a>,
    baseline: &'b SeedRuns<'a>,
}

impl ControlArm<'_, '_> {
    /// What differs from the baseline.
    fn describe_change(&self) -> String {
        let [record, baseline] = [self.runs, self.baseline].map(SeedRuns::first);
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
        if changes.is_empty() { "one rung fewer than hops".to_owned() } else { changes.join(", ").replace(".000", "") }
    }

    fn hops(&self) -> usize {
        self.runs.hops()
    }

    /// Whether the layout allows the hops of the task.
    fn is_within_rungs(&self) -> bool {
        self.runs.rungs() >= self.hops()
    }

    /// Accuracy at the highest number of hops.
    fn top_accuracy(&self) -> SeedSpread {
        self.runs.accuracy(self.hops())
    }

    /// The lowest accuracy of any seed on questions of fewer hops.
    fn worst_accuracy_on_fewer_hops(&self) -> f64 {
        (1..self.hops()).map(|hops| self.runs.accuracy(hops).low).fold(1.0, f64::min)
    }

    /// Mean loss at the highest number of hops.
    fn top_loss(&self) -> f64 {
        let top = self.hops() as u16;
        SeedSpread::new(self.runs.records.iter().filter_map(|record| record.losses.get(&top).copied())).mean
    }

    fn shortcut_score(&self) -> Option<ShortcutScore> {
        let runs = self.runs;
        StaircaseCell { full_layers: runs.first().facts.full_layers, hops: self.hops(), runs: Some(runs) }
            .shortcut_score()
    }

    fn name(&self) -> String {
        format!("L = {}: {}", self.hops(), self.describe_change())
    }
}

fn width(record: &RunRecord) -> f64 {
    let model = &record.config.model;
    model.width.unwrap_or(model.heads * model.head) as f64
}

/// Pairs every stack with the smallest one on the same task.
fn control_arms<'a, 'b>(settings: &'b [SeedRuns<'a>]) -> Vec<ControlArm<'a, 'b>> {
    let size = |runs: &SeedRuns<'_>| {
        let record = runs.first();
        (record.facts.full_layers, width(record) as u64, record.config.train.steps)
    };
    let mut arms: Vec<ControlArm<'a, 'b>> = settings
        .iter()
        .filter_map(|runs| {
            let same_task = settings.iter().filter(|other| other.first().config.task == runs.first().config.task);
            Some(ControlArm { runs, baseline: same_task.min_by_key(|other| size(other))? })
        })
        .collect();
    arms.sort_by_key(|arm| (arm.hops(), size(arm.runs)));
    arms
}

fn chart(arms: &[ControlArm<'_, '_>]) -> DotChart {
    let names: Vec<String> = arms.iter().map(ControlArm::name).collect();
    let axis = AxisSpec::new("accuracy at the highest hop", Scale::Linear).with_range(0.0, 1.02);
    let dots = arms.iter().enumerate().map(|(row, arm)| {
        let SeedSpread { mean, low, high, .. } = arm.top_accuracy();
        Dot::new(row, mean).with_spread(low, high)
    });
    let chart = DotChart::new("The highest hop, by what was changed", axis, &names).with_evidence(Evidence::Measured);
    chart.series("mean over seeds", dots.collect())
}

fn table(arms: &[ControlArm<'_, '_>]) -> Table {
    let columns = [
        Column::number("L"),
        Column::number("F"),
        Column::text("change"),
        Column::number("fewer hops, worst seed"),
        Column::number("hop L, mean over seeds (worst to best)"),
        Column::number("accuracy of known shortcuts"),
        Column::number("loss of hop L (of the shortcut)"),
        Column::number("steps"),
        Column::number("seeds"),
    ];
    let mut table = Table::new("Controls: the stack with one rung fewer than hops, and changes to it", columns);
    for arm in arms {
        let (record, shortcut) = (arm.runs.first(), arm.shortcut_score());
        let percent = |accuracy: f64| format!("{:.1}%", 100.0 * accuracy);
        let shortcut_loss =
            shortcut.map_or_else(String::new, |shortcut| format!(" ({:.2})", shortcut.loss_without_recall));
        table.row([
            TableCell::from(arm.hops().to_string()),
            TableCell::from(record.facts.full_layers.to_string()),
            TableCell::from(arm.describe_change()),
            TableCell::from(percent(arm.worst_accuracy_on_fewer_hops())).with_evidence(Evidence::Measured),
            TableCell::from(arm.top_accuracy().percent()).with_evidence(Evidence::Measured),
            TableCell::from(shortcut.map_or_else(|| "–".to_owned(), |shortcut| percent(shortcut.accuracy()))),
            TableCell::from(format!("{:.3}{shortcut_loss}", arm.top_loss())),
            TableCell::from(record.config.train.steps.to_string()),
            TableCell::from(arm.runs.records.len().to_string()),
        ]);
    }
    table
}

fn conclude(arms: &[ControlArm<'_, '_>]) -> Conclusion {
    let (mut paragraph, mut contradictions, mut lines) = (Prose::new(), Vec::new(), Vec::new());
    let mut tasks: Vec<usize> = arms.iter().map(ControlArm::hops).collect();
    tasks.dedup();
    for hops in tasks {
        let (within_rungs, beyond_rungs): (Vec<_>, Vec<_>) =
            arms.iter().filter(|arm| arm.hops() == hops).partition(|arm| arm.is_within_rungs());
        let fewer_hops = beyond_rungs.iter().map(|arm| arm.worst_accuracy_on_fewer_hops()).fold(1.0, f64::min);
        let best = beyond_rungs.iter().map(|arm| arm.top_accuracy().high).fold(0.0, f64::max);
        let learned_with_layer = within_rungs.iter().any(|arm| arm.top_accuracy().most_seeds_learned());
        let well_trained = fewer_hops >= LEARNED_ACCURACY;
        let verdict = match (well_trained && learned_with_layer, best >= LEARNED_ACCURACY) {
            (_, true) => "learned without the layer",
            (true, false) => "not learned without the layer",
            (false, false) => "training did not find it",
        };
        paragraph = paragraph
            .text(format!("{hops} hops, one rung fewer: fewer hops at least "))
            .number(format!("{:.1}%", 100.0 * fewer_hops), Evidence::Measured)
            .text(", the last one at most ")
            .number(format!("{:.1}%", 100.0 * best), Evidence::Measured)
            .text(format!(
                " in {} settings; one more full layer {}. ",
                beyond_rungs.len(),
                if learned_with_layer { "learns it" } else { "did not learn it" }
            ));
        lines.push(format!("{hops} hops: {verdict}"));
        if verdict != "not learned without the layer" {
            contradictions.push(format!(
                "{hops} hops: {verdict} (fewer hops {:.1}%, last hop at most {:.1}%).",
                100.0 * fewer_hops,
                100.0 * best
            ));
        }
    }
    Conclusion { paragraph, summary_line: lines.join("; "), contradictions, ..Conclusion::default() }
}

#[cfg(test)]
mod tests {
    use super::super::seed_runs::tests::record;
    use super::*;

    const TASK: &str = "funccomp{hops=2,m=16,n=[2],mixed=yes,names=levels}";

    /// The conclusion from the right answers per thousand of three stacks.
    fn conclusion(baseline: &[u64], more_steps: &[u64], one_more_layer: &[u64]) -> Conclusion {
        let mut more_steps_record = record("gated{bits=2} full", TASK, 0, 1e-3, more_steps);
        more_steps_record.config.train.steps *= 4;
        let records = [
            record("gated{bits=2} full", TASK, 0, 1e-3, baseline),
            more_steps_record,
            record("gated{bits=2} full*2", TASK, 0, 1e-3, one_more_layer),
        ];
        let settings = group_by_setting(&records);
        let arms = control_arms(&settings);
        let changes: Vec<String> = arms.iter().map(ControlArm::describe_change).collect();
        assert_eq!(changes, ["one rung fewer than hops", "4 times the steps", "1 more full layer"]);
        conclude(&arms)
    }

    #[test]
    fn failure_counts_only_if_all_controls_agree() {
        let as_predicted = conclusion(&[999, 140], &[1000, 150], &[1000, 999]);
        assert_eq!(as_predicted.summary_line, "2 hops: not learned without the layer");
        assert!(as_predicted.contradictions.is_empty());
        assert_eq!(
            conclusion(&[600, 140], &[1000, 150], &[1000, 999]).summary_line,
            "2 hops: training did not find it"
        );
        assert_eq!(
            conclusion(&[999, 140], &[1000, 150], &[1000, 700]).summary_line,
            "2 hops: training did not find it"
        );
        assert_eq!(
            conclusion(&[999, 140], &[1000, 995], &[1000, 999]).summary_line,
            "2 hops: learned without the layer"
        );
    }
}
