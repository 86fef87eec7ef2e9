//! `attn_layer_period` and `attn_layer_offset`: layer i is attention when i mod period equals the offset.
//!
//! # Families
//! Jamba.
//!
//! # Pitfalls
//! Experts have a period and offset of their own (`expert_layer_*`), which say nothing about mixers.

use super::{Dialect, period};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{LayerSpec, Layout, RecurrenceSpec};

pub(super) static DIALECT: Dialect = Dialect {
    name: "attn_layer_period",
    fields: &["attn_layer_period", "attn_layer_offset"],
    families: "Jamba",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    // Zamba's files also have Jamba's fields, which its code ignores in favour of the list.
    if config.has("n_mamba_heads") && config.has("layers_block_type") {
        return Ok(None);
    }
    let Some(period) = period(config, "attn_layer_period")? else { return Ok(None) };
    let offset = config.number("attn_layer_offset", 0, period as u64 - 1)?.unwrap_or(0) as usize;
    let field = config.path_of("attn_layer_period");
    let mamba = || LayerSpec::recurrent(RecurrenceSpec::SizesFromConfig(&["mamba1", "mamba2"]));
    let layer = |index: usize| if index % period == offset { LayerSpec::full() } else { mamba() };
    Ok(Some(Layout::from_fn(num_layers, |index| layer(index).decided_by(&*field))))
}
