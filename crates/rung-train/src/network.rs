//! The network of a run before its first step.

use rung_nn::{Network, Provenance};
use rung_theory::task;

use crate::run::{Run, RunError, initial};

/// The network of a run before its first step. Opened after the last one it is [`Network::open`] of the run's directory.
///
/// # Errors
/// The model cannot be built.
pub fn initial_network(run: &Run) -> Result<Network<f32>, RunError> {
    let text = run.config.model.largest.as_ref().unwrap_or(&run.config.task);
    let task = task::parse(text).map_err(|error| RunError::task("task", error))?;
    let (model, weights) = initial::initialize(run)?;
    let (name, plan, config) = (run.plan.outline(), run.plan.clone(), run.model.clone());
    let provenance = Provenance::Run(run.config.text());
    Ok(Network { name, task: Some(task), plan, config, model, weights, provenance })
}
