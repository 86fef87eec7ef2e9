//! The layer at which the answer appears: the final norm and the unembedding applied to the residual stream after every layer.
//!
//! The final norm and the unembedding (together the read-out) turn the last residual stream into logits. Applied to the embedding or to the
//! residual stream after an earlier layer, they give the answer of the network if it stopped there.
//!
//! # What it shows
//!
//! For the embedding and after each layer, and for each number of hops: the accuracy, and the mean log-probability of the
//! right answer. Where only some symbols count as answers, the most probable of them is the answer; the probability is among all classes.
//!
//! # Validation
//!
//! After the last layer it is the answer of the network.
//!
//! # What it does not show
//!
//! A layer may hold the answer in a form that the read-out cannot decode; `probe` fits a linear read-out to every layer.
//!
//! # Source
//!
//! nostalgebraist, *interpreting GPT: the logit lens* (2020).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rung_engine::{Native, Ops, Scalar, Tensor};
use rung_figure::Evidence;
use rung_figure::figure::{AxisSpec, Chart, LineChart, Point, Scale, Series};
use rung_nn::{Hooks, ModelError, Network};
use serde::Serialize;

use super::questions::{GroupScore, QuestionBatch, QuestionLimits, Questions, group_name, merge_scores};
use super::{AnalysisError, AnalysisOptions, AnalysisOutput, layer_names, reject_chain_of_thought};

/// Limits of the sampled questions.
const LIMITS: QuestionLimits = QuestionLimits { questions: 600, tokens: 1 << 13 };

/// Answers of the read-out at every level of the residual stream.
#[derive(Clone, Debug, Serialize)]
pub struct LogitLens {
    /// Name of the network.
    pub name: String,
    /// The task.
    pub task: String,
    /// Names of the levels of the residual stream: the embedding, then every layer.
    pub levels: Vec<String>,
    /// For each level, correct answers and losses for each number of hops.
    pub scores: Vec<BTreeMap<u16, GroupScore>>,
}

/// Stores the residual streams of the tokens that answer.
struct AnswerResiduals<'a, S: Scalar> {
    positions: &'a [usize],
    residuals: Vec<Tensor<S>>,
}

impl<S: Scalar> Hooks<Native<S>> for AnswerResiduals<'_, S> {
    fn residual(&mut self, ops: &Native<S>, _: usize, x: Tensor<S>) -> Tensor<S> {
        let shape = ops.shape(&x);
        let flat = ops.reshape(&x, &[shape.rows(), shape.width()]);
        self.residuals.push(ops.gather_rows(&flat, self.positions));
        x
    }
}

/// Applies the read-out to every level.
///
/// # Errors
/// The network or the task does not fit.
pub fn logit_lens<S: Scalar>(network: &Network<S>, options: &AnalysisOptions) -> Result<LogitLens, AnalysisError> {
    reject_chain_of_thought("logit_lens", network)?;
    let questions = Questions::sample(network, options, LIMITS)?;
    let results = questions.map_batches(|question_batch| score_levels(network, &questions, question_batch));
    let mut scores = vec![BTreeMap::new(); network.model.depth() + 1];
    for batch_scores in results {
        for (scores, batch_scores) in scores.iter_mut().zip(batch_scores?) {
            merge_scores(scores, &batch_scores);
        }
    }
    let mut levels = vec!["embedding".to_owned()];
    levels.extend(layer_names(&network.plan));
    Ok(LogitLens { name: network.name.clone(), task: questions.task, levels, scores })
}

/// The scores of a batch at every level.
fn score_levels<S: Scalar>(
    network: &Network<S>,
    questions: &Questions,
    question_batch: &QuestionBatch,
) -> Result<Vec<BTreeMap<u16, GroupScore>>, ModelError> {
    let (ops, positions) = (network.executor(), question_batch.positions());
    if positions.is_empty() {
        return Ok(vec![BTreeMap::new(); network.model.depth() + 1]);
    }
    let mut hooks = AnswerResiduals { positions: &positions, residuals: Vec::new() };
    network.model.forward_with_hooks(&ops, &question_batch.batch.tokens, question_batch.rows(), &mut hooks)?;
    let score = |residual: &Tensor<S>| questions.score(&network.model, &ops, question_batch, residual);
    Ok(hooks.residuals.iter().map(score).collect())
}

impl LogitLens {
    fn text(&self) -> String {
        let mut text = format!("{} on {}: every level read out (measured)\n\n", self.name, self.task);
        let widest = self.levels.iter().map(String::len).max().unwrap_or(0).max(9);
        let _ = write!(text, "  {:widest$}", "level");
        let groups: Vec<u16> = self.scores[0].keys().copied().collect();
        for group in &groups {
            let _ = write!(text, "{:>18}", group_name(*group));
        }
        let _ = write!(text, "\n  {:widest$}", "");
        for _ in &groups {
            let _ = write!(text, "{:>18}", "right  log-prob.");
        }
        text += "\n";
        for (name, scores) in self.levels.iter().zip(&self.scores) {
            let _ = write!(text, "  {name:widest$}");
            for group in &groups {
                let score = scores.get(group).copied().unwrap_or_default();
                let _ = write!(text, "{:>8.1}% {:>8.2}", 100.0 * score.accuracy(), -score.mean_loss());
            }
            text += "\n";
        }
        text
    }

    fn chart(&self, title: &str, axis: AxisSpec, value: impl Fn(&GroupScore) -> f64) -> LineChart {
        let title = format!("{title}: {}", self.name);
        let mut chart = LineChart::new(title, AxisSpec::new("layers", Scale::Integer), axis);
        for group in self.scores[0].keys() {
            let point = |(level, scores): (usize, &BTreeMap<u16, GroupScore>)| {
                Point::new(level as f64, value(&scores.get(group).copied().unwrap_or_default()))
            };
            let points = self.scores.iter().enumerate().map(point).collect();
            let name = format!("{} ({})", group_name(*group), Evidence::Measured);
            chart = chart.series(Series::line_and_points(name, points));
        }
        chart
    }

    /// Correct answers by level.
    pub fn accuracy_chart(&self) -> LineChart {
        let axis = AxisSpec::new("accuracy", Scale::Linear).with_range(0.0, 1.02);
        self.chart("Accuracy, read out after every layer", axis, GroupScore::accuracy)
    }

    /// Log-probabilities by level.
    pub fn probability_chart(&self) -> LineChart {
        let axis = AxisSpec::new("mean log-probability of the right answer", Scale::Linear);
        self.chart("The right answer, read out after every layer", axis, |score| -score.mean_loss())
    }
}

/// Runs the analysis.
///
/// # Errors
/// The network or the task does not fit.
pub fn run(network: &Network<f32>, options: &AnalysisOptions) -> Result<AnalysisOutput, AnalysisError> {
    let lens = logit_lens(network, options)?;
    let charts: Vec<Box<dyn Chart>> = vec![Box::new(lens.accuracy_chart()), Box::new(lens.probability_chart())];
    Ok(AnalysisOutput::new(&lens, lens.text(), charts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_nn::NoHooks;
    use rung_nn::construct::{ConstructionRequest, build};

    #[test]
    fn the_last_level_answers_as_the_network_does() {
        let network =
            build::<f32>("U1", &ConstructionRequest { first_table_entries: 8, ..ConstructionRequest::default() })
                .unwrap();
        let options = AnalysisOptions { prompts: Some(64), ..AnalysisOptions::default() };
        let lens = logit_lens(&network, &options).unwrap();
        assert_eq!(lens.levels.len(), network.model.depth() + 1);
        let questions = Questions::sample(&network, &options, LIMITS).unwrap();
        let scores = questions.measure(&network.model, &network.weights, || NoHooks).unwrap();
        assert_eq!(lens.scores.last(), Some(&scores));
        assert!((scores[&2].accuracy() - 1.0).abs() < 1e-9, "U1 is right");
        assert!(lens.scores[0][&2].accuracy() < 0.6, "nothing was looked up yet");
    }
}
