//! The network of a run before its first training step.

use rung_nn::{Network, Provenance};
use rung_theory::task;

use crate::run::{Run, RunError, initial};

/// The network of a run with its initial weights. [`Network::open`] on the run's directory gives the trained one.
///
/// # Errors
/// The model cannot be built.
pub fn initial_network(run: &Run) -> Result<Network<f32>, RunError> {
    // The largest task that the model must have room for, if the run names one beside its own.
    let task_spec = run.config.model.largest.as_ref().unwrap_or(&run.config.task);
    let task = task::parse(task_spec).map_err(|error| RunError::invalid_task("task", error))?;
    let (model, weights) = initial::initialize(run)?;
    let (name, plan, config) = (run.plan.mixer_names(), run.plan.clone(), run.model.clone());
    let provenance = Provenance::Run(run.config.to_toml());
    Ok(Network { name, task: Some(task), plan, config, model, weights, provenance })
}
