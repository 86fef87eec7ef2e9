//! The questions that instruments ask: prompts of a task in a network's ids, and what its registers would hold.
//!
//! For function composition the oracle knows more than the answer: every `i_l` on the way. Elsewhere there is the answer alone. Checkpoints of
//! other programs are asked about prompts as text ([`TextPrompts`](super::text_prompts::TextPrompts)).

use std::any::Any;
use std::collections::BTreeMap;

use rung_engine::{Native, Ops, Parameters, Scalar, Tensor};
use rung_nn::memory;
use rung_nn::{Hooks, Model, ModelError};
use rung_theory::task::funccomp::{FuncComp, FuncCompInstance};
use rung_theory::task::{self, NO_TARGET, Task as _, seeded};

use super::{AnalysisError, InstrumentOptions};
use rung_nn::Network;
use rung_train::parallel;
use rung_train::run::accuracy::{Accuracy, AnswerCount};
use rung_train::run::error::RunError;
use rung_train::run::source::{Batch, PromptPurpose, PromptSource, seed_of};
use serde::Serialize;

/// Prompts that are read at once.
const ROWS: usize = 8;

/// A question, and the numbers on the way to its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The row of its batch.
    pub row: usize,
    /// The token that answers.
    pub position: usize,
    /// `i_1 ..` up to the hops that are asked for; or the answer alone.
    pub registers: Vec<u32>,
}

/// A batch with its questions.
pub struct QuestionBatch {
    /// Tokens, targets and groups.
    pub batch: Batch,
    /// In the order of rows and positions.
    pub questions: Vec<Question>,
}

impl QuestionBatch {
    /// Prompts in it.
    pub fn rows(&self) -> usize {
        self.batch.targets.len() / self.batch.length.max(1)
    }

    /// The tokens that answer, counted through all rows.
    pub(super) fn positions(&self) -> Vec<usize> {
        self.questions.iter().map(|one| one.row * self.batch.length + one.position).collect()
    }
}

/// What a register is called, and how many values it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterInfo {
    /// `i_1`, or `answer`.
    pub name: String,
    /// Values.
    pub values: usize,
}

/// Prompts to ask.
pub struct Questions {
    /// The task, with every option.
    pub task: String,
    /// The registers on the way to an answer.
    pub registers: Vec<RegisterInfo>,
    /// The prompts.
    pub batches: Vec<QuestionBatch>,
    /// The classes that may answer; empty if any may.
    pub symbols: Vec<usize>,
    /// What the tokens of the first prompt say, if they are text.
    pub words: Option<Vec<String>>,
}

/// Right answers and the loss of some questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Right answers.
    pub right: u64,
    /// Questions.
    pub count: u64,
    /// Sum of the negative log-probabilities of the right answers.
    pub loss: f64,
}

impl Score {
    /// Share of right answers.
    pub fn accuracy(&self) -> f64 {
        self.right as f64 / self.count as f64
    }

    /// Mean negative log-probability of the right answer.
    pub fn mean_loss(&self) -> f64 {
        self.loss / self.count as f64
    }

    fn add(&mut self, more: &Self) {
        self.right += more.right;
        self.count += more.count;
        self.loss += more.loss;
    }
}

/// Adds the scores of `more` to `all`, group by group.
pub(crate) fn merge_scores(all: &mut BTreeMap<u16, Score>, more: &BTreeMap<u16, Score>) {
    for (group, score) in more {
        all.entry(*group).or_default().add(score);
    }
}

/// All groups together.
pub(crate) fn total(scores: &BTreeMap<u16, Score>) -> Score {
    let mut all = Score::default();
    for score in scores.values() {
        all.add(score);
    }
    all
}

/// `all`, or `2-hop`.
pub(crate) fn group_name(group: u16) -> String {
    if group == 0 { "all".to_owned() } else { format!("{group}-hop") }
}

impl Questions {
    /// Draws prompts: as many as asked for, or until there are `enough` questions or too many `tokens` to read.
    ///
    /// # Errors
    /// The task cannot be read or does not fit the network.
    pub fn draw<S: Scalar>(
        network: &Network<S>,
        options: &InstrumentOptions,
        (enough, tokens): (usize, usize),
    ) -> Result<Self, AnalysisError> {
        if let Some(text) = &options.text {
            let longest = text.prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
            check_memory(network, 1, longest, options)?;
            return Ok(text.questions(options.prompts, (enough, tokens)));
        }
        let own_task = network.task()?;
        let text = options.task.clone().unwrap_or_else(|| own_task.spec());
        let parsed = || task::parse(&text).map_err(|error| RunError::task("--task", error));
        let own = parsed()?;
        let mut source = PromptSource::new("--task", parsed()?, &own_task.fields(), own_task.classes())?;
        check_memory(network, ROWS, own.length(), options)?;
        let composition = (&*own as &dyn Any).downcast_ref::<FuncComp>();
        let mut prompts = options.prompts.unwrap_or(usize::MAX);
        let (mut batches, mut questions, mut read) = (Vec::new(), 0, 0);
        while prompts > 0 {
            let rows = ROWS.min(prompts);
            let step = batches.len() as u64;
            let mut batch = Batch::default();
            source.fill(options.seed, PromptPurpose::Testing, step, rows, &mut batch);
            let asked: Vec<Question> = (0..rows)
                .flat_map(|row| {
                    let seed = seed_of(options.seed, PromptPurpose::Testing, step, row as u64);
                    asked(&batch, row, composition, seed)
                })
                .collect();
            questions += asked.len();
            read += batch.targets.len();
            prompts -= rows;
            batches.push(QuestionBatch { batch, questions: asked });
            if options.prompts.is_none() && (questions >= enough || read >= tokens) {
                break;
            }
        }
        let registers = match composition {
            Some(task) => {
                let name = |(level, size): (usize, &u32)| RegisterInfo {
                    name: format!("i_{}", level + 1),
                    values: *size as usize,
                };
                task.sizes().iter().enumerate().map(name).collect()
            }
            None => vec![RegisterInfo { name: "answer".to_owned(), values: own.classes() as usize }],
        };
        Ok(Self { task: own.spec(), registers, batches, symbols: Vec::new(), words: None })
    }

    /// Prompts in all.
    pub fn prompts(&self) -> usize {
        self.batches.iter().map(QuestionBatch::rows).sum()
    }

    /// Tokens in all.
    pub fn tokens(&self) -> usize {
        self.batches.iter().map(|asked| asked.batch.targets.len()).sum()
    }

    /// Right answers in each group, by a model with hooks on every pass.
    ///
    /// # Errors
    /// The model cannot read the prompts.
    pub fn accuracy<S: Scalar, H: Hooks<Native<S>>>(
        &self,
        model: &Model,
        weights: &Parameters<S>,
        hooks: impl Fn() -> H + Sync,
    ) -> Result<Accuracy, ModelError> {
        Ok(accuracy_of(&self.measure(model, weights, hooks)?))
    }

    /// Right answers and losses in each group, by a model with hooks on every pass. Batches run on all cores.
    ///
    /// # Errors
    /// The model cannot read the prompts.
    pub fn measure<S: Scalar, H: Hooks<Native<S>>>(
        &self,
        model: &Model,
        weights: &Parameters<S>,
        hooks: impl Fn() -> H + Sync,
    ) -> Result<BTreeMap<u16, Score>, ModelError> {
        let found = parallel::map(&self.batches, |asked| {
            let (ops, positions) = (Native::new(), asked.positions());
            ops.bind_frozen(weights);
            let stream = model.forward_with_hooks(&ops, &asked.batch.tokens, asked.rows(), &mut hooks())?;
            if positions.is_empty() {
                return Ok(BTreeMap::new());
            }
            let rows = ops.shape(&stream).rows();
            let flat = ops.gather_rows(&ops.reshape(&stream, &[rows, model.width()]), &positions);
            Ok(self.score(model, &ops, asked, &flat))
        });
        let mut all = BTreeMap::new();
        for one in found {
            merge_scores(&mut all, &one?);
        }
        Ok(all)
    }

    /// Right answers and losses of the streams at the tokens that answer, `[questions, width]`.
    pub(super) fn score<S: Scalar>(
        &self,
        model: &Model,
        ops: &Native<S>,
        asked: &QuestionBatch,
        streams: &Tensor<S>,
    ) -> BTreeMap<u16, Score> {
        self.score_with(model.classes(), ops, asked, streams, |some| model.read_out(ops, some))
    }

    /// The same of rows that something else turns into scores of classes.
    pub(super) fn score_with<S: Scalar>(
        &self,
        classes: usize,
        ops: &Native<S>,
        asked: &QuestionBatch,
        rows: &Tensor<S>,
        read_out: impl Fn(&Tensor<S>) -> Tensor<S>,
    ) -> BTreeMap<u16, Score> {
        let (positions, mut scores) = (asked.positions(), BTreeMap::<u16, Score>::new());
        for start in (0..positions.len()).step_by(SCORED) {
            let some = start..positions.len().min(start + SCORED);
            let logits = ops.values(&read_out(&ops.slice(rows, 0, some.clone())));
            for (logits, at) in logits.chunks_exact(classes).zip(&positions[some]) {
                let target = asked.batch.targets[*at] as usize;
                let best = match &self.symbols[..] {
                    [] => best(logits),
                    symbols => {
                        let better = |best: usize, one: &usize| if logits[*one] > logits[best] { *one } else { best };
                        symbols.iter().fold(symbols[0], better)
                    }
                };
                let one = Score { right: u64::from(best == target), count: 1, loss: loss(logits, target) };
                scores.entry(asked.batch.groups[*at]).or_default().add(&one);
            }
        }
        scores
    }
}

/// Refuses prompts that do not fit the memory. Instruments that look at a few read one on every core, and may keep what every token says to every
/// other; those that look at many read a batch on every core.
fn check_memory<S: Scalar>(
    network: &Network<S>,
    rows: usize,
    tokens: usize,
    options: &InstrumentOptions,
) -> Result<(), AnalysisError> {
    const FEW: usize = 4;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let prompts = options.prompts.unwrap_or(usize::MAX);
    let few = prompts <= FEW;
    let at_once = if few { cores } else { prompts.min(rows * cores) };
    network.check_memory("the instrument", (at_once, tokens), true).map_err(ModelError::Memory)?;
    if few && options.text.is_none() {
        let what = format!("the instrument: every pair of {tokens} tokens");
        memory::check(what, memory::pair_bytes(&network.plan, tokens), None).map_err(ModelError::Memory)?;
    }
    Ok(())
}

/// Questions that are read out at once: a vocabulary may be large.
const SCORED: usize = 64;

/// The negative log-probability of a class.
fn loss<S: Scalar>(logits: &[S], target: usize) -> f64 {
    let largest = logits.iter().map(|logit| logit.to_f64()).fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| (logit.to_f64() - largest).exp()).sum();
    sum.ln() + largest - logits[target].to_f64()
}

/// Right answers alone.
pub(crate) fn accuracy_of(scores: &BTreeMap<u16, Score>) -> Accuracy {
    scores.iter().map(|(group, score)| (*group, AnswerCount { right: score.right, count: score.count })).collect()
}

/// The first of the largest scores.
pub(crate) fn best<S: Scalar>(scores: &[S]) -> usize {
    (0..scores.len()).fold(0, |best, class| if scores[class] > scores[best] { class } else { best })
}

/// The questions of one row of a batch.
fn asked(batch: &Batch, row: usize, composition: Option<&FuncComp>, seed: u64) -> Vec<Question> {
    let targets = &batch.targets[row * batch.length..(row + 1) * batch.length];
    let positions = targets.iter().enumerate().filter(|(_, target)| **target != NO_TARGET);
    let Some(task) = composition else {
        let one = |(position, target): (usize, &u32)| Question { row, position, registers: vec![*target] };
        return positions.map(one).collect();
    };
    // The same seed draws the same instance as it did for the batch.
    let mut instance = FuncCompInstance::default();
    task.sample(&mut seeded(seed), &mut instance);
    let one = |((position, _), query): ((usize, &u32), &task::funccomp::Query)| {
        let reached = |hops: usize| task.follow(&instance, &task::funccomp::Query { hops, ..query.clone() });
        Question { row, position, registers: (1..=query.hops).map(reached).collect() }
    };
    positions.zip(&instance.queries).map(one).collect()
}

/// "62% of 1-hop, 99% of 2-hop questions".
pub(crate) fn shares(accuracy: &Accuracy) -> String {
    let share = |(group, tally): (&u16, &rung_train::run::accuracy::AnswerCount)| {
        let what = if *group == 0 { "all".to_owned() } else { format!("{group}-hop") };
        format!("{what} {:.1}%", 100.0 * tally.mean())
    };
    accuracy.iter().map(share).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rung_nn::construct::{ConstructionRequest, build};

    #[test]
    fn registers_end_in_the_target() {
        let built =
            build::<f32>("U1", &ConstructionRequest { hops: 3, m: 3, n: vec![2, 2], ..ConstructionRequest::default() })
                .unwrap();
        let network = built;
        let found = Questions::draw(&network, &InstrumentOptions::default(), (100, 1 << 16)).unwrap();
        assert_eq!(found.registers.iter().map(|register| register.values).collect::<Vec<_>>(), [3, 6, 12]);
        let mut count = 0;
        for QuestionBatch { batch, questions } in &found.batches {
            for one in questions {
                let target = batch.targets[one.row * batch.length + one.position];
                assert_eq!((one.registers.len(), one.registers[2]), (3, target));
                count += 1;
            }
        }
        assert!((100..120).contains(&count));
    }

    #[test]
    fn tasks_that_do_not_fit_are_named() {
        let network = build::<f32>("U1", &ConstructionRequest::default()).unwrap();
        let options = InstrumentOptions { task: Some("parity".to_owned()), ..InstrumentOptions::default() };
        let error = Questions::draw(&network, &options, (10, 100)).err().unwrap().to_string();
        assert!(error.contains("--task"), "{error}");
    }
}
