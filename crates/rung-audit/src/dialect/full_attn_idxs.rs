//! `full_attn_idxs`: the indices (from 0) of the attention layers; the others are short convolutions.
//!
//! # Families
//! Older files of LFM2.
//!
//! # Pitfalls
//! The field `conv_L_cache` is the kernel size: a convolution caches `conv_L_cache` - 1 inputs, whatever the context length.

use super::{Dialect, layer_mask};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{LayerSpec, Layout, RecurrenceSpec};

pub(super) static DIALECT: Dialect =
    Dialect { name: "full_attn_idxs", fields: &["full_attn_idxs"], families: "LFM2", fallback: false, read };

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(is_full) = layer_mask(config, "full_attn_idxs", num_layers, 0)? else { return Ok(None) };
    let field = config.path_of("full_attn_idxs");
    let conv = || LayerSpec::recurrent(RecurrenceSpec::SizesFromConfig(&["conv"]));
    let layer = |index: usize| if is_full[index] { LayerSpec::full() } else { conv() };
    Ok(Some(Layout::from_fn(num_layers, |index| layer(index).decided_by(&*field))))
}
