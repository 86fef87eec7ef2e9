//! The device on which a run computes.
//!
//! [`ComputeDevice`] is the native engine or a device of Burn. What depends on it is small: `GradientEngine` computes the loss and the
//! gradient of a batch, and [`ComputeDevice::evaluate`] the logits of an evaluation. Prompts, schedule, clipping, optimiser and weights
//! stay on the host and are the same for all devices, so a checkpoint of one device can be resumed on another.
//!
//! A Burn device takes the whole batch in one pass; `train.threads` has no effect there. Devices round differently, so records of the
//! same config agree up to rounding and not bit for bit. The record names the device.
//!
//! ```
//! use rung_train::run::ComputeDevice;
//!
//! assert_eq!(ComputeDevice::open("native")?.name(), "native");
//! assert!(ComputeDevice::open("abacus").is_err());
//! # #[cfg(feature = "gpu")]
//! assert_eq!(ComputeDevice::open("cpu")?.name(), "cpu"); // Burn's CPU device
//! # Ok::<(), rung_burn::DeviceError>(())
//! ```

use std::ops::Range;

pub use rung_burn::DeviceError;
pub use rung_burn::device::{NATIVE, check_built};
use rung_engine::{DataParallel, Ops, Parameters, StepError, StepOutcome};
use rung_nn::model::{IntermediateTargets, TrainingLoss};
use rung_nn::{Model, ModelError};

use super::auxiliary::SupervisedLayer;
use super::config::Run;
#[cfg(feature = "gpu")]
use super::evaluate::evaluate_on;
use super::evaluate::{EvaluationResult, evaluate};
use super::source::{Batch, PromptPurpose, PromptSource};

/// A device that computes gradients and evaluations.
#[derive(Clone, Debug, Default)]
pub enum ComputeDevice {
    /// The native engine, on the CPU.
    #[default]
    Native,
    /// A device of Burn.
    #[cfg(feature = "gpu")]
    Burn {
        /// Its name on the command line, such as `cuda`.
        name: String,
        /// Burn's handle.
        device: rung_burn::device::Device,
    },
}

impl ComputeDevice {
    /// Opens the device of this name.
    ///
    /// # Errors
    /// No device has this name, or it is not in this build, or not in this machine.
    pub fn open(name: &str) -> Result<Self, DeviceError> {
        if name == NATIVE {
            return Ok(Self::Native);
        }
        #[cfg(feature = "gpu")]
        return Ok(Self::Burn { name: name.to_owned(), device: rung_burn::device::open(name)? });
        #[cfg(not(feature = "gpu"))]
        Err(rung_burn::device::unavailable(name))
    }

    /// The name of the device.
    pub fn name(&self) -> &str {
        match self {
            Self::Native => NATIVE,
            #[cfg(feature = "gpu")]
            Self::Burn { name, .. } => name,
        }
    }

    /// Evaluates a model on all questions of some prompts; see [`evaluate`].
    ///
    /// # Errors
    /// The prompts do not fit the model.
    pub fn evaluate(
        &self,
        model: &Model,
        weights: &Parameters<f32>,
        source: &mut PromptSource,
        seed_and_purpose: (u64, PromptPurpose),
        prompts: usize,
    ) -> Result<EvaluationResult, ModelError> {
        match self {
            Self::Native => evaluate(model, weights, source, seed_and_purpose, prompts),
            #[cfg(feature = "gpu")]
            Self::Burn { device, .. } => {
                let ops = burn_ops(rung_burn::Burn::without_gradients(device, weights));
                evaluate_on(|| &ops, model, source, seed_and_purpose, prompts)
            }
        }
    }
}

/// The executor of a Burn device in single precision, which every device has.
#[cfg(feature = "gpu")]
fn burn_ops(ops: Result<rung_burn::Burn<f32>, DeviceError>) -> rung_burn::Burn<f32> {
    ops.unwrap_or_else(|error| panic!("every device computes in single precision: {error}"))
}

/// The loss of a training batch, on any executor.
pub(super) struct BatchLoss<'a> {
    /// The model.
    pub(super) model: &'a Model,
    /// The prompts of the step.
    pub(super) batch: &'a Batch,
    /// Prompts of the batch.
    pub(super) rows: usize,
    /// Layers with an auxiliary loss.
    pub(super) supervised_layers: &'a [SupervisedLayer],
    /// Weight of the auxiliary loss.
    pub(super) auxiliary_weight: f64,
}

impl BatchLoss<'_> {
    /// The share of some rows in the batch's mean loss.
    fn of_rows<O: Ops<Scalar = f32>>(&self, ops: &O, rows: Range<usize>) -> O::Tensor {
        let batch = self.batch;
        let question_weight = 1.0 / batch.question_count.max(1) as f64;
        let ids = &batch.tokens[rows.start * batch.ids_per_row..rows.end * batch.ids_per_row];
        let targets = &batch.targets[rows.start * batch.tokens_per_row..rows.end * batch.tokens_per_row];
        let intermediate: Vec<IntermediateTargets> =
            self.supervised_layers.iter().map(|layer| layer.intermediate_targets(batch, rows.clone())).collect();
        let TrainingLoss { sum, auxiliary: mixer_loss, intermediate, .. } = self
            .model
            .training_loss(ops, ids, rows.len(), targets, &intermediate)
            .unwrap_or_else(|error| unreachable!("the task was checked against the model: {error}"));
        let loss = ops.scale(&sum, question_weight);
        let loss = intermediate.map_or_else(
            || loss.clone(),
            |sum| ops.add(&loss, &ops.scale(&sum, self.auxiliary_weight * question_weight)),
        );
        let row_share = rows.len() as f64 / self.rows as f64;
        mixer_loss.map_or_else(|| loss.clone(), |sum| ops.add(&loss, &ops.scale(&sum, row_share)))
    }
}

/// Computes the loss and the gradient of a batch.
pub(super) enum GradientEngine {
    Native(DataParallel<f32>),
    #[cfg(feature = "gpu")]
    Burn {
        device: rung_burn::device::Device,
        gradient: Vec<f32>,
    },
}

impl GradientEngine {
    /// The engine of a run on a device.
    pub(super) fn new(device: &ComputeDevice, run: &Run) -> Self {
        match device {
            ComputeDevice::Native => Self::Native(DataParallel::new(run.config.train.threads, run.micro_batch())),
            #[cfg(feature = "gpu")]
            ComputeDevice::Burn { device, .. } => Self::Burn { device: device.clone(), gradient: Vec::new() },
        }
    }

    /// Forward and backward pass over a batch. The gradient is then in [`gradient`](Self::gradient).
    ///
    /// # Errors
    /// The loss or the gradient is not finite.
    pub(super) fn compute_gradient(
        &mut self,
        weights: &Parameters<f32>,
        loss: &BatchLoss<'_>,
    ) -> Result<StepOutcome, StepError> {
        match self {
            Self::Native(engine) => engine.compute_gradient(weights, loss.rows, |ops, rows| loss.of_rows(ops, rows)),
            #[cfg(feature = "gpu")]
            Self::Burn { device, gradient } => {
                let ops = burn_ops(rung_burn::Burn::with_gradients(device, weights));
                let loss = loss.of_rows(&ops, 0..loss.rows);
                let value: f64 = ops.values(&loss).into_iter().map(f64::from).sum();
                *gradient = ops.gradient(&loss);
                let norm = gradient.iter().map(|&part| f64::from(part) * f64::from(part)).sum::<f64>().sqrt();
                let non_finite = |operation, pass| {
                    StepError::from(rung_engine::NonFinite { scope: "the model".to_owned(), operation, pass })
                };
                if !value.is_finite() {
                    return Err(non_finite("loss", "forward"));
                }
                if !norm.is_finite() {
                    return Err(non_finite("gradient", "backward"));
                }
                Ok(StepOutcome { loss: value, gradient_norm: norm })
            }
        }
    }

    /// The gradient of the last step, in the order of the weights.
    pub(super) fn gradient(&self) -> &[f32] {
        match self {
            Self::Native(engine) => engine.gradient(),
            #[cfg(feature = "gpu")]
            Self::Burn { gradient, .. } => gradient,
        }
    }
}
