//! `block_pattern`: a short list of names, repeated to the depth of the model.
//!
//! # Families
//! OLMo-core.
//!
//! # Pitfalls
//! Authors choose the names, which are keys of `block`; only well-known ones (`attn`, `gdn`, `mamba`, ..) are read,
//! others are unknown. The depth must be a multiple of the pattern's length.

use super::{Dialect, layer_from_name};
use crate::AuditError;
use crate::config::Config;
use crate::layout::Layout;

pub(super) static DIALECT: Dialect =
    Dialect { name: "block_pattern", fields: &["block_pattern"], families: "OLMo-core", fallback: false, read };

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(names) = config.strings("block_pattern")? else { return Ok(None) };
    if names.is_empty() || !num_layers.is_multiple_of(names.len()) {
        let found = format!("a list of {}", names.len());
        return Err(AuditError::field(
            config.path_of("block_pattern"),
            found,
            format!("a list whose length divides {num_layers}"),
        ));
    }
    Ok(Some(Layout::from_fn(num_layers, |index| {
        let position = index % names.len();
        layer_from_name(names[position]).decided_by(config.path_of(&format!("block_pattern[{position}]")))
    })))
}
