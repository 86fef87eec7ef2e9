//! The questions that analyses evaluate: prompts of a task in a network's ids, with the intermediate answers.
//!
//! For function composition every intermediate answer `i_1 .. i_L` is known, for other tasks only the answer. External checkpoints are evaluated on text prompts
//! ([`TextPrompts`](super::text_prompts::TextPrompts)).

use std::any::Any;
use std::collections::BTreeMap;

use rung_engine::{Native, Ops, Parameters, Scalar, Tensor};
use rung_nn::memory::{self, BatchShape};
use rung_nn::{Hooks, Model, ModelError};
use rung_theory::task::funccomp::{FuncComp, FuncCompInstance};
use rung_theory::task::{self, NO_TARGET, Task as _, seeded};

use super::{AnalysisError, AnalysisOptions, ProgressReporter};
use rung_nn::Network;
use rung_train::parallel;
use rung_train::run::accuracy::{AccuracyByGroup, AnswerCount};
use rung_train::run::error::RunError;
use rung_train::run::source::{Batch, PromptPurpose, PromptSource, prompt_seed};
use serde::Serialize;

/// Prompts per batch.
const BATCH_SIZE: usize = 8;

/// A question with its intermediate answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The row of the batch.
    pub row: usize,
    /// Position of the token that answers.
    pub position: usize,
    /// The intermediate answers `i_1, i_2, ..` up to the answer; or only the answer.
    pub intermediate_answers: Vec<u32>,
}

/// A batch with its questions.
pub struct QuestionBatch {
    /// Tokens, targets and groups.
    pub batch: Batch,
    /// Sorted by row and position.
    pub questions: Vec<Question>,
}

impl QuestionBatch {
    /// Number of prompts.
    pub fn rows(&self) -> usize {
        self.batch.targets.len() / self.batch.tokens_per_row.max(1)
    }

    /// Positions of the tokens that answer, in the concatenation of all rows.
    pub(super) fn positions(&self) -> Vec<usize> {
        self.questions.iter().map(|question| question.row * self.batch.tokens_per_row + question.position).collect()
    }
}

/// The name of an intermediate answer and its number of possible values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntermediateAnswer {
    /// `i_1`, `i_2`, .. or `answer`.
    pub name: String,
    /// Number of possible values.
    pub value_count: usize,
}

/// When to stop drawing prompts, if their number is not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuestionLimits {
    /// Stop from this number of questions on.
    pub questions: usize,
    /// Stop from this number of tokens on.
    pub tokens: usize,
}

impl QuestionLimits {
    /// No limits.
    pub const NONE: Self = Self { questions: usize::MAX, tokens: usize::MAX };
}

/// Prompts with their questions.
pub struct Questions {
    /// The task, with every option.
    pub task: String,
    /// The intermediate answers that questions have.
    pub intermediate_answers: Vec<IntermediateAnswer>,
    /// The prompts.
    pub batches: Vec<QuestionBatch>,
    /// The classes that count as answers; empty if every class does.
    pub symbols: Vec<usize>,
    /// The tokens of the first prompt as text, for text prompts.
    pub token_texts: Option<Vec<String>>,
    /// Where progress is reported.
    pub progress: ProgressReporter,
}

/// Correct answers and the summed loss of a metric group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GroupScore {
    /// Number of correct answers.
    #[serde(rename = "right")]
    pub correct: u64,
    /// Number of questions.
    pub count: u64,
    /// Sum of the negative log-probabilities of the targets.
    #[serde(rename = "loss")]
    pub loss_sum: f64,
}

impl GroupScore {
    /// Share of correct answers.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.count as f64
    }

    /// Mean negative log-probability of the target.
    pub fn mean_loss(&self) -> f64 {
        self.loss_sum / self.count as f64
    }

    fn add(&mut self, other: &Self) {
        self.correct += other.correct;
        self.count += other.count;
        self.loss_sum += other.loss_sum;
    }
}

/// Adds `other` to `scores`, group by group.
pub(crate) fn merge_scores(scores: &mut BTreeMap<u16, GroupScore>, other: &BTreeMap<u16, GroupScore>) {
    for (group, score) in other {
        scores.entry(*group).or_default().add(score);
    }
}

/// The score of all groups together.
pub(crate) fn total_score(scores: &BTreeMap<u16, GroupScore>) -> GroupScore {
    let mut total = GroupScore::default();
    for score in scores.values() {
        total.add(score);
    }
    total
}

/// `all` for group 0, `2-hop` for group 2.
pub(crate) fn group_name(group: u16) -> String {
    if group == 0 { "all".to_owned() } else { format!("{group}-hop") }
}

impl Questions {
    /// Draws `options.prompts` prompts, or by default until a limit is reached.
    ///
    /// # Errors
    /// The task cannot be parsed or does not fit the network.
    pub fn sample<S: Scalar>(
        network: &Network<S>,
        options: &AnalysisOptions,
        limits: QuestionLimits,
    ) -> Result<Self, AnalysisError> {
        if let Some(text) = &options.text {
            let questions = text.questions(options.prompts, limits);
            questions.check_memory(network)?;
            return Ok(Self { progress: options.progress.clone(), ..questions });
        }
        let network_task = network.task()?;
        let spec = options.task.clone().unwrap_or_else(|| network_task.spec());
        let parse = || task::parse(&spec).map_err(|error| RunError::invalid_task("--task", error));
        let task = parse()?;
        let mut source = PromptSource::new("--task", parse()?, &network_task.fields(), network_task.classes())?;
        check_memory(network, BATCH_SIZE, task.length(), options)?;
        if let Some(prompts) = options.prompts {
            // All prompts are kept: for each token the ids of its fields, its answer and its group.
            let ids = network_task.fields().len() + 2;
            let bytes = (size_of::<u32>() * ids) as u128 * task.length() as u128 * prompts as u128;
            memory::check(format!("{prompts} prompts of {} tokens", task.length()), bytes, None)
                .map_err(ModelError::Memory)?;
        }
        let composition = (&*task as &dyn Any).downcast_ref::<FuncComp>();
        let mut prompts_left = options.prompts.unwrap_or(usize::MAX);
        let (mut batches, mut question_count, mut token_count) = (Vec::new(), 0, 0);
        while prompts_left > 0 {
            let rows = BATCH_SIZE.min(prompts_left);
            let step = batches.len() as u64;
            let mut batch = Batch::default();
            source.fill(options.seed, PromptPurpose::Testing, step, rows, &mut batch);
            let questions: Vec<Question> = (0..rows)
                .flat_map(|row| {
                    let seed = prompt_seed(options.seed, PromptPurpose::Testing, step, row as u64);
                    questions_of_row(&batch, row, composition, seed)
                })
                .collect();
            question_count += questions.len();
            token_count += batch.targets.len();
            prompts_left -= rows;
            batches.push(QuestionBatch { batch, questions });
            if options.prompts.is_none() && (question_count >= limits.questions || token_count >= limits.tokens) {
                break;
            }
        }
        let intermediate_answers = match composition {
            Some(task) => {
                let name = |(level, size): (usize, &u32)| IntermediateAnswer {
                    name: format!("i_{}", level + 1),
                    value_count: *size as usize,
                };
                task.sizes().iter().enumerate().map(name).collect()
            }
            None => vec![IntermediateAnswer { name: "answer".to_owned(), value_count: task.classes() as usize }],
        };
        let (symbols, progress) = (Vec::new(), options.progress.clone());
        Ok(Self { task: task.spec(), intermediate_answers, batches, symbols, token_texts: None, progress })
    }

    /// Rejects text prompts that do not fit the memory: every core runs a batch at a time, and all read the same weights.
    pub(crate) fn check_memory<S: Scalar>(&self, network: &Network<S>) -> Result<(), ModelError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from).min(self.batches.len());
        let size = |batch: &QuestionBatch| (batch.batch.targets.len(), batch.rows());
        let Some(largest) = self.batches.iter().max_by_key(|batch| size(batch)) else { return Ok(()) };
        let batch = BatchShape { prompts: largest.rows(), tokens: largest.batch.tokens_per_row };
        network.check_evaluation_memory("text prompts", cores, batch, MAX_LOGIT_ROWS).map_err(ModelError::Memory)
    }

    /// Number of prompts.
    pub fn prompt_count(&self) -> usize {
        self.batches.iter().map(QuestionBatch::rows).sum()
    }

    /// Number of tokens.
    pub fn token_count(&self) -> usize {
        self.batches.iter().map(|batch| batch.batch.targets.len()).sum()
    }

    /// Runs `job` on every batch, on all cores, and reports progress. Results are in the order of the batches.
    pub(crate) fn map_batches<Output: Send>(&self, job: impl Fn(&QuestionBatch) -> Output + Sync) -> Vec<Output> {
        parallel::map(&self.batches, |question_batch| {
            let output = job(question_batch);
            self.progress.advance(question_batch.rows());
            output
        })
    }

    /// Correct answers of a model with hooks, in each group.
    ///
    /// # Errors
    /// The prompts do not fit the model.
    pub fn accuracy<S: Scalar, H: Hooks<Native<S>>>(
        &self,
        model: &Model,
        weights: &Parameters<S>,
        hooks: impl Fn() -> H + Sync,
    ) -> Result<AccuracyByGroup, ModelError> {
        Ok(accuracy_of(&self.measure(model, weights, hooks)?))
    }

    /// Correct answers and losses of a model with hooks, in each group. Batches run on all cores.
    ///
    /// # Errors
    /// The prompts do not fit the model.
    pub fn measure<S: Scalar, H: Hooks<Native<S>>>(
        &self,
        model: &Model,
        weights: &Parameters<S>,
        hooks: impl Fn() -> H + Sync,
    ) -> Result<BTreeMap<u16, GroupScore>, ModelError> {
        let results = self.map_batches(|question_batch| {
            let (ops, positions) = (Native::new(), question_batch.positions());
            ops.bind_frozen(weights);
            let residual =
                model.forward_with_hooks(&ops, &question_batch.batch.tokens, question_batch.rows(), &mut hooks())?;
            if positions.is_empty() {
                return Ok(BTreeMap::new());
            }
            let rows = ops.shape(&residual).rows();
            let flat = ops.gather_rows(&ops.reshape(&residual, &[rows, model.width()]), &positions);
            Ok(self.score(model, &ops, question_batch, &flat))
        });
        let mut scores = BTreeMap::new();
        for batch_scores in results {
            merge_scores(&mut scores, &batch_scores?);
        }
        Ok(scores)
    }

    /// Correct answers and losses from the residual streams at the tokens that answer, `[questions, width]`.
    pub(super) fn score<S: Scalar>(
        &self,
        model: &Model,
        ops: &Native<S>,
        question_batch: &QuestionBatch,
        residual: &Tensor<S>,
    ) -> BTreeMap<u16, GroupScore> {
        self.score_with(model.classes(), ops, question_batch, residual, |rows| model.logits_from_residual(ops, rows))
    }

    /// As [`score`](Self::score), with another function from rows to logits.
    pub(super) fn score_with<S: Scalar>(
        &self,
        classes: usize,
        ops: &Native<S>,
        question_batch: &QuestionBatch,
        rows: &Tensor<S>,
        logits_of: impl Fn(&Tensor<S>) -> Tensor<S>,
    ) -> BTreeMap<u16, GroupScore> {
        let (positions, mut scores) = (question_batch.positions(), BTreeMap::<u16, GroupScore>::new());
        for start in (0..positions.len()).step_by(MAX_LOGIT_ROWS) {
            let range = start..positions.len().min(start + MAX_LOGIT_ROWS);
            let logits = ops.values(&logits_of(&ops.slice(rows, 0, range.clone())));
            for (logits, position) in logits.chunks_exact(classes).zip(&positions[range]) {
                let target = question_batch.batch.targets[*position] as usize;
                let answer = match &self.symbols[..] {
                    [] => argmax(logits),
                    symbols => {
                        let better = |best: usize, class: &usize| {
                            if logits[*class] > logits[best] { *class } else { best }
                        };
                        symbols.iter().fold(symbols[0], better)
                    }
                };
                let score = GroupScore {
                    correct: u64::from(answer == target),
                    count: 1,
                    loss_sum: negative_log_probability(logits, target),
                };
                scores.entry(question_batch.batch.groups[*position]).or_default().add(&score);
            }
        }
        scores
    }
}

/// Rejects prompts that do not fit the memory. Analyses with few prompts run one on every core and may store a matrix of all token pairs;
/// those with many run a batch on every core.
fn check_memory<S: Scalar>(
    network: &Network<S>,
    rows: usize,
    tokens: usize,
    options: &AnalysisOptions,
) -> Result<(), AnalysisError> {
    const FEW_PROMPTS: usize = 4;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let prompts = options.prompts.unwrap_or(usize::MAX);
    let few_prompts = prompts <= FEW_PROMPTS;
    let concurrent_prompts = if few_prompts { cores } else { prompts.min(rows * cores) };
    network
        .check_training_memory("the analysis", BatchShape { prompts: concurrent_prompts, tokens })
        .map_err(ModelError::Memory)?;
    if few_prompts && options.text.is_none() {
        let description = format!("the analysis: every pair of {tokens} tokens");
        memory::check(description, memory::attention_weight_bytes(&network.plan, tokens), None)
            .map_err(ModelError::Memory)?;
    }
    Ok(())
}

/// Questions whose logits are computed at once; few, because a vocabulary may be large.
const MAX_LOGIT_ROWS: usize = 64;

/// The negative log-probability of a class.
fn negative_log_probability<S: Scalar>(logits: &[S], target: usize) -> f64 {
    let largest = logits.iter().map(|logit| logit.to_f64()).fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit.to_f64() - largest).exp()).sum();
    sum.ln() + largest - logits[target].to_f64()
}

/// The correct answers of each group, without losses.
pub(crate) fn accuracy_of(scores: &BTreeMap<u16, GroupScore>) -> AccuracyByGroup {
    scores.iter().map(|(group, score)| (*group, AnswerCount { correct: score.correct, count: score.count })).collect()
}

/// The class of the largest logit; the first of equal ones.
pub(crate) fn argmax<S: Scalar>(logits: &[S]) -> usize {
    (0..logits.len()).fold(0, |best, class| if logits[class] > logits[best] { class } else { best })
}

/// The questions of one row of a batch, whose prompt was drawn with `seed`.
fn questions_of_row(batch: &Batch, row: usize, composition: Option<&FuncComp>, seed: u64) -> Vec<Question> {
    let targets = &batch.targets[row * batch.tokens_per_row..(row + 1) * batch.tokens_per_row];
    let positions = targets.iter().enumerate().filter(|(_, target)| **target != NO_TARGET);
    let Some(task) = composition else {
        let question =
            |(position, target): (usize, &u32)| Question { row, position, intermediate_answers: vec![*target] };
        return positions.map(question).collect();
    };
    // The seed gives the same instance as when the batch was filled.
    let mut instance = FuncCompInstance::default();
    task.sample(&mut seeded(seed), &mut instance);
    let question = |((position, _), query): ((usize, &u32), &task::funccomp::Query)| {
        let intermediate = |hops: usize| task.follow(&instance, &task::funccomp::Query { hops, ..query.clone() });
        Question { row, position, intermediate_answers: (1..=query.hops).map(intermediate).collect() }
    };
    positions.zip(&instance.queries).map(question).collect()
}

/// "1-hop 62.0%, 2-hop 99.0%".
pub(crate) fn accuracy_text(accuracy: &AccuracyByGroup) -> String {
    let share =
        |(group, answers): (&u16, &AnswerCount)| format!("{} {:.1}%", group_name(*group), 100.0 * answers.accuracy());
    accuracy.iter().map(share).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_nn::construct::{ConstructionRequest, build};

    #[test]
    fn a_pass_reports_every_prompt() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};

        let network = build::<f32>("U1", &ConstructionRequest::default()).unwrap();
        let prompt_count = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&prompt_count);
        let progress = ProgressReporter::new(move |prompts| {
            counter.fetch_add(prompts, Ordering::Relaxed);
        });
        let options = AnalysisOptions { prompts: Some(19), progress, ..AnalysisOptions::default() };
        let questions =
            Questions::sample(&network, &options, QuestionLimits { questions: 100, tokens: 1 << 16 }).unwrap();
        questions.measure(&network.model, &network.weights, || rung_nn::NoHooks).unwrap();
        assert_eq!(prompt_count.load(Ordering::Relaxed), 19);
    }

    #[test]
    fn the_last_intermediate_answer_of_a_question_is_its_answer() {
        let request = ConstructionRequest {
            hops: 3,
            first_table_entries: 3,
            growth_factors: vec![2, 2],
            ..ConstructionRequest::default()
        };
        let network = build::<f32>("U1", &request).unwrap();
        let questions = Questions::sample(
            &network,
            &AnalysisOptions::default(),
            QuestionLimits { questions: 100, tokens: 1 << 16 },
        )
        .unwrap();
        assert_eq!(
            questions
                .intermediate_answers
                .iter()
                .map(|intermediate_answer| intermediate_answer.value_count)
                .collect::<Vec<_>>(),
            [3, 6, 12]
        );
        let mut count = 0;
        for QuestionBatch { batch, questions } in &questions.batches {
            for question in questions {
                let target = batch.targets[question.row * batch.tokens_per_row + question.position];
                assert_eq!((question.intermediate_answers.len(), question.intermediate_answers[2]), (3, target));
                count += 1;
            }
        }
        assert!((100..120).contains(&count));
    }

    #[test]
    fn tasks_that_do_not_fit_are_rejected() {
        let network = build::<f32>("U1", &ConstructionRequest::default()).unwrap();
        let options = AnalysisOptions { task: Some("parity".to_owned()), ..AnalysisOptions::default() };
        let error = Questions::sample(&network, &options, QuestionLimits { questions: 10, tokens: 100 })
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("--task"), "{error}");
    }
}
