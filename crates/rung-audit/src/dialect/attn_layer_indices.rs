//! `attn_layer_indices`: the indices (from 0) of the attention layers.
//!
//! # Families
//! Bamba.
//!
//! # Pitfalls
//! No field says what the other layers are: they are Mamba-2. Falcon-H1 writes `null` here and means that
//! *every* layer is attention in parallel with Mamba-2.

use super::{Dialect, layer_mask};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{LayerSpec, Layout, RecurrenceSpec};

pub(super) static DIALECT: Dialect =
    Dialect { name: "attn_layer_indices", fields: &["attn_layer_indices"], families: "Bamba", fallback: false, read };

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    // Bamba without a list has no attention; in Falcon-H1 `null` has no such meaning.
    let has_no_attention = config.has_key("attn_layer_indices") && config.model_type()? == Some("bamba");
    let is_attention =
        layer_mask(config, "attn_layer_indices", num_layers, 0)?.or(has_no_attention.then(|| vec![false; num_layers]));
    let Some(is_attention) = is_attention else { return Ok(None) };
    let field = config.path_of("attn_layer_indices");
    let mamba = || LayerSpec::recurrent(RecurrenceSpec::SizesFromConfig(&["mamba1", "mamba2"]));
    let layer = |index: usize| if is_attention[index] { LayerSpec::full() } else { mamba() };
    Ok(Some(Layout::from_fn(num_layers, |index| layer(index).decided_by(&*field))))
}
