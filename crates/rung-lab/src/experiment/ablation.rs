//! Recurrence ablation: structure or capacity?
//!
//! A layer with state is replaced by one that keeps a few of the tokens themselves, chosen by a fixed policy, in as many bits. The
//! theory counts bits and so credits both alike. But one hop by a full layer needs the start value, one token before the question,
//! handed to it: a policy that drops the last token cannot do that, whatever its bits. On the look-up without any full layer, what
//! counts is how much of the table the kept tokens hold.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, conclude, render};
use super::table::{ResultCell, cells, outline};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::figure::Scale;
use rung_train::run::RunRecord;

/// The experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "ablation",
    title: "Recurrence ablation: structure or capacity?",
    chapter: ReportChapter::Open,
    sweeps: [
        include_str!("ablation-smoke.toml"),
        include_str!("ablation-quick.toml"),
        include_str!("ablation-quick.toml"),
    ],
    render: ablation,
};

/// The first layer in a word: its mixer, and the policy of one that keeps tokens.
fn first(stack: &str) -> String {
    let policy = stack.split("policy=").nth(1).and_then(|rest| rest.split([',', '}']).next());
    let outline = outline(stack);
    let mixer = outline.split(' ').next().unwrap_or_default();
    policy.map_or_else(|| mixer.to_owned(), |policy| format!("{mixer}, {policy}"))
}

fn point(cell: &ResultCell<'_>) -> ComparisonPoint {
    let record = cell.first();
    let ratio = cell.state_bits() / record.facts.table_bits.unwrap_or(f64::NAN);
    let helped = record.facts.full_layers > 0;
    let series = format!("{}{}", first(&record.config.stack), if helped { ", then full" } else { "" });
    let point = ComparisonPoint::of(cell, 1, series, ratio, format!("with {:.0} bits of state", cell.state_bits()));
    let stack = &record.config.stack;
    let hands = !stack.contains("policy=") || stack.contains("policy=last");
    match (helped, hands) {
        (true, true) => point.predicted(true, "the state hands the start to the full layer"),
        (true, false) if stack.contains("policy=prefix") => point.predicted(false, "it drops the start"),
        (false, _) if ratio < 1.0 => point.predicted(false, "proved: the state is smaller than the table"),
        _ => point,
    }
}

fn ablation(records: &[RunRecord], page: &mut ExperimentOutput<'_>) -> Conclusion {
    let cells = cells(records);
    let (mut points, mut alone): (Vec<ComparisonPoint>, Vec<ComparisonPoint>) = (Vec::new(), Vec::new());
    for cell in &cells {
        if cell.plan().layers.len() == 1 { &mut alone } else { &mut points }.push(point(cell));
    }
    for (points, file, title, along) in [
        (&points, "ablation-full", "One hop, a layer with state before a full one", AxisKind::Names),
        (
            &alone,
            "ablation-alone",
            "One look-up, a layer with state alone",
            AxisKind::Measure("state bits / (m log m)", Scale::Log2),
        ),
    ] {
        if points.is_empty() {
            continue;
        }
        let view = ComparisonFigure {
            file,
            title,
            along,
            proved: None,
            caption: "The layer with state is a recurrence or keeps a few tokens by a policy, in about as many bits. Bars go from the worst \
                      seed to the best.",
        };
        render(points, &view, page);
    }
    points.extend(alone);
    conclude(&points, "Does it matter how the bits of a state are kept?")
}
