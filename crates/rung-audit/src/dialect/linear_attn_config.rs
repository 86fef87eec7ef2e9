//! `linear_attn_config`: two lists of layer numbers.
//!
//! # Families
//! Kimi Linear, Kimi K3, GLM successors.
//!
//! # Pitfalls
//! Both lists count from 1, and the last layer may be full outside the period. Some files move `kda_layers` to another base
//! with `kda_layer_index_base` and leave `full_attn_layers` at 1. Together the lists must name every layer once.

use super::{Dialect, layer_mask};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Layout, LayerSpec, Recurrent};

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
    let fits = |full: &[bool]| linear.as_ref().is_none_or(|linear| linear.iter().zip(full).all(|(a, b)| a != b));
    let full = match layer_mask(config, FULL, num_layers, 1) {
        Ok(found) if base == 1 || found.as_ref().is_none_or(|full| fits(full)) => found,
        _ => layer_mask(config, FULL, num_layers, base)?,
    };
    // One list alone leaves the other layers to the other kind.
    let full = match (full, &linear) {
        (Some(full), _) => full,
        (None, Some(linear)) => linear.iter().map(|flag| !flag).collect(),
        (None, None) => return Ok(None),
    };
    if let Some(index) = linear.as_ref().and_then(|linear| linear.iter().zip(&full).position(|(a, b)| a == b)) {
        let how = if full[index] { "both" } else { "neither" };
        let why = format!("layer {} (from 1) is in {how} of them", index + 1);
        return Err(AuditError::Contradiction { first: config.path_of(LINEAR), second: config.path_of(FULL), why });
    }
    Ok(Some(Layout::from_fn(num_layers, |index| {
        if full[index] {
            LayerSpec::full().decided_by(config.path_of(FULL))
        } else {
            LayerSpec::recurrent(Recurrent::OneOf(&["kda"])).decided_by(config.path_of(LINEAR))
        }
    })))
}
