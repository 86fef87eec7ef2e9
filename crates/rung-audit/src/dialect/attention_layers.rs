//! `attention_layers`: one string per layer, `global` or `local`.
//!
//! # Families
//! GPT-Neo.
//!
//! # Pitfalls
//! The file also has `attention_types`, a nested shorthand for the same list; only the expanded list is read here.
//! transformers caches the full context for the local layers too.

use super::{Dialect, layer_from_name};
use crate::AuditError;
use crate::config::Config;
use crate::layout::Layout;

pub(super) static DIALECT: Dialect =
    Dialect { name: "attention_layers", fields: &["attention_layers"], families: "GPT-Neo", fallback: false, read };

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(names) = config.strings("attention_layers")? else { return Ok(None) };
    config.require_length("attention_layers", names.len(), num_layers)?;
    let layer = |(index, name): (usize, &str)| {
        layer_from_name(name).decided_by(config.path_of(&format!("attention_layers[{index}]")))
    };
    Ok(Some(Layout::new(names.into_iter().enumerate().map(layer).collect())))
}
