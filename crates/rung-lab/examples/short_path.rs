//! The short path: task, stack, model, training, report, in one sitting.
//!
//! ```text
//! cargo run --release -p rung-lab --example short_path
//! ```
//!
//! Two stacks learn to look one thing up in a table. The first has a layer with a small state and a full-attention layer; the second
//! has the layer with state alone, which is too small for the table. It takes about a minute on one core, and writes
//! `short_path.html`. `rung train`, `rung sweep` and `rung reproduce` do the same with checkpoints, records and many seeds.

use std::path::Path;

use rung_engine::{AdamWConfig, DataParallel, Native, Ops as _, Parameters};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, LineChart, Point, Scale, Series};
use rung_figure::report::{Chapter, Column, Figure, Prose, Report, Table, TableCell};
use rung_nn::file::write_atomically;
use rung_nn::{InputConfig, Model, ModelConfig};
use rung_theory::stack::{Defaults, Plan};
use rung_theory::task;
use rung_train::run::source::{Batch, PromptPurpose, PromptSource};
use rung_train::run::{AnswerCount, evaluate};

/// A table of 16 entries, then 16 questions about it: a start value, and a query that asks where the table leads from there.
const TASK: &str = "funccomp{hops=1,m=16,queries=16}";

/// A small state that hands the start value to a full layer, which looks it up; and a state of one number, 32 bits, for a table of 64.
const STACKS: [&str; 2] = ["gdn{heads=1,key=1,value=8,conv=0} full", "gdn{heads=1,key=1,value=1,conv=0}"];

const STEPS: u64 = 800;
const BATCH: usize = 16;

/// What is kept of a run: its stack, the accuracy on the way, and at the end.
struct Outcome {
    stack: &'static str,
    plan: Plan,
    curve: Vec<Point>,
    end: AnswerCount,
}

fn train(stack: &'static str) -> Result<Outcome, Box<dyn std::error::Error>> {
    // The task says what its tokens are and which classes can be answered.
    let task = task::parse(TASK)?;
    let (fields, classes) = (task.fields(), task.classes());
    let mut source = PromptSource::new("task", task, &fields, classes)?;

    // The stack becomes a plan with every number explicit, and the plan a network.
    let plan = Plan::parse(stack, &Defaults { heads: 2, head_dim: 16, bits: 32, ..Defaults::default() })?;
    let config = ModelConfig {
        input: InputConfig::Fields(fields),
        classes: classes as usize,
        deviation: 0.1,
        tied_query_key: true,
        ..ModelConfig::default()
    };
    let mut weights = Parameters::<f32>::new();
    let model = config.init(&plan, &mut weights, &mut task::seeded(0))?;

    // One thread, prompts four at a time; prompts are numbered, so the same seed gives the same run.
    let mut team = DataParallel::new(1, 4);
    let mut optimizer = AdamWConfig { rate: 4e-3, clip: 1.0, ..AdamWConfig::default() }.init();
    let (mut batch, mut curve) = (Batch::default(), Vec::new());
    for step in 0..STEPS {
        source.fill(0, PromptPurpose::Training, step, BATCH, &mut batch);
        let share = 1.0 / batch.questions as f64;
        let outcome = team.step(&weights, BATCH, |ops: &Native<f32>, rows| {
            let tokens = &batch.tokens[rows.start * batch.ids..rows.end * batch.ids];
            let targets = &batch.targets[rows.start * batch.length..rows.end * batch.length];
            let (loss, _) = model.loss(ops, tokens, rows.len(), targets).expect("prompts that fit the model");
            ops.scale(&loss, share)
        })?;
        optimizer.update(&mut weights, team.gradient(), 1.0);
        if (step + 1) % 50 == 0 {
            let (mean, (low, high)) = ask(&model, &weights, &mut source, PromptPurpose::Validation, 16)?;
            println!("{stack}  step {}  loss {:.3}  right {:.1}%", step + 1, outcome.loss, 100.0 * mean.mean());
            curve.push(Point::new((step + 1) as f64, mean.mean()).between(low, high));
        }
    }
    let (end, _) = ask(&model, &weights, &mut source, PromptPurpose::Testing, 64)?;
    Ok(Outcome { stack, plan, curve, end })
}

/// Right answers on fresh prompts, with their interval.
fn ask(
    model: &Model,
    weights: &Parameters<f32>,
    source: &mut PromptSource,
    purpose: PromptPurpose,
    prompts: usize,
) -> Result<(AnswerCount, (f64, f64)), Box<dyn std::error::Error>> {
    let found = evaluate(model, weights, source, (0, purpose), prompts)?;
    let tally = found.accuracy[&1];
    Ok((tally, tally.interval()))
}

fn report(outcomes: &[Outcome]) -> Report {
    let mut chart = LineChart::new(
        "One look-up, with and without a full layer",
        AxisSpec::new("steps", Scale::Linear),
        AxisSpec::new("right answers", Scale::Linear).from_to(0.0, 1.02),
    );
    let columns =
        [Column::text("stack"), Column::number("rungs"), Column::number("state bits"), Column::number("right answers")];
    let mut table = Table::new("What the layout allows, and what training found", columns);
    for Outcome { stack, plan, curve, end } in outcomes {
        chart = chart.series(Series::line_and_points(*stack, curve.clone()));
        let capacity = plan.capacity();
        table.row([
            TableCell::code(*stack),
            TableCell::from(capacity.rungs.to_string()).known(Evidence::Proved),
            TableCell::from(capacity.state_bits().iter().sum::<u128>().to_string()),
            TableCell::from(format!("{:.1}%", 100.0 * end.mean())).known(Evidence::Measured),
        ]);
    }
    let mut chapter = Chapter::new("look-up", "One look-up");
    chapter.paragraph(
        Prose::new().text("The table has 16 entries of 4 bits, 64 bits in all. The task is ").code(TASK).text("."),
    );
    let caption = "Bars are Wilson's 95% intervals of one run's questions.";
    let command = "cargo run --release -p rung-lab --example short_path";
    chapter.figure(Figure::new(&chart, caption, command, "short_path.csv")).table(table);
    Report::new("The short path")
        .summary("A stack without full attention cannot look anything up in a table larger than its state.")
        .chapter(chapter)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let outcomes = STACKS.into_iter().map(train).collect::<Result<Vec<_>, _>>()?;
    let path = Path::new("short_path.html");
    write_atomically(path, report(&outcomes).html()?.as_bytes())?;
    println!("{}", path.display());
    Ok(())
}
