//! `global_attn_idx`: the layers (from 0) whose attention is global; the others have a window.
//!
//! # Families
//! Hymba, Nemotron-Flash.
//!
//! # Trap
//! In Hymba every layer is attention beside Mamba, global or not, and `kv_reuse_group` lists layers that read one
//! cache: all but the first of a group keep none. Nemotron-Flash names each layer's mixer in `layer_types`, letter by
//! letter, and uses this list only to tell its global attention from its local.

use super::{Dialect, each, indices};
use crate::AuditError;
use crate::config::{Config, whole};
use crate::json::Value;
use crate::layout::{Join, Layout, Reading, Recurrent};

pub(super) static DIALECT: Dialect = Dialect {
    name: "global_attn_idx",
    fields: &["global_attn_idx", "kv_reuse_group"],
    families: "Hymba, Nemotron-Flash",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let Some(global) = indices(config, "global_attn_idx", depth, 0)? else { return Ok(None) };
    if config.has("layer_types") {
        return Ok(None);
    }
    let reuses = reuse(config, depth)?;
    let by = config.path_of("global_attn_idx");
    Ok(Some(each(depth, |index| {
        let base = if global[index] { Reading::full() } else { Reading::window() };
        let joined = base.with(Recurrent::OneOf(&["mamba1", "mamba2"]), Join::Beside);
        Reading { shares_cache: reuses[index], ..joined.by(&*by) }
    })))
}

/// Layers that read the cache of an earlier one.
fn reuse(config: &Config, depth: usize) -> Result<Vec<bool>, AuditError> {
    let mut reuses = vec![false; depth];
    for (place, group) in config.list("kv_reuse_group")?.unwrap_or_default().iter().enumerate() {
        let name = format!("kv_reuse_group[{place}]");
        let Value::List(members) = group else { return Err(config.wrong(&name, group, "a list of layers")) };
        for (member, value) in members.iter().enumerate() {
            let index = whole(value).filter(|&index| index < depth as u64);
            let Some(index) = index else {
                return Err(config.wrong(&format!("{name}[{member}]"), value, &format!("a layer below {depth}")));
            };
            reuses[index as usize] = member > 0;
        }
    }
    Ok(reuses)
}
