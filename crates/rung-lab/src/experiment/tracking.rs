//! State tracking: tasks on which recurrences and hybrids are better than attention.
//!
//! The parity of bits and products of permutations need a state that every token changes; parity-conditioned retrieval needs such a state
//! and a look-up as well.
//!
//! The prediction: a delta rule tracks parity if its transitions may have negative eigenvalues (a reflection changes a sign), and S3 if
//! it also takes two micro-steps per token (two reflections make a rotation). With eigenvalues from 0 to 1 it tracks neither, and neither does
//! attention. A layer that tracks parity, followed by a full layer, does parity-conditioned retrieval. There is no prediction for S5.
//!
//! Sequences become longer during training, and the last evaluation is on sequences longer than any of those: a learned rule generalizes, a
//! memorized table of short sequences does not.

use rung_theory::task::{self, SINGLE_GROUP};

use super::compare::{AxisKind, ComparisonFigure, ComparisonPoint, Prediction, conclude, render};
use super::seed_runs::{SeedRuns, SeedSpread, group_by_setting};
use super::{Conclusion, Experiment, ExperimentOutput, ReportChapter};
use rung_figure::figure::Scale;
use rung_train::run::RunRecord;
use rung_train::run::accuracy::AnswerCount;

/// Name, sweeps and report of the experiment.
pub static EXPERIMENT: Experiment = Experiment {
    name: "tracking",
    title: "State tracking: where recurrences and hybrids are better",
    chapter: ReportChapter::OpenQuestions,
    sweeps: [
        include_str!("tracking-smoke.toml"),
        include_str!("tracking-quick.toml"),
        include_str!("tracking-quick.toml"),
    ],
    stack_verdicts: None,
    render: render_tracking,
};

/// Groups of tasks: prefix of their specs, name, and name and title of the figure.
const TASK_GROUPS: [(&str, &str, &str, &str); 4] = [
    ("parity{", "parity", "tracking-parity", "Parity, by sequence length"),
    ("word{group=s3", "word s3", "tracking-s3", "Products in S3, by sequence length"),
    ("word{group=s5", "word s5", "tracking-s5", "Products in S5, by sequence length"),
    ("parity-retrieval", "parity-retrieval", "tracking-retrieval", "Parity-conditioned retrieval, by sequence length"),
];

fn render_tracking(records: &[RunRecord], output: &mut ExperimentOutput<'_>) -> Conclusion {
    let settings = group_by_setting(records);
    // The conclusion is about the length that was never trained.
    let mut points_at_untrained_length = Vec::new();
    for (prefix, name, file, title) in TASK_GROUPS {
        let group = settings.iter().filter(|runs| runs.first().config.task.starts_with(prefix));
        let lines: Vec<Vec<ComparisonPoint>> = group.map(|runs| points_by_length(runs, name)).collect();
        points_at_untrained_length.extend(lines.iter().filter_map(|line| line.last().cloned()));
        let points: Vec<ComparisonPoint> = lines.into_iter().flatten().collect();
        if points.is_empty() {
            continue;
        }
        let figure = ComparisonFigure {
            file,
            title,
            axis: AxisKind::Number("tokens", Scale::Log2),
            proved_line: None,
            caption: "Accuracy after training at each length, and, at the last point, at a length that was never trained. Bars go from the \
                      worst seed to the best.",
        };
        render(&points, &figure, output);
    }
    conclude(&points_at_untrained_length, "Which layers track a state that every token changes?")
}

/// The prediction for this stack and task, with its reason; `None` without a prediction.
fn prediction(runs: &SeedRuns<'_>) -> Option<(Prediction, &'static str)> {
    let config = &runs.first().config;
    let plan = runs.plan();
    let mixers = plan.layers.iter().flat_map(|layer| layer.mixers.iter());
    let reflections = mixers.map(|mixer| mixer.facts().reflections).max().unwrap_or_default();
    let (has_negative_eigenvalues, has_two_reflections_per_token) = (reflections > 0, reflections > 1);
    let has_full_layer = plan.layers.iter().any(rung_theory::stack::Layer::is_full);
    Some(match config.task.as_str() {
        task if task.starts_with("parity{") && has_negative_eigenvalues => {
            (Prediction::Learned, "negative eigenvalues")
        }
        task if task.starts_with("parity{") => (Prediction::NotLearned, "no negative eigenvalues"),
        task if task.starts_with("word{group=s3") && has_two_reflections_per_token => {
            (Prediction::Learned, "two reflections per token make a rotation")
        }
        task if task.starts_with("word{group=s3") => (Prediction::NotLearned, "fewer than two reflections per token"),
        task if task.starts_with("parity-retrieval") && has_negative_eigenvalues && has_full_layer => {
            (Prediction::Learned, "constructed")
        }
        _ => return None,
    })
}

/// Accuracy at each length: the last evaluation of each curriculum stage, and the final evaluation.
fn points_by_length(runs: &SeedRuns<'_>, task_name: &str) -> Vec<ComparisonPoint> {
    let (config, series) = (&runs.first().config, runs.first().config.stack.clone());
    let point = |length: usize| {
        ComparisonPoint::new(
            runs,
            usize::from(SINGLE_GROUP),
            series.clone(),
            length as f64,
            format!("on {task_name} at {length} tokens"),
        )
    };
    let point_of_stage = |stage: usize| {
        let length = task::parse(&config.curriculum[stage].task).ok()?.length();
        let last_evaluation =
            |record: &&RunRecord| record.evaluations.iter().rfind(|evaluation| evaluation.stage == stage).cloned();
        let evaluations = runs.records.iter().filter_map(last_evaluation);
        let accuracies: Vec<f64> = evaluations
            .filter_map(|evaluation| evaluation.accuracy.get(&SINGLE_GROUP).map(AnswerCount::accuracy))
            .collect();
        (!accuracies.is_empty()).then(|| point(length).with_accuracy(SeedSpread::new(accuracies.into_iter())))
    };
    let mut points: Vec<ComparisonPoint> = (0..config.curriculum.len()).filter_map(point_of_stage).collect();
    let final_point = point(runs.first().facts.tokens);
    points.push(match prediction(runs) {
        Some((prediction, reason)) => final_point.with_prediction(prediction, reason),
        None => final_point,
    });
    points
}

#[cfg(test)]
mod tests {
    use super::super::seed_runs::tests::record;
    use super::*;

    #[test]
    fn conclusion_counts_confirmed_and_contradicted_predictions() {
        let run = |stack: &str, task: &str, correct_per_thousand| record(stack, task, 0, 1e-3, &[correct_per_thousand]);
        let conclusion = |records: &[RunRecord]| {
            let points: Vec<ComparisonPoint> =
                group_by_setting(records).iter().flat_map(|runs| points_by_length(runs, "it")).collect();
            conclude(&points, "")
        };
        let (nonnegative_eigenvalues, negative_eigenvalues) = ("deltanet", "deltanet{negative=yes}");
        let (parity, permutations) = ("parity{answer=every}", "word{group=s3}");
        let as_predicted = conclusion(&[
            run(nonnegative_eigenvalues, parity, 510),
            run("full", parity, 600),
            run(negative_eigenvalues, parity, 1000),
            run(negative_eigenvalues, permutations, 300),
            run("deltaproduct{steps=2}", permutations, 999),
            run("deltaproduct{steps=4}", "word{group=s5}", 999),
        ]);
        assert_eq!(
            (as_predicted.summary_line.as_str(), as_predicted.contradictions.len()),
            ("5 of 5 predictions held", 0)
        );
        let contradicting = conclusion(&[
            run(nonnegative_eigenvalues, parity, 1000),
            run(negative_eigenvalues, parity, 700),
            run("deltaproduct{steps=1}", permutations, 995),
            run("deltanet{negative=yes} full", "parity-retrieval", 995),
        ]);
        assert_eq!(
            (contradicting.summary_line.as_str(), contradicting.contradictions.len()),
            ("1 of 4 predictions held", 3)
        );
    }
}
