//! Mixes of full and other layers under an engine: what each ratio buys and costs.
//!
//! Every mix is the model with its layers changed by [`what_if`], planned by the same
//! code as any other model.

use crate::engine::{Engine, EngineSettings, MemoryPlan, plan};
use crate::{Audit, AuditError, AuditOptions, MixerCost, what_if};

/// The ratios compared: layers that are not full to layers that are.
const RATIOS: &[&str] = &["0:1", "1:1", "3:1", "5:1", "7:1", "11:1"];

/// The model with one ratio of layers, planned under an engine.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerMix {
    /// The ratio, or `as it is`.
    pub name: String,
    /// Full layers.
    pub full: usize,
    /// Rungs.
    pub rungs: usize,
    /// Weights and arithmetic of the mixers at the context.
    pub mixer_cost: Option<MixerCost>,
    /// What the engine allocates.
    pub plan: MemoryPlan,
}

/// The model as it is and with each ratio of layers, planned under an engine.
///
/// # Errors
/// The model's layers are not all known, or the settings are refused.
pub fn mixes(
    audit: &Audit,
    engine: &'static Engine,
    settings: &EngineSettings,
    options: &AuditOptions,
) -> Result<Vec<LayerMix>, AuditError> {
    let mut rows = vec![mix("as it is", audit, engine, settings)?];
    let slots = audit.mixing_layers();
    for ratio in RATIOS {
        let others: usize = ratio.split(':').next().and_then(|text| text.parse().ok()).unwrap_or(0);
        if others + 1 > slots {
            break;
        }
        let edited = what_if::apply(audit, &format!("ratio={ratio}"), options)?;
        rows.push(mix(ratio, &edited, engine, settings)?);
    }
    Ok(rows)
}

fn mix(name: &str, audit: &Audit, engine: &'static Engine, settings: &EngineSettings) -> Result<LayerMix, AuditError> {
    let refuse = || AuditError::Request {
        text: audit.model.clone(),
        why: "the model's layers are not all known, so they cannot be mixed".to_owned(),
    };
    let capacity = audit.capacity.as_ref().filter(|_| audit.unknown.is_empty()).ok_or_else(refuse)?;
    Ok(LayerMix {
        name: name.to_owned(),
        full: capacity.full,
        rungs: capacity.rungs,
        mixer_cost: audit.mixer_cost,
        plan: plan(audit, engine, settings)?,
    })
}
