//! Compares ratios of full to other layers under an engine: the rungs, memory and FLOPs of each ratio.
//!
//! For each ratio the model's layers are changed by [`what_if`] and planned like those of any other model.

use crate::engine::{Engine, EngineSettings, MemoryPlan, plan};
use crate::{Audit, AuditError, AuditOptions, MixerCost, what_if};

/// The ratios compared: layers that are not full to layers that are.
const RATIOS: &[&str] = &["0:1", "1:1", "3:1", "5:1", "7:1", "11:1"];

/// The model with one ratio of layers, planned under an engine.
#[derive(Clone, Debug, PartialEq)]
pub struct RatioPlan {
    /// The ratio, or `as it is`.
    pub name: String,
    /// Number of full layers.
    pub full_layer_count: usize,
    /// Hops that the changed stack can compose.
    pub rungs: usize,
    /// Weights and FLOPs of the mixers at the context.
    pub mixer_cost: Option<MixerCost>,
    /// What the engine allocates.
    pub plan: MemoryPlan,
}

/// The model as it is and with each ratio of layers, planned under an engine.
///
/// # Errors
/// The model's layers are not all known, or the settings are invalid.
pub fn plan_ratios(
    audit: &Audit,
    engine: &'static Engine,
    settings: &EngineSettings,
    options: &AuditOptions,
) -> Result<Vec<RatioPlan>, AuditError> {
    let mut plans = vec![plan_ratio("as it is", audit, engine, settings)?];
    let mixing_layer_count = audit.mixing_layer_count();
    for ratio in RATIOS {
        let other_layers: usize = ratio.split(':').next().and_then(|text| text.parse().ok()).unwrap_or(0);
        if other_layers + 1 > mixing_layer_count {
            break;
        }
        let edited = what_if::apply(audit, &format!("ratio={ratio}"), options)?;
        plans.push(plan_ratio(ratio, &edited, engine, settings)?);
    }
    Ok(plans)
}

fn plan_ratio(
    name: &str,
    audit: &Audit,
    engine: &'static Engine,
    settings: &EngineSettings,
) -> Result<RatioPlan, AuditError> {
    let unknown_layers = || {
        AuditError::invalid_argument(
            &audit.model,
            "the model's layers are not all known, so other ratios cannot be planned",
        )
    };
    let capacity = audit.capacity.as_ref().filter(|_| audit.unknown_reasons.is_empty()).ok_or_else(unknown_layers)?;
    Ok(RatioPlan {
        name: name.to_owned(),
        full_layer_count: capacity.full_layers,
        rungs: capacity.rungs,
        mixer_cost: audit.mixer_cost,
        plan: plan(audit, engine, settings)?,
    })
}
