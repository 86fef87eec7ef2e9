//! The training loop.
//!
//! A [`Trainer`] holds a model in training and takes it one step at a time: prompts of the present stage, one step of the team,
//! one of the optimiser. At every evaluation (`evaluate.every` steps) it evaluates on the stage's task. What follows from an evaluation
//! depends on nothing else, so a run that was interrupted makes the same decisions again:
//!
//! - a stage of the curriculum is over when the evaluation is good enough, or its steps are;
//! - the run is over when the evaluation at the task itself is good enough, when the loss has not fallen for `patience` evaluations, or when
//!   all steps are done.

use std::collections::BTreeMap;
use std::time::Instant;

use rung_engine::{AdamW, DataParallel, Native, Ops as _, Parameters, Schedule};
use rung_nn::Model;
use rung_nn::model::{IntermediateTargets, TrainingLoss};
use serde::{Deserialize, Serialize};

use super::accuracy::{Accuracy, reached};
use super::auxiliary;
use super::config::Run;
use super::error::RunError;
use super::evaluate::{EvaluationResult, evaluate};
use super::initial::initialize;
use super::record::RunRecord;
use super::repel::Particles;
use super::source::{Batch, FittedTask, PromptPurpose, PromptSource};

/// One evaluation during a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Steps done.
    pub step: usize,
    /// The stage it was at; the task itself is the last.
    pub stage: usize,
    /// Mean cross-entropy, in nats.
    pub loss: f64,
    /// The same for each group of questions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub losses: BTreeMap<u16, f64>,
    /// Right answers in each group.
    pub accuracy: Accuracy,
}

/// How far a run is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps done.
    pub step: usize,
    /// The present stage.
    pub stage: usize,
    /// The step at which it began.
    pub stage_began: usize,
    /// Every evaluation so far.
    #[serde(rename = "looks")]
    pub evaluations: Vec<Evaluation>,
    /// Why it is over, if it is.
    #[serde(rename = "over")]
    pub stop_reason: Option<StopReason>,
}

/// Why a run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// Every group of questions is good enough.
    Learned,
    /// The loss no longer falls.
    Stalled,
    /// All steps are done.
    Finished,
}

/// A run after one step, for its watcher.
#[derive(Clone, Copy, Debug)]
pub struct StepReport<'a> {
    /// Steps done.
    pub step: usize,
    /// Steps of the whole run.
    pub steps: usize,
    /// Loss of the last step.
    pub loss: f64,
    /// The last evaluation, if it was made at this step.
    pub evaluation: Option<&'a Evaluation>,
    /// Tokens per second so far, in this process.
    pub tokens_per_second: f64,
    /// Seconds left if all steps are needed.
    pub seconds_left: f64,
}

/// A model in training.
pub struct Trainer<'a> {
    pub(super) run: &'a Run,
    pub(super) model: Model,
    pub(super) weights: Parameters<f32>,
    pub(super) optimizer: AdamW<f32>,
    pub(super) progress: Progress,
    team: DataParallel<f32>,
    schedule: Schedule,
    source: PromptSource,
    batch: Batch,
    particles: Option<Particles>,
    /// Layers after which an intermediate answer is asked for, and after how many hops; none without the auxiliary loss.
    supervised: Vec<auxiliary::AuxiliaryTarget>,
    started: Instant,
    tokens: u64,
    steps_here: u64,
}

impl<'a> Trainer<'a> {
    /// A model with fresh weights.
    ///
    /// # Errors
    /// It does not fit the memory, or the model cannot be built.
    pub fn new(run: &'a Run) -> Result<Self, RunError> {
        run.check_memory()?;
        let (model, weights) = initialize(run)?;
        Ok(Self {
            run,
            model,
            particles: Particles::of(run, &weights),
            weights,
            optimizer: run.optimizer().init(),
            progress: Progress::default(),
            team: DataParallel::new(run.config.train.threads, run.piece()),
            schedule: run.schedule(),
            source: run.source(0),
            batch: Batch::default(),
            supervised: if run.config.train.auxiliary > 0.0 { auxiliary::levels(&run.plan) } else { Vec::new() },
            started: Instant::now(),
            tokens: 0,
            steps_here: 0,
        })
    }

    /// How far it is.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The weights as they are.
    pub fn weights(&self) -> &Parameters<f32> {
        &self.weights
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Seconds of work in this process.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Puts a trainer where a checkpoint was.
    pub(super) fn resume(&mut self, progress: Progress) {
        self.source = self.run.source(progress.stage);
        self.progress = progress;
    }

    /// One step, and an evaluation if one is due.
    ///
    /// # Errors
    /// A number stopped being finite.
    pub fn step(&mut self) -> Result<StepReport<'_>, RunError> {
        let (train, step) = (&self.run.config.train, self.progress.step);
        self.source.fill(self.run.config.seed, PromptPurpose::Training, step as u64, train.batch, &mut self.batch);
        let (model, batch, supervised) = (&self.model, &self.batch, &self.supervised);
        let share = 1.0 / batch.questions.max(1) as f64;
        let outcome = self.team.step(&self.weights, train.batch, |ops: &Native<f32>, rows| {
            let ids = &batch.tokens[rows.start * batch.ids..rows.end * batch.ids];
            let targets = &batch.targets[rows.start * batch.length..rows.end * batch.length];
            let intermediate: Vec<IntermediateTargets> =
                supervised.iter().map(|level| level.targets(batch, rows.clone())).collect();
            let TrainingLoss { sum, own, intermediate, .. } = model
                .training_loss(ops, ids, rows.len(), targets, &intermediate)
                .unwrap_or_else(|error| unreachable!("prompts were fitted to the model: {error}"));
            let loss = ops.scale(&sum, share);
            let loss = intermediate
                .map_or_else(|| loss.clone(), |sum| ops.add(&loss, &ops.scale(&sum, train.auxiliary * share)));
            let part = rows.len() as f64 / train.batch as f64;
            own.map_or_else(|| loss.clone(), |own| ops.add(&loss, &ops.scale(&own, part)))
        });
        let outcome = outcome.map_err(|source| RunError::Step { step, source })?;
        let (gradient, factor) = (self.team.gradient(), self.schedule.factor(step));
        if let Some(particles) = &mut self.particles {
            let steered = particles.steer(&self.weights, gradient);
            self.optimizer.update(&mut self.weights, steered, factor);
            particles.walk(&mut self.weights, train.rate * factor, step);
        } else {
            self.optimizer.update(&mut self.weights, gradient, factor);
        }
        self.progress.step += 1;
        self.tokens += self.batch.targets.len() as u64;
        self.steps_here += 1;
        let due = self.progress.step.is_multiple_of(self.run.config.evaluate.every);
        let last = self.progress.step == train.steps;
        if due || last {
            self.evaluate_now()?;
        }
        Ok(self.report(outcome.loss, due || last))
    }

    fn report(&self, loss: f64, evaluated: bool) -> StepReport<'_> {
        let (seconds, step, steps) = (self.seconds(), self.progress.step, self.run.config.train.steps);
        StepReport {
            step,
            steps,
            loss,
            evaluation: self.progress.evaluations.last().filter(|_| evaluated),
            tokens_per_second: self.tokens as f64 / seconds,
            seconds_left: seconds / self.steps_here.max(1) as f64 * (steps - step) as f64,
        }
    }

    fn evaluate_now(&mut self) -> Result<(), RunError> {
        let (config, progress) = (&self.run.config, &mut self.progress);
        let prompts = config.evaluate.prompts;
        let found =
            evaluate(&self.model, &self.weights, &mut self.source, (config.seed, PromptPurpose::Validation), prompts)?;
        let EvaluationResult { accuracy, loss, losses } = found;
        let evaluation = Evaluation { step: progress.step, stage: progress.stage, loss, losses, accuracy };
        let at_task = progress.stage == config.curriculum.len();
        if let Some(stage) = config.curriculum.get(progress.stage) {
            let done = progress.step - progress.stage_began >= stage.steps;
            if done || reached(&evaluation.accuracy, stage.until) {
                progress.stage += 1;
                progress.stage_began = progress.step;
                self.source = self.run.source(progress.stage);
            }
        }
        progress.evaluations.push(evaluation);
        let stalled = config.evaluate.patience > 0 && has_stalled(&progress.evaluations, config.evaluate.patience);
        progress.stop_reason = match progress.evaluations.last() {
            Some(evaluation) if at_task && reached(&evaluation.accuracy, config.evaluate.stop_at) => {
                Some(StopReason::Learned)
            }
            _ if at_task && stalled => Some(StopReason::Stalled),
            _ if progress.step >= config.train.steps => Some(StopReason::Finished),
            _ => None,
        };
        Ok(())
    }

    /// The last evaluation: the task itself, on prompts that no decision was made by.
    ///
    /// # Errors
    /// The model cannot read them.
    pub fn test(&self) -> Result<EvaluationResult, RunError> {
        let (config, mut source) = (&self.run.config, self.run.source(usize::MAX));
        let numbers = (config.seed, PromptPurpose::Testing);
        Ok(evaluate(&self.model, &self.weights, &mut source, numbers, config.evaluate.last)?)
    }

    /// What is kept of it, once it is over.
    ///
    /// # Errors
    /// The model cannot read the prompts.
    pub fn record(&self) -> Result<RunRecord, RunError> {
        Ok(RunRecord::new(self.run, &self.progress, self.test()?, self.test_also()?))
    }

    /// The last evaluation on the other tasks that the config names.
    fn test_also(&self) -> Result<BTreeMap<String, Accuracy>, RunError> {
        let config = &self.run.config;
        let ask = |task: &FittedTask| {
            let (mut source, numbers) = (task.source(), (config.seed, PromptPurpose::Testing));
            let found = evaluate(&self.model, &self.weights, &mut source, numbers, config.evaluate.last)?;
            Ok((task.task().spec(), found.accuracy))
        };
        self.run.also.iter().map(ask).collect()
    }
}

/// Whether the last `patience` evaluations at the present stage brought no loss below those before them.
fn has_stalled(evaluations: &[Evaluation], patience: usize) -> bool {
    let Some(last) = evaluations.last() else { return false };
    let here: Vec<f64> = evaluations
        .iter()
        .filter(|evaluation| evaluation.stage == last.stage)
        .map(|evaluation| evaluation.loss)
        .collect();
    let lowest = |losses: &[f64]| losses.iter().copied().fold(f64::INFINITY, f64::min);
    here.len() > patience && lowest(&here[here.len() - patience..]) >= lowest(&here[..here.len() - patience])
}
