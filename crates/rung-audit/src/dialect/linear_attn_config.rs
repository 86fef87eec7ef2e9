//! `linear_attn_config`: two lists of layer numbers, one for KDA layers and one for full layers.
//!
//! # Families
//! Kimi Linear, Kimi K3, GLM successors.
//!
//! # Pitfalls
//! Both lists count from 1, and the last layer may be full outside the period. In some files `kda_layer_index_base` says that
//! `kda_layers` counts from 0, while `full_attn_layers` still counts from 1. Together the lists must name every layer once.

use super::{Dialect, layer_mask};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{LayerSpec, Layout, RecurrenceSpec};

pub(super) static DIALECT: Dialect = Dialect {
    name: "linear_attn_config",
    fields: &["linear_attn_config.kda_layers", "linear_attn_config.full_attn_layers"],
    families: "Kimi Linear, Kimi K3",
    fallback: false,
    read,
};

const LINEAR: &str = "linear_attn_config.kda_layers";
const FULL: &str = "linear_attn_config.full_attn_layers";
const BASE: &str = "linear_attn_config.kda_layer_index_base";

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    if !config.has(LINEAR) && !config.has(FULL) {
        return Ok(None);
    }
    let base = config.number(BASE, 0, 1)?.unwrap_or(1);
    let linear = layer_mask(config, LINEAR, num_layers, base)?;
    let complements = |full: &[bool]| {
        linear.as_ref().is_none_or(|linear| linear.iter().zip(full).all(|(linear, full)| linear != full))
    };
    let full = match layer_mask(config, FULL, num_layers, 1) {
        Ok(full) if base == 1 || full.as_ref().is_none_or(|full| complements(full)) => full,
        _ => layer_mask(config, FULL, num_layers, base)?,
    };
    // With only one list, the layers it omits are of the other kind.
    let full = match (full, &linear) {
        (Some(full), _) => full,
        (None, Some(linear)) => linear.iter().map(|flag| !flag).collect(),
        (None, None) => return Ok(None),
    };
    if let Some(index) =
        linear.as_ref().and_then(|linear| linear.iter().zip(&full).position(|(linear, full)| linear == full))
    {
        let lists = if full[index] { "both" } else { "neither" };
        let why = format!("layer {} (from 1) is in {lists} of them", index + 1);
        return Err(AuditError::Contradiction { first: config.path_of(LINEAR), second: config.path_of(FULL), why });
    }
    Ok(Some(Layout::from_fn(num_layers, |index| {
        if full[index] {
            LayerSpec::full().decided_by(config.path_of(FULL))
        } else {
            LayerSpec::recurrent(RecurrenceSpec::SizesFromConfig(&["kda"])).decided_by(config.path_of(LINEAR))
        }
    })))
}
