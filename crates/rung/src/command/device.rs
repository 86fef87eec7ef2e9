//! `--device`: where a model runs.
//!
//! The native engine is `cpu`. Everything else is Burn's, which is in the program only with the feature `gpu`.

use anyhow::Context as _;
use rung_burn::DeviceError;
use rung_engine::Parameters;
use rung_nn::{Model, ModelError};
use rung_train::run::evaluate::{EvaluationResult, evaluate};
use rung_train::run::source::{PromptPurpose, PromptSource};

pub use rung_burn::device::NATIVE;

/// Weights, ready to be used on a device.
pub enum Executor<'a> {
    /// By the native engine.
    Native(&'a Parameters<f32>),
    /// By Burn.
    #[cfg(feature = "gpu")]
    Burn(rung_burn::Burn<f32>),
}

/// Brings weights to a device.
///
/// # Errors
/// There is no such device, or not in this build.
pub fn open<'a>(name: &str, weights: &'a Parameters<f32>) -> anyhow::Result<Executor<'a>> {
    if name == NATIVE {
        return Ok(Executor::Native(weights));
    }
    on_device(name, weights).context("--device")
}

#[cfg(feature = "gpu")]
fn on_device(name: &str, weights: &Parameters<f32>) -> Result<Executor<'static>, DeviceError> {
    let device = rung_burn::device::named(name)?;
    Ok(Executor::Burn(rung_burn::Burn::frozen(&device, weights)?))
}

#[cfg(not(feature = "gpu"))]
fn on_device(name: &str, _: &Parameters<f32>) -> Result<Executor<'static>, DeviceError> {
    Err(rung_burn::device::refusal(name))
}

impl Executor<'_> {
    /// Asks a model all questions of some prompts; see [`evaluate`].
    ///
    /// # Errors
    /// The prompts do not fit the model.
    pub fn evaluate(
        &self,
        model: &Model,
        source: &mut PromptSource,
        numbers: (u64, PromptPurpose),
        prompts: usize,
    ) -> Result<EvaluationResult, ModelError> {
        match self {
            Self::Native(weights) => evaluate(model, weights, source, numbers, prompts),
            #[cfg(feature = "gpu")]
            Self::Burn(ops) => rung_train::run::evaluate_on(|| ops, model, source, numbers, prompts),
        }
    }
}
