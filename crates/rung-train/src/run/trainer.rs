//! The training loop.
//!
//! A [`Trainer`] trains a model one step at a time: prompts of the current stage of the curriculum, forward and backward passes on
//! several threads or on another [`device`](super::device), one step of AdamW. Every `evaluate.every` steps it evaluates the model on the stage's task. Decisions depend only
//! on evaluations and steps, so a resumed run makes the same decisions:
//!
//! - a stage of the curriculum ends when its accuracy is high enough, or after its steps;
//! - the run ends when the accuracy on its last task is high enough, when the loss has not fallen for `patience` evaluations, or after
//!   all steps.

use std::collections::BTreeMap;
use std::time::Instant;

use rung_engine::{AdamW, Parameters, Schedule};
use rung_nn::Model;
use serde::{Deserialize, Serialize};

use super::accuracy::{AccuracyByGroup, all_groups_reach};
use super::auxiliary::{SupervisedLayer, supervised_layers};
use super::config::Run;
use super::device::{BatchLoss, ComputeDevice, GradientEngine};
use super::error::RunError;
use super::evaluate::EvaluationResult;
use super::initial::initialize;
use super::record::RunRecord;
use super::repel::RepellingHeads;
use super::source::{Batch, PromptPurpose, PromptSource, TaskForModel};

/// One evaluation during a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Steps before this evaluation.
    pub step: usize,
    /// The curriculum stage, from 0. The number after the last stage is the run's own task.
    pub stage: usize,
    /// Mean cross-entropy, in nats.
    pub loss: f64,
    /// Mean cross-entropy of each metric group, in nats.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub losses: BTreeMap<u16, f64>,
    /// Correct answers in each metric group.
    pub accuracy: AccuracyByGroup,
}

/// The progress of a run, stored in its checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Steps so far.
    pub step: usize,
    /// The current curriculum stage.
    pub stage: usize,
    /// The step at which the current stage began.
    pub stage_began: usize,
    /// Every evaluation so far.
    #[serde(rename = "looks")]
    pub evaluations: Vec<Evaluation>,
    /// Why the run ended; `None` while it is running.
    #[serde(rename = "over")]
    pub stop_reason: Option<StopReason>,
    /// Steps on each device other than the native engine, which took all others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub device_steps: BTreeMap<String, usize>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopReason {
    /// The accuracy is at least `evaluate.stop_at` in every metric group.
    Learned,
    /// The loss did not fall for `evaluate.patience` evaluations.
    Stalled,
    /// All steps were taken.
    Finished,
}

/// The state of a run after a step, for progress displays.
#[derive(Clone, Copy, Debug)]
pub struct StepReport<'a> {
    /// Steps so far.
    pub step: usize,
    /// Steps of the run in total.
    pub steps: usize,
    /// Training loss of this step.
    pub loss: f64,
    /// The evaluation at this step, if there was one.
    pub evaluation: Option<&'a Evaluation>,
    /// Tokens per second so far, in this process.
    pub tokens_per_second: f64,
    /// Estimated seconds until the last step.
    pub seconds_left: f64,
}

/// A model in training, with its optimiser and its progress.
pub struct Trainer<'a> {
    pub(super) run: &'a Run,
    pub(super) model: Model,
    pub(super) weights: Parameters<f32>,
    pub(super) optimizer: AdamW<f32>,
    pub(super) progress: Progress,
    device: ComputeDevice,
    gradient_engine: GradientEngine,
    schedule: Schedule,
    source: PromptSource,
    batch: Batch,
    repelling_heads: Option<RepellingHeads>,
    /// Empty without the auxiliary loss.
    supervised_layers: Vec<SupervisedLayer>,
    started: Instant,
    /// Tokens trained on by this process.
    token_count: u64,
    /// Steps taken by this process.
    step_count: u64,
}

impl<'a> Trainer<'a> {
    /// A trainer on the native engine with initial weights, before the first step.
    ///
    /// # Errors
    /// The run does not fit the memory, or the model cannot be built.
    pub fn new(run: &'a Run) -> Result<Self, RunError> {
        Self::on_device(run, &ComputeDevice::Native)
    }

    /// A trainer on a device with initial weights, before the first step.
    ///
    /// # Errors
    /// As [`new`](Self::new). The memory of the device is not checked.
    pub fn on_device(run: &'a Run, device: &ComputeDevice) -> Result<Self, RunError> {
        run.check_memory()?;
        let (model, weights) = initialize(run)?;
        Ok(Self {
            run,
            model,
            repelling_heads: RepellingHeads::new(run, &weights),
            weights,
            optimizer: run.optimizer().init(),
            progress: Progress::default(),
            device: device.clone(),
            gradient_engine: GradientEngine::new(device, run),
            schedule: run.schedule(),
            source: run.source(0),
            batch: Batch::default(),
            supervised_layers: if run.config.train.auxiliary > 0.0 { supervised_layers(&run.plan) } else { Vec::new() },
            started: Instant::now(),
            token_count: 0,
            step_count: 0,
        })
    }

    /// The run that is trained.
    pub(super) fn run(&self) -> &'a Run {
        self.run
    }

    /// Steps, stage and evaluations so far.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The current weights.
    pub fn weights(&self) -> &Parameters<f32> {
        &self.weights
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Seconds since this trainer was created.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Continues from the progress of a checkpoint; the caller restores weights and optimiser.
    pub(super) fn resume(&mut self, progress: Progress) {
        self.source = self.run.source(progress.stage);
        self.progress = progress;
    }

    /// Takes one training step, and evaluates the model if an evaluation is due.
    ///
    /// # Errors
    /// The loss or the gradient is not finite.
    pub fn step(&mut self) -> Result<StepReport<'_>, RunError> {
        let (train, step) = (&self.run.config.train, self.progress.step);
        self.source.fill(self.run.config.seed, PromptPurpose::Training, step as u64, train.batch, &mut self.batch);
        let loss = BatchLoss {
            model: &self.model,
            batch: &self.batch,
            rows: train.batch,
            supervised_layers: &self.supervised_layers,
            auxiliary_weight: train.auxiliary,
        };
        let outcome = self.gradient_engine.compute_gradient(&self.weights, &loss);
        let outcome = outcome.map_err(|source| RunError::Step { step, source })?;
        let (gradient, factor) = (self.gradient_engine.gradient(), self.schedule.factor(step));
        if let Some(heads) = &mut self.repelling_heads {
            let gradient = heads.repelled_gradient(&self.weights, gradient);
            self.optimizer.update(&mut self.weights, gradient, factor);
            heads.add_noise(&mut self.weights, train.rate * factor, step);
        } else {
            self.optimizer.update(&mut self.weights, gradient, factor);
        }
        self.progress.step += 1;
        if !matches!(self.device, ComputeDevice::Native) {
            *self.progress.device_steps.entry(self.device.name().to_owned()).or_default() += 1;
        }
        self.token_count += self.batch.targets.len() as u64;
        self.step_count += 1;
        let evaluation_due = self.progress.step.is_multiple_of(self.run.config.evaluate.every);
        let is_last_step = self.progress.step == train.steps;
        if evaluation_due || is_last_step {
            self.evaluate_and_advance()?;
        }
        Ok(self.report(outcome.loss, evaluation_due || is_last_step))
    }

    fn report(&self, loss: f64, evaluated: bool) -> StepReport<'_> {
        let (seconds, step, steps) = (self.seconds(), self.progress.step, self.run.config.train.steps);
        StepReport {
            step,
            steps,
            loss,
            evaluation: self.progress.evaluations.last().filter(|_| evaluated),
            tokens_per_second: self.token_count as f64 / seconds,
            seconds_left: seconds / self.step_count.max(1) as f64 * steps.saturating_sub(step) as f64,
        }
    }

    /// Evaluates the model, then decides whether the curriculum stage or the run ends.
    fn evaluate_and_advance(&mut self) -> Result<(), RunError> {
        let (config, progress) = (&self.run.config, &mut self.progress);
        let (seed_and_purpose, prompts) =
            ((config.seed, PromptPurpose::Validation), config.evaluate.validation_prompts);
        let EvaluationResult { accuracy, loss, losses } =
            self.device.evaluate(&self.model, &self.weights, &mut self.source, seed_and_purpose, prompts)?;
        let evaluation = Evaluation { step: progress.step, stage: progress.stage, loss, losses, accuracy };
        let after_curriculum = progress.stage == config.curriculum.len();
        if let Some(stage) = config.curriculum.get(progress.stage) {
            let out_of_steps = progress.step - progress.stage_began >= stage.steps;
            if out_of_steps || all_groups_reach(&evaluation.accuracy, stage.until) {
                progress.stage += 1;
                progress.stage_began = progress.step;
                self.source = self.run.source(progress.stage);
            }
        }
        progress.evaluations.push(evaluation);
        let stalled = config.evaluate.patience > 0 && has_stalled(&progress.evaluations, config.evaluate.patience);
        progress.stop_reason = match progress.evaluations.last() {
            Some(evaluation) if after_curriculum && all_groups_reach(&evaluation.accuracy, config.evaluate.stop_at) => {
                Some(StopReason::Learned)
            }
            _ if after_curriculum && stalled => Some(StopReason::Stalled),
            _ if progress.step >= config.train.steps => Some(StopReason::Finished),
            _ => None,
        };
        Ok(())
    }

    /// The final test: the run's task, on prompts that were not used for training or for any decision.
    ///
    /// # Errors
    /// The prompts do not fit the model.
    pub fn test(&self) -> Result<EvaluationResult, RunError> {
        self.test_on(&self.run.task)
    }

    fn test_on(&self, task: &TaskForModel) -> Result<EvaluationResult, RunError> {
        let (config, mut source) = (&self.run.config, task.source());
        let seed_and_purpose = (config.seed, PromptPurpose::Testing);
        Ok(self.device.evaluate(
            &self.model,
            &self.weights,
            &mut source,
            seed_and_purpose,
            config.evaluate.test_prompts,
        )?)
    }

    /// The record of the finished run, with the final test.
    ///
    /// # Errors
    /// The prompts do not fit the model.
    pub fn record(&self) -> Result<RunRecord, RunError> {
        Ok(RunRecord::new(self.run, &self.progress, &self.device, self.test()?, self.test_other_tasks()?))
    }

    /// The final test on the tasks of `evaluate.also`.
    fn test_other_tasks(&self) -> Result<BTreeMap<String, AccuracyByGroup>, RunError> {
        let test = |task: &TaskForModel| Ok((task.task().spec(), self.test_on(task)?.accuracy));
        self.run.other_tasks.iter().map(test).collect()
    }
}

/// Whether no loss of the last `patience` evaluations of the current stage is below all earlier losses of the stage.
fn has_stalled(evaluations: &[Evaluation], patience: usize) -> bool {
    let Some(last) = evaluations.last() else { return false };
    let losses: Vec<f64> = evaluations
        .iter()
        .filter(|evaluation| evaluation.stage == last.stage)
        .map(|evaluation| evaluation.loss)
        .collect();
    let lowest = |losses: &[f64]| losses.iter().copied().fold(f64::INFINITY, f64::min);
    losses.len() > patience && lowest(&losses[losses.len() - patience..]) >= lowest(&losses[..losses.len() - patience])
}
