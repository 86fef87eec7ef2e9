//! `--device`: the device on which a model runs.
//!
//! `cpu` is the native engine. All other devices are those of Burn, which is part of the program only with the feature `gpu`.

use anyhow::Context as _;
use rung_burn::DeviceError;
use rung_engine::Parameters;
use rung_nn::{Model, ModelError};
use rung_train::run::evaluate::{EvaluationResult, evaluate};
use rung_train::run::source::{PromptPurpose, PromptSource};

pub use rung_burn::device::NATIVE;

/// Weights on a device, with the engine that runs them.
pub enum Executor<'a> {
    /// The native engine.
    Native(&'a Parameters<f32>),
    /// Burn.
    #[cfg(feature = "gpu")]
    Burn(rung_burn::Burn<f32>),
}

/// Copies weights to a device.
///
/// # Errors
/// The device does not exist, or this build does not support it.
pub fn open<'a>(name: &str, weights: &'a Parameters<f32>) -> anyhow::Result<Executor<'a>> {
    if name == NATIVE {
        return Ok(Executor::Native(weights));
    }
    on_device(name, weights).context("--device")
}

#[cfg(feature = "gpu")]
fn on_device(name: &str, weights: &Parameters<f32>) -> Result<Executor<'static>, DeviceError> {
    let device = rung_burn::device::open(name)?;
    Ok(Executor::Burn(rung_burn::Burn::without_gradients(&device, weights)?))
}

#[cfg(not(feature = "gpu"))]
fn on_device(name: &str, _: &Parameters<f32>) -> Result<Executor<'static>, DeviceError> {
    Err(rung_burn::device::unavailable(name))
}

impl Executor<'_> {
    /// Evaluates a model on all questions of some prompts; see [`evaluate`].
    ///
    /// # Errors
    /// The prompts do not fit the model.
    pub fn evaluate(
        &self,
        model: &Model,
        source: &mut PromptSource,
        seed_and_purpose: (u64, PromptPurpose),
        prompts: usize,
    ) -> Result<EvaluationResult, ModelError> {
        match self {
            Self::Native(weights) => evaluate(model, weights, source, seed_and_purpose, prompts),
            #[cfg(feature = "gpu")]
            Self::Burn(ops) => rung_train::run::evaluate_on(|| ops, model, source, seed_and_purpose, prompts),
        }
    }
}
