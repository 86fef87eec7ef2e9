//! `global_attn_idx`: the layers (from 0) whose attention is global; the others have a window.
//!
//! # Families
//! Hymba, Nemotron-Flash.
//!
//! # Pitfalls
//! In Hymba every layer is attention in parallel with Mamba, global or not, and `kv_reuse_group` lists layers that read one
//! cache: all but the first of a group keep none. Nemotron-Flash names each layer's mixer in `layer_types`, letter by
//! letter, and uses this list only to mark its global attention.

use super::{Dialect, layer_mask};
use crate::AuditError;
use crate::config::{Config, as_u64};
use crate::json::JsonValue;
use crate::layout::{Join, Layout, LayerSpec, Recurrent};

pub(super) static DIALECT: Dialect = Dialect {
    name: "global_attn_idx",
    fields: &["global_attn_idx", "kv_reuse_group"],
    families: "Hymba, Nemotron-Flash",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(global) = layer_mask(config, "global_attn_idx", num_layers, 0)? else { return Ok(None) };
    if config.has("layer_types") {
        return Ok(None);
    }
    let reuses = reuse(config, num_layers)?;
    let field = config.path_of("global_attn_idx");
    Ok(Some(Layout::from_fn(num_layers, |index| {
        let base = if global[index] { LayerSpec::full() } else { LayerSpec::window() };
        let hybrid = base.with_recurrence(Recurrent::OneOf(&["mamba1", "mamba2"]), Join::Parallel);
        LayerSpec { shares_cache: reuses[index], ..hybrid.decided_by(&*field) }
    })))
}

/// Layers that read the cache of an earlier one.
fn reuse(config: &Config, num_layers: usize) -> Result<Vec<bool>, AuditError> {
    let mut reuses = vec![false; num_layers];
    for (position, group) in config.list("kv_reuse_group")?.unwrap_or_default().iter().enumerate() {
        let name = format!("kv_reuse_group[{position}]");
        let JsonValue::List(members) = group else { return Err(config.field_error(&name, group, "a list of layers")) };
        for (member, value) in members.iter().enumerate() {
            let index = as_u64(value).filter(|&index| index < num_layers as u64);
            let Some(index) = index else {
                return Err(config.field_error(&format!("{name}[{member}]"), value, &format!("a layer below {num_layers}")));
            };
            reuses[index as usize] = member > 0;
        }
    }
    Ok(reuses)
}
