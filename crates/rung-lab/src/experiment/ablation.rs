//! Recurrence ablation: structure or capacity?
//!
//! A recurrent layer is replaced by one that caches a few tokens, chosen by a fixed policy, in about as many bits. The theory counts bits
//! and so does not distinguish them. But for one hop a full layer needs the start value, which is one token before the question: a
//! policy that evicts the last token cannot pass it on, whatever its bits. On the look-up without any full layer, accuracy depends on how much of
//! the table the cached tokens hold.
//!
//! The sweep files name the mixer `evicting` by its alias `fake`, because the ids of recorded runs depend on the spelling.

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, Prediction, conclude, render};
use super::seed_runs::{SeedRuns, group_by_setting, strip_mixer_options};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::figure::Scale;
use rung_train::run::RunRecord;

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "ablation",
    title: "Recurrence ablation: structure or capacity?",
    chapter: ReportChapter::OpenQuestions,
    sweeps: [
        include_str!("ablation-smoke.toml"),
        include_str!("ablation-quick.toml"),
        include_str!("ablation-quick.toml"),
    ],
    stack_verdicts: None,
    render: render_ablation,
};

/// The first layer's mixer, and its eviction policy if it has one.
fn first_layer_name(stack: &str) -> String {
    let policy = stack.split("policy=").nth(1).and_then(|text| text.split([',', '}']).next());
    let mixer_names = strip_mixer_options(stack);
    let mixer = mixer_names.split(' ').next().unwrap_or_default();
    policy.map_or_else(|| mixer.to_owned(), |policy| format!("{mixer}, {policy}"))
}

fn point(runs: &SeedRuns<'_>) -> ComparisonPoint {
    let record = runs.first();
    let ratio = runs.state_bits() / record.facts.table_bits.unwrap_or(f64::NAN);
    let has_full_layer = record.facts.full_layers > 0;
    let series =
        format!("{}{}", first_layer_name(&record.config.stack), if has_full_layer { ", then full" } else { "" });
    let point = ComparisonPoint::new(runs, 1, series, ratio, format!("with {:.0} bits of state", runs.state_bits()));
    let stack = &record.config.stack;
    // Policy `last` keeps the last tokens, and so the start value. Policy `prefix` keeps the first tokens of the prompt and evicts it.
    let passes_last_token = !stack.contains("policy=") || stack.contains("policy=last");
    match (has_full_layer, passes_last_token) {
        (true, true) => {
            point.with_prediction(Prediction::Learned, "the state passes the start value on to the full layer")
        }
        (true, false) if stack.contains("policy=prefix") => {
            point.with_prediction(Prediction::NotLearned, "it evicts the start value")
        }
        (false, _) if ratio < 1.0 => {
            point.with_prediction(Prediction::NotLearned, "proved: the state is smaller than the table")
        }
        _ => point,
    }
}

fn render_ablation(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let settings = group_by_setting(records);
    let (mut points_before_full_layer, mut single_layer_points): (Vec<ComparisonPoint>, Vec<ComparisonPoint>) =
        (Vec::new(), Vec::new());
    for runs in &settings {
        if runs.plan().layers.len() == 1 { &mut single_layer_points } else { &mut points_before_full_layer }
            .push(point(runs));
    }
    for (points, file, title, axis) in [
        (&points_before_full_layer, "ablation-full", "One hop, a layer with state before a full one", AxisKind::Names),
        (
            &single_layer_points,
            "ablation-alone",
            "One look-up, a layer with state alone",
            AxisKind::Number("state bits / table bits", Scale::Log2),
        ),
    ] {
        if points.is_empty() {
            continue;
        }
        let figure = ComparisonFigure {
            file,
            title,
            axis,
            proved_line: None,
            caption: "The layer with state is a recurrence, or caches a few tokens by an eviction policy, in about as many bits. Table bits: m log2 m for a table of m entries. Bars go from the worst \
                      seed to the best.",
        };
        render(points, &figure, output);
    }
    points_before_full_layer.extend(single_layer_points);
    conclude(&points_before_full_layer, "Does the structure of a state matter, or only its bits?")
}
