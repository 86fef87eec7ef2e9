//! A lower bound and training runs at the same size.
//!
//! A bound holds for all weights, a run for those that training found. Here both are about the same stack, precision and size: no weights
//! answer every prompt, and training with four times the steps does not come near; with one more full layer the task is
//! learned. Three tasks: one look-up by a state alone, two hops by one full layer, 2-Sum by one layer of block-sparse attention.
//!
//! Attention is summed from left to right in accumulators of few bits (`full{accumulator=8}`), in training and evaluation, because the
//! bound assumes it. The prompts of function composition are those of the proof: all tables, then one question. Each certificate is
//! written beside the report, for `rung check`.

use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, Dot, DotChart, Scale};
use rung_figure::report::{Column, Prose, Table, TableCell};
use rung_theory::bound::certificate::{conventions, write};
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::tables::TableSizes;
use rung_theory::bound::verdict::Verdict;
use rung_theory::stack::MessageSizeConvention;
use rung_theory::task;
use rung_train::run::RunRecord;
use rung_train::run::record::table_sizes;

use super::seed_runs::{SeedRuns, SeedSpread, group_by_setting};
use super::sparse::summary_bits_and_instance;
use super::verdicts::{CertificateFile, StackVerdict};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use crate::artefact::{Artefact, figure_with_files};

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "certified",
    title: "Proved and measured at the same size",
    chapter: ReportChapter::Measured,
    sweeps: [
        include_str!("certified-smoke.toml"),
        include_str!("certified-quick.toml"),
        include_str!("certified-quick.toml"),
    ],
    stack_verdicts: Some(decide_stacks),
    render: render_certified,
};

/// The verdicts of the theory about each stack and task, with the proofs that exist.
fn decide_stacks(records: &[RunRecord]) -> Vec<StackVerdict> {
    group_by_setting(records).iter().filter_map(decide_stack).collect()
}

/// The verdict about the stack of some runs on the tables of their task, or on 2-Sum.
fn decide_stack(runs: &SeedRuns<'_>) -> Option<StackVerdict> {
    let config = &runs.first().config;
    let Some(sizes) = task::parse(&config.task).ok().and_then(|task| table_sizes(&*task)) else {
        let (_, instance) = summary_bits_and_instance(runs)?;
        let is_impossible = instance.verdict().ok()?.impossible;
        let check = format!(
            "rung sparse --block {} --select {} --bits {} --values {} --blocks {} --same-map",
            instance.block_tokens,
            instance.selected_blocks,
            instance.summary_bits,
            instance.modulus,
            instance.other_blocks
        );
        let name = if is_impossible { "impossible" } else { "unknown" };
        let verdict = StackVerdict::new(runs, runs.hops(), name, "the bound for block-sparse attention");
        return Some(StackVerdict { check: is_impossible.then_some(check), ..verdict });
    };
    let ratios = sizes.windows(2).map(|pair| (pair[1] / pair[0]).into()).collect();
    let tables = TableSizes::new(sizes.len(), sizes[0].into(), ratios).ok()?;
    let decided = StackBounds::new(&runs.plan(), MessageSizeConvention::Register).decide(&tables);
    let verdict = StackVerdict::new(runs, runs.hops(), decided.name(), decided.reason());
    let Verdict::Impossible(bound) = decided else { return Some(verdict) };
    let conventions = conventions(&config.defaults(), MessageSizeConvention::Register);
    let text = format!("{:#}\n", write(&bound.certificate, &config.stack, &conventions));
    let path = format!("certificates/measured-{}-hops-{}-tokens.json", sizes.len(), bound.accepted.tokens);
    let check = Some(format!("rung check {path}"));
    Some(StackVerdict { check, certificate: Some(CertificateFile { path, text }), ..verdict })
}

fn render_certified(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let settings = group_by_setting(records);
    let tested_stacks = tested_stacks(&settings, &output.verdicts);
    let chart = chart(&tested_stacks);
    let caption = "Accuracy on the prompts that the bound is about. Square markers: proved that no weights answer all of them. The others have \
                   one full layer more, or full attention in place of sparse. Bars go from the worst seed to the best.";
    let figure = figure_with_files(output.artefacts, "certified", &chart, caption, output.command.clone());
    for CertificateFile { path, text } in tested_stacks.iter().filter_map(|tested| tested.verdict?.certificate.as_ref())
    {
        if output.artefacts.iter().all(|artefact| artefact.path != *path) {
            output.artefacts.push(Artefact { path: path.clone(), bytes: text.clone().into_bytes() });
        }
    }
    output.chapter.figure(figure.clone());
    output.chapter.table(table(&tested_stacks));
    Conclusion { headline_figures: vec![figure], ..conclude(&tested_stacks) }
}

/// A stack on a task, with the verdict about exactly this stack and task if one was recorded.
struct TestedStack<'a, 'b> {
    runs: &'b SeedRuns<'a>,
    /// The task in words, with the number of tokens of a prompt.
    task_and_tokens: String,
    /// Accuracy on the prompts of the proof, over seeds.
    accuracy: SeedSpread,
    /// Accuracy of chance.
    chance_accuracy: f64,
    verdict: Option<&'b StackVerdict>,
}

impl<'a, 'b> TestedStack<'a, 'b> {
    fn new(runs: &'b SeedRuns<'a>, verdict: Option<&'b StackVerdict>) -> Self {
        let config = &runs.first().config;
        let proof_task = config.evaluate.other_tasks.first();
        let group = runs.hops().max(1);
        let accuracy = proof_task.map_or_else(|| runs.accuracy(group), |task| runs.accuracy_on(task, group as u16));
        let task = task::parse(proof_task.unwrap_or(&config.task)).ok();
        let tokens = task.as_ref().map_or(0, |task| task.length());
        let (task_and_tokens, chance_accuracy) = match runs.hops() {
            0 => (format!("2-Sum, {tokens} tokens"), task.map_or(f64::NAN, |task| task.baseline())),
            1 => (format!("1 hop, {tokens} tokens"), super::seed_runs::chance_accuracy(runs, 1)),
            hops => (format!("{hops} hops, {tokens} tokens"), super::seed_runs::chance_accuracy(runs, hops)),
        };
        Self { runs, task_and_tokens, accuracy, chance_accuracy, verdict }
    }

    /// Whether it is proved that no weights answer every prompt.
    fn is_proved_impossible(&self) -> bool {
        self.verdict.is_some_and(|verdict| verdict.check.is_some())
    }

    fn name(&self) -> String {
        format!("{}: {}", self.task_and_tokens, self.runs.stack_without_options())
    }

    /// The lowest accuracy of any seed on questions of fewer hops.
    fn worst_accuracy_on_fewer_hops(&self) -> Option<f64> {
        let hops = 1..self.runs.hops();
        hops.map(|hops| self.runs.accuracy(hops).low).reduce(f64::min)
    }
}

fn tested_stacks<'a, 'b>(settings: &'b [SeedRuns<'a>], verdicts: &'b [StackVerdict]) -> Vec<TestedStack<'a, 'b>> {
    settings.iter().map(|runs| TestedStack::new(runs, StackVerdict::find(verdicts, runs, runs.hops()))).collect()
}

fn chart(tested_stacks: &[TestedStack<'_, '_>]) -> DotChart {
    let names: Vec<String> = tested_stacks.iter().map(TestedStack::name).collect();
    let axis = AxisSpec::new("accuracy on the prompts of the proof", Scale::Linear).with_range(0.0, 1.02);
    let dots = |proved: bool| {
        let rows = tested_stacks.iter().enumerate().filter(move |(_, tested)| tested.is_proved_impossible() == proved);
        rows.map(|(row, tested)| {
            Dot::new(row, tested.accuracy.mean).with_spread(tested.accuracy.low, tested.accuracy.high)
        })
        .collect()
    };
    DotChart::new("Proved impossible, and measured, at one size", axis, &names)
        .with_evidence(Evidence::Measured)
        .series("not excluded by a bound", dots(false))
        .series("proved: no weights answer every prompt", dots(true))
}

fn table(tested_stacks: &[TestedStack<'_, '_>]) -> Table {
    let columns = [
        Column::text("task"),
        Column::text("stack"),
        Column::text("proved at this size"),
        Column::number("fewer hops, worst seed"),
        Column::number("accuracy, mean over seeds (worst to best)"),
        Column::number("chance"),
        Column::number("steps"),
        Column::number("seeds"),
        Column::number("state bits"),
        Column::number("message bits"),
    ];
    let mut table = Table::new("Stacks and tasks for which both a proof and runs exist", columns);
    for tested in tested_stacks {
        let (record, plan) = (tested.runs.first(), tested.runs.plan());
        let percent = |accuracy: f64| format!("{:.1}%", 100.0 * accuracy);
        let proved = match tested.verdict.map(|verdict| &verdict.check) {
            Some(Some(check)) => TableCell::from(format!("impossible: {check}")).with_evidence(Evidence::Proved),
            Some(None) => TableCell::from("nothing"),
            None => TableCell::from("not computed"),
        };
        table.row([
            TableCell::from(tested.task_and_tokens.clone()),
            TableCell::code(record.config.stack.clone()),
            proved,
            TableCell::from(tested.worst_accuracy_on_fewer_hops().map_or_else(|| "–".to_owned(), percent))
                .with_evidence(Evidence::Measured),
            TableCell::from(tested.accuracy.percent()).with_evidence(Evidence::Measured),
            TableCell::from(percent(tested.chance_accuracy)),
            TableCell::from(record.config.train.steps.to_string()),
            TableCell::from(tested.runs.records.len().to_string()),
            TableCell::from(tested.runs.state_bits().to_string()),
            TableCell::from(plan.message_bits(MessageSizeConvention::Register).to_string()),
        ]);
    }
    table
}

fn conclude(tested_stacks: &[TestedStack<'_, '_>]) -> Conclusion {
    let (mut paragraph, mut contradictions, mut lines) = (Prose::new(), Vec::new(), Vec::new());
    for tested in tested_stacks.iter().filter(|tested| tested.is_proved_impossible()) {
        let TestedStack { task_and_tokens, accuracy, .. } = tested;
        let steps = tested.runs.first().config.train.steps;
        paragraph = paragraph
            .text(format!("{task_and_tokens}: "))
            .code(tested.runs.first().config.stack.clone())
            .text(" cannot answer all prompts, whatever its weights. Measured: ")
            .number(accuracy.percent(), Evidence::Measured)
            .text(format!(" after {steps} steps (chance: {:.1}%)", 100.0 * tested.chance_accuracy));
        if accuracy.any_seed_learned() {
            contradictions.push(format!(
                "{task_and_tokens}, {}: proved impossible, and a seed learned it ({}). One of the two is wrong.",
                tested.runs.stack_without_options(),
                accuracy.percent()
            ));
        }
        let others = tested_stacks
            .iter()
            .filter(|other| !other.is_proved_impossible() && other.task_and_tokens == *task_and_tokens);
        let learned = others.clone().find(|other| other.accuracy.most_seeds_learned());
        match learned.or_else(|| others.clone().next()) {
            Some(other) => {
                let verb = if learned.is_some() { " learns it: " } else { " did not learn it: " };
                paragraph = paragraph
                    .text("; ")
                    .code(other.runs.first().config.stack.clone())
                    .text(verb)
                    .number(other.accuracy.percent(), Evidence::Measured)
                    .text(format!(" after {}. ", other.runs.first().config.train.steps));
            }
            None => paragraph = paragraph.text(". "),
        }
        if learned.is_none() {
            contradictions.push(format!(
                "{task_and_tokens}: no stack learned it, so the failure of {} is no evidence.",
                tested.runs.stack_without_options()
            ));
        }
        let best = learned.map_or_else(|| "not learned by any".to_owned(), |other| other.accuracy.percent());
        lines.push(format!("{task_and_tokens}: proved impossible {}, one layer more {best}", accuracy.percent()));
    }
    let summary_line =
        if lines.is_empty() { "no stack here is covered by a proof".to_owned() } else { lines.join("; ") };
    Conclusion { paragraph, summary_line, contradictions, ..Conclusion::default() }
}

#[cfg(test)]
mod tests {
    use super::super::seed_runs::tests::record;
    use super::*;
    use rung_theory::report::{CheckAnswer, check_certificate};

    const TASK: &str = "funccomp{hops=2,m=93,n=[1],mixed=yes,names=levels}";

    fn records(one_full_layer: [u64; 2], two_full_layers: [u64; 2]) -> Vec<RunRecord> {
        let make_record = |stack: &str, right: &[u64]| {
            let mut record = record(stack, TASK, 0, 1e-3, right);
            (record.config.model.heads, record.config.model.head) = (1, 64);
            record
        };
        vec![
            make_record("gated{bits=2} full{accumulator=8}", &one_full_layer),
            make_record("gated{bits=2} full{accumulator=8}*2", &two_full_layers),
        ]
    }

    #[test]
    fn the_certificate_is_accepted_for_this_stack_only() {
        let records = records([999, 11], [999, 998]);
        let settings = group_by_setting(&records);
        let verdicts = decide_stacks(&records);
        let tested_stacks = tested_stacks(&settings, &verdicts);
        let CertificateFile { path, text } = tested_stacks[0].verdict.unwrap().certificate.clone().unwrap();
        assert_eq!(path, "certificates/measured-2-hops-188-tokens.json");
        assert!(matches!(check_certificate(&text), CheckAnswer::Accepted { stack_verified: true, .. }), "{text}");
        // With one more bit in every accumulator the same certificate is rejected.
        let wider = text.replace("accumulator=8", "accumulator=9");
        assert!(matches!(check_certificate(&wider), CheckAnswer::Rejected { .. }));
        assert!(!tested_stacks[1].is_proved_impossible(), "with two full layers nothing is excluded");
    }

    #[test]
    fn results_that_contradict_a_proof_are_reported() {
        let conclusion = |one_full_layer, two_full_layers| {
            let records = records(one_full_layer, two_full_layers);
            let settings = group_by_setting(&records);
            conclude(&tested_stacks(&settings, &decide_stacks(&records)))
        };
        let as_predicted = conclusion([999, 11], [999, 998]);
        assert_eq!(as_predicted.contradictions.len(), 0, "{:?}", as_predicted.contradictions);
        assert!(
            as_predicted.summary_line.contains("proved impossible 1.1%, one layer more 99.8%"),
            "{}",
            as_predicted.summary_line
        );
        assert!(conclusion([999, 995], [999, 998]).contradictions[0].contains("One of the two is wrong"));
        assert!(conclusion([999, 11], [999, 500]).contradictions[0].contains("is no evidence"));
    }
}
