//! Proved and measured at the same size.
//!
//! A bound speaks about all weights, a run about those that training found. Here both speak about one stack, one precision and one
//! size: no weights answer every prompt, and training, with four times the steps, finds none that come near; one more full layer
//! is learned. Three tasks: one look-up by a state alone, two hops by one full layer, 2-Sum by one layer of block-sparse attention.
//!
//! Attention is summed from left to right in accumulators of few bits (`full{accumulator=8}`), in training and evaluation, because the
//! bound assumes it. Function composition is asked in the prompts of the proof: all tables, then one question. Each certificate is
//! written beside the report for `rung check`, and the runs behind it are recorded like any others.

use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, Dot, DotChart, Scale};
use rung_figure::report::{Column, Figure, Prose, Table, TableCell};
use rung_theory::bound::certificate::{conventions, write};
use rung_theory::bound::stack_bounds::StackBounds;
use rung_theory::bound::tables::TableSizes;
use rung_theory::bound::verdict::Verdict;
use rung_theory::stack::Convention;
use rung_theory::task;
use rung_train::run::RunRecord;
use rung_train::run::record::table_sizes;

use super::sparse::blocks;
use super::table::{ResultCell, SeedSpread, cells};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use crate::artefact::{Artefact, figure_files};

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "certified",
    title: "Proved and measured at the same size",
    chapter: ReportChapter::Measured,
    sweeps: [
        include_str!("certified-smoke.toml"),
        include_str!("certified-quick.toml"),
        include_str!("certified-quick.toml"),
    ],
    render: certified,
};

fn certified(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let cells = cells(records);
    let arms: Vec<Arm<'_, '_>> = cells.iter().map(Arm::of).collect();
    let chart = chart(&arms);
    page.artefacts.extend(figure_files("certified", &chart));
    for (path, text) in arms.iter().filter_map(|arm| arm.proof.as_ref()?.file.clone()) {
        if page.artefacts.iter().all(|artefact| artefact.path != path) {
            page.artefacts.push(Artefact { path, bytes: text.into_bytes() });
        }
    }
    let caption = "Right answers on the prompts that the bound is about. Square marks: proved that no weights answer all of them. The others have \
                   one full layer more, or full attention in place of sparse. Bars go from the worst seed to the best.";
    let figure = Figure::new(&chart, caption, page.command.clone(), "certified.csv");
    page.chapter.figure(figure.clone());
    page.chapter.table(table(&arms));
    Conclusion { headline: vec![figure], ..conclude(&arms) }
}

/// A proof that no weights do it.
struct Proof {
    /// How it can be checked.
    command: String,
    /// The certificate's path below the output directory and its text, where there is a file.
    file: Option<(String, String)>,
}

/// A stack on a task, and what is proved about exactly these.
struct Arm<'a, 'b> {
    cell: &'b ResultCell<'a>,
    /// The task in words, with the tokens of a prompt.
    question: String,
    /// Right answers on the prompts of the proof.
    accuracy: SeedSpread,
    guess: f64,
    proof: Option<Proof>,
}

impl<'a, 'b> Arm<'a, 'b> {
    fn of(cell: &'b ResultCell<'a>) -> Self {
        let config = &cell.first().config;
        let own = config.evaluate.also.first();
        let group = cell.hops().max(1);
        let accuracy = own.map_or_else(|| cell.accuracy(group), |task| cell.accuracy_on(task, group as u16));
        let asked = task::parse(own.unwrap_or(&config.task)).ok();
        let tokens = asked.as_ref().map_or(0, |task| task.length());
        let (question, guess) = match cell.hops() {
            0 => (format!("2-Sum, {tokens} tokens"), asked.map_or(f64::NAN, |task| task.baseline())),
            1 => (format!("1 hop, {tokens} tokens"), super::table::guess(cell, 1)),
            hops => (format!("{hops} hops, {tokens} tokens"), super::table::guess(cell, hops)),
        };
        Self { cell, question, accuracy, guess, proof: proof(cell) }
    }

    fn name(&self) -> String {
        format!("{}: {}", self.question, self.cell.outline())
    }

    /// The worst seed's worst lower hop.
    fn lower(&self) -> Option<f64> {
        let hops = 1..self.cell.hops();
        hops.map(|hops| self.cell.accuracy(hops).low).reduce(f64::min)
    }
}

/// What is proved about a cell's stack on its own tables, or on 2-Sum.
fn proof(cell: &ResultCell<'_>) -> Option<Proof> {
    let config = &cell.first().config;
    let Some(sizes) = task::parse(&config.task).ok().and_then(|task| table_sizes(&*task)) else {
        let (_, bound) = blocks(cell)?;
        let command = format!(
            "rung sparse --block {} --select {} --bits {} --values {} --blocks {} --same-map",
            bound.block, bound.select, bound.bits, bound.values, bound.blocks
        );
        return bound.verdict().ok()?.impossible.then_some(Proof { command, file: None });
    };
    let branches = sizes.windows(2).map(|pair| (pair[1] / pair[0]).into()).collect();
    let tables = TableSizes::new(sizes.len(), sizes[0].into(), branches).ok()?;
    let Verdict::Impossible(found) = StackBounds::new(&cell.plan(), Convention::Register).decide(&tables) else {
        return None;
    };
    let counted = conventions(&config.defaults(), Convention::Register);
    let text = format!("{:#}\n", write(&found.certificate, &config.stack, &counted));
    let path = format!("certificates/measured-{}-hops-{}-tokens.json", sizes.len(), found.accepted.tokens);
    Some(Proof { command: format!("rung check {path}"), file: Some((path, text)) })
}

fn chart(arms: &[Arm<'_, '_>]) -> DotChart {
    let names: Vec<String> = arms.iter().map(Arm::name).collect();
    let axis = AxisSpec::new("right answers on the prompts of the proof", Scale::Linear).from_to(0.0, 1.02);
    let dots = |proved: bool| {
        let own = arms.iter().enumerate().filter(move |(_, arm)| arm.proof.is_some() == proved);
        own.map(|(row, arm)| Dot::new(row, arm.accuracy.mean).between(arm.accuracy.low, arm.accuracy.high)).collect()
    };
    DotChart::new("Proved impossible, and measured, at one size", axis, &names)
        .known(Evidence::Measured)
        .series("not excluded by any bound", dots(false))
        .series("proved: no weights answer every prompt", dots(true))
}

fn table(arms: &[Arm<'_, '_>]) -> Table {
    let columns = [
        Column::text("task"),
        Column::text("stack"),
        Column::text("proved at this size"),
        Column::number("lower hops, worst seed"),
        Column::number("right answers, mean over seeds (worst to best)"),
        Column::number("a guess"),
        Column::number("steps"),
        Column::number("seeds"),
        Column::number("state bits"),
        Column::number("message bits"),
    ];
    let mut table = Table::new("Stacks and tasks for which both a proof and runs exist", columns);
    for arm in arms {
        let (record, plan) = (arm.cell.first(), arm.cell.plan());
        let share = |share: f64| format!("{:.1}%", 100.0 * share);
        let proved = match &arm.proof {
            Some(proof) => TableCell::from(format!("impossible: {}", proof.command)).known(Evidence::Proved),
            None => TableCell::from("nothing"),
        };
        table.row([
            TableCell::from(arm.question.clone()),
            TableCell::code(record.config.stack.clone()),
            proved,
            TableCell::from(arm.lower().map_or_else(|| "–".to_owned(), share)).known(Evidence::Measured),
            TableCell::from(arm.accuracy.percent()).known(Evidence::Measured),
            TableCell::from(share(arm.guess)),
            TableCell::from(record.config.train.steps.to_string()),
            TableCell::from(arm.cell.records.len().to_string()),
            TableCell::from(arm.cell.state_bits().to_string()),
            TableCell::from(plan.message_bits(Convention::Register).to_string()),
        ]);
    }
    table
}

fn conclude(arms: &[Arm<'_, '_>]) -> Conclusion {
    let (mut paragraph, mut contradictions, mut lines) = (Prose::new(), Vec::new(), Vec::new());
    for arm in arms.iter().filter(|arm| arm.proof.is_some()) {
        let Arm { question, accuracy, .. } = arm;
        let steps = arm.cell.first().config.train.steps;
        paragraph = paragraph
            .text(format!("{question}: "))
            .code(arm.cell.first().config.stack.clone())
            .text(" cannot, whatever its weights, and is at ")
            .number(accuracy.percent(), Evidence::Measured)
            .text(format!(" after {steps} steps (a guess: {:.1}%)", 100.0 * arm.guess));
        if accuracy.once_learned() {
            contradictions.push(format!(
                "{question}, {}: proved impossible, and a seed learned it ({}). One of the two is wrong.",
                arm.cell.outline(),
                accuracy.percent()
            ));
        }
        let others = arms.iter().filter(|other| other.proof.is_none() && other.question == *question);
        let learned = others.clone().find(|other| other.accuracy.mostly_learned());
        match learned.or_else(|| others.clone().next()) {
            Some(other) => {
                let verb = if learned.is_some() { " learns it: " } else { " did not learn it: " };
                paragraph = paragraph
                    .text("; ")
                    .code(other.cell.first().config.stack.clone())
                    .text(verb)
                    .number(other.accuracy.percent(), Evidence::Measured)
                    .text(format!(" after {}. ", other.cell.first().config.train.steps));
            }
            None => paragraph = paragraph.text(". "),
        }
        if learned.is_none() {
            contradictions.push(format!(
                "{question}: no stack learned it, so that the failure of {} shows nothing.",
                arm.cell.outline()
            ));
        }
        let best = learned.map_or_else(|| "not learned by any".to_owned(), |other| other.accuracy.percent());
        lines.push(format!("{question}: proved impossible {}, one layer more {best}", accuracy.percent()));
    }
    let line = if lines.is_empty() { "no stack here is covered by a proof".to_owned() } else { lines.join("; ") };
    Conclusion { paragraph, line, contradictions, ..Conclusion::default() }
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::record;
    use super::*;
    use rung_theory::report::{CheckAnswer, check_certificate};

    const TASK: &str = "funccomp{hops=2,m=93,n=[1],mixed=yes,names=levels}";

    fn records(short: [u64; 2], long: [u64; 2]) -> Vec<RunRecord> {
        let make = |stack: &str, right: &[u64]| {
            let mut record = record(stack, TASK, 0, 1e-3, right);
            (record.config.model.heads, record.config.model.head) = (1, 64);
            record
        };
        vec![make("gated{bits=2} full{accumulator=8}", &short), make("gated{bits=2} full{accumulator=8}*2", &long)]
    }

    #[test]
    fn the_certificate_is_about_exactly_this_stack_and_is_accepted() {
        let records = records([999, 11], [999, 998]);
        let cells = cells(&records);
        let arms: Vec<Arm<'_, '_>> = cells.iter().map(Arm::of).collect();
        let (path, text) = arms[0].proof.as_ref().unwrap().file.clone().unwrap();
        assert_eq!(path, "certificates/measured-2-hops-188-tokens.json");
        assert!(matches!(check_certificate(&text), CheckAnswer::Accepted { names_stack: true, .. }), "{text}");
        // One more bit in every accumulator and the same certificate is refused.
        let wider = text.replace("accumulator=8", "accumulator=9");
        assert!(matches!(check_certificate(&wider), CheckAnswer::Refused { .. }));
        assert!(arms[1].proof.is_none(), "with two full layers nothing is excluded");
    }

    #[test]
    fn what_is_proved_is_held_against_what_was_measured() {
        let read = |short, long| {
            let records = records(short, long);
            let cells = cells(&records);
            conclude(&cells.iter().map(Arm::of).collect::<Vec<_>>())
        };
        let clear = read([999, 11], [999, 998]);
        assert_eq!(clear.contradictions.len(), 0, "{:?}", clear.contradictions);
        assert!(clear.line.contains("proved impossible 1.1%, one layer more 99.8%"), "{}", clear.line);
        assert!(read([999, 995], [999, 998]).contradictions[0].contains("One of the two is wrong"));
        assert!(read([999, 11], [999, 500]).contradictions[0].contains("shows nothing"));
    }
}
