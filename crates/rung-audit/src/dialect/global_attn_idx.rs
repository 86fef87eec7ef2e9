//! `global_attn_idx`: the indices (from 0) of layers with global attention; the others have a window.
//!
//! # Families
//! Hymba, Nemotron-Flash.
//!
//! # Pitfalls
//! In Hymba every layer is attention in parallel with Mamba, global or not, and `kv_reuse_group` lists layers that read one
//! cache: only the first layer of a group has one. Nemotron-Flash gives one letter per layer in
//! `layer_types`, and uses this list only to mark its global attention.

use super::{Dialect, layer_mask};
use crate::AuditError;
use crate::config::{Config, as_u64};
use crate::json::JsonValue;
use crate::layout::{LayerSpec, Layout, MixerOrder, RecurrenceSpec};

pub(super) static DIALECT: Dialect = Dialect {
    name: "global_attn_idx",
    fields: &["global_attn_idx", "kv_reuse_group"],
    families: "Hymba, Nemotron-Flash",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    // Layers are numbered from 0 in this list.
    let Some(is_global) = layer_mask(config, "global_attn_idx", num_layers, 0)? else { return Ok(None) };
    if config.has("layer_types") {
        return Ok(None);
    }
    let shares_cache = cache_sharing(config, num_layers)?;
    let field = config.path_of("global_attn_idx");
    Ok(Some(Layout::from_fn(num_layers, |index| {
        let base = if is_global[index] { LayerSpec::full() } else { LayerSpec::window() };
        let hybrid = base.with_recurrence(RecurrenceSpec::SizesFromConfig(&["mamba1", "mamba2"]), MixerOrder::Parallel);
        LayerSpec { shares_cache: shares_cache[index], ..hybrid.decided_by(&*field) }
    })))
}

/// A flag per layer, set for layers that read the cache of an earlier one.
fn cache_sharing(config: &Config, num_layers: usize) -> Result<Vec<bool>, AuditError> {
    let mut shares_cache = vec![false; num_layers];
    for (group_index, group) in config.list("kv_reuse_group")?.unwrap_or_default().iter().enumerate() {
        let name = format!("kv_reuse_group[{group_index}]");
        let JsonValue::List(members) = group else { return Err(config.field_error(&name, group, "a list of layers")) };
        for (position_in_group, value) in members.iter().enumerate() {
            let index = as_u64(value).filter(|&index| index < num_layers as u64);
            let Some(index) = index else {
                return Err(config.field_error(
                    &format!("{name}[{position_in_group}]"),
                    value,
                    &format!("a layer below {num_layers}"),
                ));
            };
            shares_cache[index as usize] = position_in_group > 0;
        }
    }
    Ok(shares_cache)
}
