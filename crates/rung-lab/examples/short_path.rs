//! A complete experiment in one file: task, stack, model, training and report.
//!
//! ```text
//! cargo run --release -p rung-lab --example short_path
//! ```
//!
//! Two stacks are trained to look one entry up in a table. The first has a recurrent layer with a small state and a full-attention layer;
//! the second has only a recurrent layer whose state is too small for the table. It takes about a minute on one core, and writes
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

/// A table of 16 entries, then 16 questions about it: a start value, and a query for the entry of that value.
const TASK: &str = "funccomp{hops=1,m=16,queries=16}";

/// In the first stack a small state passes the start value to a full-attention layer, which looks it up. The second has a state of one
/// 32-bit number for a table of 64 bits.
const STACKS: [&str; 2] = ["gdn{heads=1,key=1,value=8,conv=0} full", "gdn{heads=1,key=1,value=1,conv=0}"];

const STEPS: u64 = 800;
const BATCH: usize = 16;

/// A trained stack with its accuracy during training and at the end.
struct TrainedStack {
    stack: &'static str,
    plan: Plan,
    validation_curve: Vec<Point>,
    test_answers: AnswerCount,
}

fn train(stack: &'static str) -> Result<TrainedStack, Box<dyn std::error::Error>> {
    // The task defines its token fields and the answer classes.
    let task = task::parse(TASK)?;
    let (fields, classes) = (task.fields(), task.classes());
    let mut source = PromptSource::new("task", task, &fields, classes)?;

    // The stack text is parsed into a plan with every size explicit, and the plan into a network.
    let plan = Plan::parse(stack, &Defaults { heads: 2, head_dim: 16, bits: 32, ..Defaults::default() })?;
    let config = ModelConfig {
        input: InputConfig::Fields(fields),
        classes: classes as usize,
        init_std: 0.1,
        init_key_from_query: true,
        ..ModelConfig::default()
    };
    let mut weights = Parameters::<f32>::new();
    let model = config.init(&plan, &mut weights, &mut task::seeded(0))?;

    // One thread, in micro-batches of four prompts. Prompts are a function of the seed and their index, so equal seeds give equal runs.
    let mut data_parallel = DataParallel::new(1, 4);
    let mut optimizer = AdamWConfig { rate: 4e-3, clip: 1.0, ..AdamWConfig::default() }.init();
    let (mut batch, mut validation_curve) = (Batch::default(), Vec::new());
    for step in 0..STEPS {
        source.fill(0, PromptPurpose::Training, step, BATCH, &mut batch);
        let loss_scale = 1.0 / batch.question_count as f64;
        let outcome = data_parallel.compute_gradient(&weights, BATCH, |ops: &Native<f32>, rows| {
            let tokens = &batch.tokens[rows.start * batch.ids_per_row..rows.end * batch.ids_per_row];
            let targets = &batch.targets[rows.start * batch.tokens_per_row..rows.end * batch.tokens_per_row];
            let (loss, _) = model.loss(ops, tokens, rows.len(), targets).expect("prompts that fit the model");
            ops.scale(&loss, loss_scale)
        })?;
        optimizer.update(&mut weights, data_parallel.gradient(), 1.0);
        if (step + 1) % 50 == 0 {
            let answers = count_answers(&model, &weights, &mut source, PromptPurpose::Validation, 16)?;
            let (low, high) = answers.interval();
            println!("{stack}  step {}  loss {:.3}  right {:.1}%", step + 1, outcome.loss, 100.0 * answers.accuracy());
            validation_curve.push(Point::new((step + 1) as f64, answers.accuracy()).with_spread(low, high));
        }
    }
    let test_answers = count_answers(&model, &weights, &mut source, PromptPurpose::Testing, 64)?;
    Ok(TrainedStack { stack, plan, validation_curve, test_answers })
}

/// Counts correct answers on new prompts.
fn count_answers(
    model: &Model,
    weights: &Parameters<f32>,
    source: &mut PromptSource,
    purpose: PromptPurpose,
    prompt_count: usize,
) -> Result<AnswerCount, Box<dyn std::error::Error>> {
    let result = evaluate(model, weights, source, (0, purpose), prompt_count)?;
    Ok(result.accuracy[&1])
}

fn report(trained_stacks: &[TrainedStack]) -> Report {
    let mut chart = LineChart::new(
        "One look-up, with and without a full layer",
        AxisSpec::new("steps", Scale::Linear),
        AxisSpec::new("accuracy", Scale::Linear).with_range(0.0, 1.02),
    );
    let columns =
        [Column::text("stack"), Column::number("rungs"), Column::number("state bits"), Column::number("accuracy")];
    let mut table = Table::new("Rungs of the layout, and accuracy after training", columns);
    for TrainedStack { stack, plan, validation_curve, test_answers } in trained_stacks {
        chart = chart.series(Series::line_and_points(*stack, validation_curve.clone()));
        let capacity = plan.capacity();
        table.row([
            TableCell::code(*stack),
            TableCell::from(capacity.rungs.to_string()).with_evidence(Evidence::Proved),
            TableCell::from(capacity.state_bits().iter().sum::<u128>().to_string()),
            TableCell::from(format!("{:.1}%", 100.0 * test_answers.accuracy())).with_evidence(Evidence::Measured),
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
    let trained_stacks = STACKS.into_iter().map(train).collect::<Result<Vec<_>, _>>()?;
    let path = Path::new("short_path.html");
    write_atomically(path, report(&trained_stacks).html()?.as_bytes())?;
    println!("{}", path.display());
    Ok(())
}
