//! `full_attn_idxs`: the layers (from 0) that are attention; the others are short convolutions.
//!
//! # Families
//! LFM2, older files.
//!
//! # Pitfalls
//! A convolution keeps only `conv_L_cache` - 1 inputs, however long the context.

use super::{Dialect, layer_mask};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Layout, LayerSpec, Recurrent};

pub(super) static DIALECT: Dialect = Dialect {
    name: "full_attn_idxs",
    fields: &["full_attn_idxs"],
    families: "LFM2",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(listed) = layer_mask(config, "full_attn_idxs", num_layers, 0)? else { return Ok(None) };
    let field = config.path_of("full_attn_idxs");
    let conv = || LayerSpec::recurrent(Recurrent::OneOf(&["conv"]));
    let layer = |index: usize| if listed[index] { LayerSpec::full() } else { conv() };
    Ok(Some(Layout::from_fn(num_layers, |index| layer(index).decided_by(&*field))))
}
