//! Which layer computes which hop: linear probes of the intermediate answers, at every layer.
//!
//! A question of L hops has L intermediate answers `i_1 .. i_L`. At the token that answers, and at every level of the residual stream (the
//! embedding, then after each layer), a linear classifier is fitted for each of them on some prompts and tested on others. The first level
//! at which it classifies correctly shows by which layer the hop is computed.
//!
//! # What it shows
//!
//! The accuracy of each probe on prompts it was not fitted on, beside the accuracy of chance. A frame marks the first level with 90%. Tasks
//! other than function composition have one number to probe, the answer.
//!
//! # How
//!
//! Linear discriminant analysis in closed form and double precision: the mean of every class, and one covariance within classes with a
//! ridge. Features are centred and scaled. Half of the questions are for fitting, half for testing. A probe of `i_l` uses only questions of
//! at least l hops.
//!
//! # Validation
//!
//! In construction U1 layer 0 reads z_0 and layer l looks up z_l: `i_l` appears after layer l and not before.
//!
//! # What it does not show
//!
//! A probe that succeeds does not show that the network uses the number. A probe that fails does not show that the number is absent: it may
//! be encoded non-linearly, or be at another token.

use std::fmt::Write as _;

use rung_engine::{Native, Ops, Scalar};
use rung_nn::{Hooks, ModelError};
use serde::Serialize;

use super::matrix::{Matrix, dot, solve};
use super::questions::{QuestionBatch, QuestionLimits, Questions, argmax};
use super::{AnalysisError, AnalysisOptions, AnalysisOutput, layer_names, reject_chain_of_thought};
use rung_figure::Evidence;
use rung_figure::figure::{HeatCell, HeatMap};
use rung_nn::Network;
use rung_train::parallel;
use rung_train::run::accuracy::AnswerCount;

/// An intermediate answer counts as decodable at a level if its probe has at least this accuracy.
pub const DECODABLE_ACCURACY: f64 = 0.9;

/// Added to the diagonal of the covariance within classes; features have variance one.
const RIDGE: f64 = 1e-3;

/// Limits of the sampled questions.
const LIMITS: QuestionLimits = QuestionLimits { questions: 3000, tokens: 1 << 16 };

/// The accuracy of all probes.
#[derive(Clone, Debug, Serialize)]
pub struct Probes {
    /// Name of the network.
    pub name: String,
    /// The task.
    pub task: String,
    /// Names of the levels of the residual stream: the embedding, then every layer.
    pub levels: Vec<String>,
    /// The intermediate answers.
    pub intermediate_answers: Vec<ProbedAnswer>,
}

/// The probes of one intermediate answer.
#[derive(Clone, Debug, Serialize)]
pub struct ProbedAnswer {
    /// Its name, such as `i_1`.
    pub name: String,
    /// The accuracy of a constant answer.
    pub chance_accuracy: f64,
    /// Number of questions that the probes were fitted on.
    pub fitting_questions: usize,
    /// How many test questions the probe classified correctly, at every level.
    pub level_counts: Vec<AnswerCount>,
    /// The first level with an accuracy of at least [`DECODABLE_ACCURACY`].
    pub first_decodable_level: Option<usize>,
}

/// Fits and tests the probes.
///
/// # Errors
/// The network or the task does not fit.
pub fn probe<S: Scalar>(network: &Network<S>, options: &AnalysisOptions) -> Result<Probes, AnalysisError> {
    reject_chain_of_thought("probe", network)?;
    let questions = Questions::sample(network, options, LIMITS)?;
    if questions.intermediate_answers.is_empty() {
        let (found, expected) =
            (questions.task, "a task spec, so that intermediate answers can be computed: pass --task SPEC".to_owned());
        return Err(AnalysisError::NotApplicable { analysis: "probe", found, expected });
    }
    let residuals = questions.map_batches(|question_batch| answering_residuals(network, question_batch));
    let residuals = residuals.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut levels = vec!["embedding".to_owned()];
    levels.extend(layer_names(&network.plan));
    // For every question, its residual streams at all levels and its intermediate answers.
    let rows: Vec<(&Vec<Vec<f64>>, &[u32])> = residuals
        .iter()
        .zip(&questions.batches)
        .flat_map(|(rows, question_batch)| {
            rows.iter().zip(question_batch.questions.iter().map(|question| &question.intermediate_answers[..]))
        })
        .collect();
    let jobs: Vec<(usize, usize)> = (0..questions.intermediate_answers.len())
        .flat_map(|answer| (0..levels.len()).map(move |level| (answer, level)))
        .collect();
    let counts = parallel::map(&jobs, |&(answer, level)| {
        let samples: Vec<(&[f64], usize)> = rows
            .iter()
            .filter_map(|(residuals, intermediate_answers)| {
                Some((&residuals[level][..], *intermediate_answers.get(answer)? as usize))
            })
            .collect();
        let (fit, test) = samples.split_at(samples.len() / 2);
        (fit.len(), fit_and_test(fit, test, questions.intermediate_answers[answer].value_count))
    });
    let intermediate_answers =
        questions.intermediate_answers.iter().zip(counts.chunks(levels.len())).map(|(answer, counts)| ProbedAnswer {
            name: answer.name.clone(),
            chance_accuracy: 1.0 / answer.value_count as f64,
            fitting_questions: counts[0].0,
            level_counts: counts.iter().map(|(_, answers)| *answers).collect(),
            first_decodable_level: counts
                .iter()
                .position(|(_, answers)| answers.count > 0 && answers.accuracy() >= DECODABLE_ACCURACY),
        });
    Ok(Probes {
        name: network.name.clone(),
        task: questions.task.clone(),
        levels,
        intermediate_answers: intermediate_answers.collect(),
    })
}

/// Stores the residual stream of some tokens at every level.
struct TokenResiduals<'a> {
    positions: &'a [usize],
    /// For every token, its residual stream at every level.
    residuals: Vec<Vec<Vec<f64>>>,
}

impl<S: Scalar> Hooks<Native<S>> for TokenResiduals<'_> {
    fn residual(&mut self, ops: &Native<S>, _: usize, x: rung_engine::Tensor<S>) -> rung_engine::Tensor<S> {
        let shape = ops.shape(&x);
        let flat = ops.reshape(&x, &[shape.rows(), shape.width()]);
        let rows = ops.values(&ops.gather_rows(&flat, self.positions));
        for (residuals, row) in self.residuals.iter_mut().zip(rows.chunks_exact(shape.width())) {
            residuals.push(row.iter().map(|value| value.to_f64()).collect());
        }
        x
    }
}

/// The residual streams of all answering tokens of a batch, at every level.
fn answering_residuals<S: Scalar>(
    network: &Network<S>,
    question_batch: &QuestionBatch,
) -> Result<Vec<Vec<Vec<f64>>>, ModelError> {
    let ops = Native::new();
    ops.bind_frozen(&network.weights);
    let positions = question_batch.positions();
    let mut hooks = TokenResiduals { positions: &positions, residuals: vec![Vec::new(); positions.len()] };
    if !positions.is_empty() {
        network.model.forward_with_hooks(&ops, &question_batch.batch.tokens, question_batch.rows(), &mut hooks)?;
    }
    Ok(hooks.residuals)
}

/// Fits a linear discriminant on some samples (features and class) and counts how many others it classifies correctly.
fn fit_and_test(fit: &[(&[f64], usize)], test: &[(&[f64], usize)], classes: usize) -> AnswerCount {
    let mut answers = AnswerCount::default();
    let Some((first, _)) = fit.first() else { return answers };
    let width = first.len();
    let count = fit.len() as f64;
    let mut mean = vec![0.0; width];
    let mut variance = vec![0.0; width];
    for (row, _) in fit {
        mean.iter_mut().zip(*row).for_each(|(sum, value)| *sum += value / count);
    }
    for (row, _) in fit {
        for ((sum, value), mean) in variance.iter_mut().zip(*row).zip(&mean) {
            *sum += (value - mean).powi(2) / count;
        }
    }
    // Constant features are ignored.
    let scale: Vec<f64> =
        variance.iter().map(|variance| if *variance > 1e-20 { variance.sqrt().recip() } else { 0.0 }).collect();
    let normalize = |row: &[f64]| -> Vec<f64> {
        row.iter().zip(&mean).zip(&scale).map(|((value, mean), scale)| (value - mean) * scale).collect()
    };
    let (mut means, mut counts) = (Matrix::zeros(classes, width), vec![0.0; classes]);
    for (row, class) in fit {
        counts[*class] += 1.0;
        let class_mean = &mut means.entries[class * width..(class + 1) * width];
        class_mean.iter_mut().zip(normalize(row)).for_each(|(sum, value)| *sum += value);
    }
    for (class_mean, count) in means.entries.chunks_exact_mut(width).zip(&counts) {
        for sum in class_mean {
            *sum /= f64::max(*count, 1.0);
        }
    }
    // The scatter matrix within classes. A direction that varies between classes but in no class gets a large weight.
    let mut within_class_scatter = Matrix::identity(width);
    within_class_scatter.entries.iter_mut().for_each(|value| *value *= RIDGE * count);
    for (row, class) in fit {
        let centred: Vec<f64> =
            normalize(row).iter().zip(means.row(*class)).map(|(value, mean)| value - mean).collect();
        for (index, factor) in centred.iter().enumerate().filter(|(_, factor)| **factor != 0.0) {
            let scatter_row = &mut within_class_scatter.entries[index * width..(index + 1) * width];
            scatter_row.iter_mut().zip(&centred).for_each(|(sum, value)| *sum += factor * value);
        }
    }
    let Some(weights) = solve(&within_class_scatter, &means.transposed()) else { return answers };
    let weights = weights.transposed();
    let bias = |class: usize| dot(weights.row(class), means.row(class)) / 2.0;
    let biases: Vec<(usize, f64)> =
        (0..classes).filter(|class| counts[*class] > 0.0).map(|class| (class, bias(class))).collect();
    for (row, class) in test {
        let row = normalize(row);
        let logits: Vec<f64> = biases.iter().map(|(class, bias)| dot(weights.row(*class), &row) - bias).collect();
        answers.add(biases[argmax(&logits)].0 == *class);
    }
    answers
}

impl Probes {
    /// For a terminal.
    fn text(&self) -> String {
        let mut text = format!("{} on {}: linear probes at the answering token (measured)\n\n", self.name, self.task);
        let widest = self.levels.iter().map(String::len).max().unwrap_or(0).max(9);
        let _ = write!(text, "  {:widest$}", "level");
        for answer in &self.intermediate_answers {
            let _ = write!(text, "{:>9}", answer.name);
        }
        text += "\n";
        for (level, name) in self.levels.iter().enumerate() {
            let _ = write!(text, "  {name:widest$}");
            for answer in &self.intermediate_answers {
                let mark = if answer.first_decodable_level == Some(level) { "*" } else { " " };
                let _ = write!(text, "{:>8}{mark}", percent(&answer.level_counts[level]));
            }
            text += "\n";
        }
        let _ = write!(text, "  {:widest$}", "chance");
        for answer in &self.intermediate_answers {
            let _ = write!(text, "{:>7.1}% ", 100.0 * answer.chance_accuracy);
        }
        let _ = writeln!(
            text,
            "\n\n  * the first level with an accuracy of {:.0}% on test prompts",
            100.0 * DECODABLE_ACCURACY
        );
        text
    }

    /// A heat map of the accuracy, a row for each level and a column for each intermediate answer.
    pub fn chart(&self) -> HeatMap {
        let cell = |level: usize, answer: &ProbedAnswer| {
            let cell = HeatCell::new(answer.level_counts[level].accuracy());
            if answer.first_decodable_level == Some(level) { cell.framed() } else { cell }
        };
        let cells = (0..self.levels.len())
            .map(|level| self.intermediate_answers.iter().map(|answer| cell(level, answer)).collect())
            .collect();
        let columns: Vec<String> = self.intermediate_answers.iter().map(|answer| answer.name.clone()).collect();
        let chances = self
            .intermediate_answers
            .iter()
            .map(|answer| format!("{} {:.0}%", answer.name, 100.0 * answer.chance_accuracy));
        let chances = chances.collect::<Vec<_>>().join(", ");
        HeatMap::new(
            format!("Layer that computes each hop: {}", self.name),
            ("residual stream after layer", &self.levels),
            ("intermediate answer", &columns),
            cells,
        )
        .with_evidence(Evidence::Measured)
        .with_note(format!(
            "Accuracy of linear probes on new prompts of {}; framed: the first level with {:.0}%. Chance: {chances}.",
            self.task,
            100.0 * DECODABLE_ACCURACY
        ))
    }
}

fn percent(answers: &AnswerCount) -> String {
    if answers.count == 0 { "–".to_owned() } else { format!("{:.1}%", 100.0 * answers.accuracy()) }
}

/// Runs the analysis.
///
/// # Errors
/// The network or the task does not fit.
pub fn run(network: &Network<f32>, options: &AnalysisOptions) -> Result<AnalysisOutput, AnalysisError> {
    let probes = probe(network, options)?;
    Ok(AnalysisOutput::new(&probes, probes.text(), vec![Box::new(probes.chart())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_nn::construct::{ConstructionRequest, build};

    #[test]
    fn in_u1_hop_l_appears_after_layer_l() {
        let request = ConstructionRequest {
            hops: 3,
            first_table_entries: 4,
            growth_factors: vec![2, 2],
            ..ConstructionRequest::default()
        };
        let network = build::<f32>("U1", &request).unwrap();
        let options = AnalysisOptions { prompts: Some(800), ..AnalysisOptions::default() };
        let probes = probe(&network, &options).unwrap();
        assert_eq!(probes.levels.len(), 5);
        for (hop, answer) in probes.intermediate_answers.iter().enumerate() {
            assert_eq!(answer.first_decodable_level, Some(hop + 2), "{}: {:?}", answer.name, answer.level_counts);
            for (level, answers) in answer.level_counts.iter().enumerate() {
                let expected = if level >= hop + 2 { answers.accuracy() >= 0.99 } else { answers.accuracy() < 0.5 };
                assert!(expected, "{} at level {level}: {}", answer.name, answers.accuracy());
            }
        }
    }

    #[test]
    fn a_probe_finds_linearly_encoded_classes_and_not_parity() {
        let features: Vec<(Vec<f64>, usize)> = (0..200)
            .map(|number: usize| (vec![f64::from((number % 2) as u8), f64::from((number / 2 % 2) as u8), 1.0], number))
            .collect();
        let samples = |class: fn(usize) -> usize| {
            features.iter().map(|(row, number)| (&row[..], class(*number))).collect::<Vec<_>>()
        };
        let bits = samples(|number| number % 4);
        assert_eq!(fit_and_test(&bits[..100], &bits[100..], 4).correct, 100);
        let parity = samples(|number| (number % 2) ^ (number / 2 % 2));
        assert!(fit_and_test(&parity[..100], &parity[100..], 2).accuracy() < 0.8, "parity is not linear");
    }
}
