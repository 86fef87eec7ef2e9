//! `block_types`: a short list of names, repeated to the depth of the model.
//!
//! # Families
//! `RecurrentGemma`, Griffin.
//!
//! # Pitfalls
//! `attention` is *local* here (`attention_window_size`): such a model has no layer that attends to every earlier token.

use super::Dialect;
use crate::AuditError;
use crate::config::Config;
use crate::layout::{AttentionKind, LayerSpec, Layout, RecurrenceSpec};

pub(super) static DIALECT: Dialect = Dialect {
    name: "block_types",
    fields: &["block_types", "attention_window_size"],
    families: "RecurrentGemma, Griffin",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(names) = config.strings("block_types")? else { return Ok(None) };
    if names.is_empty() {
        return Err(AuditError::field(config.path_of("block_types"), "an empty list", "at least one name"));
    }
    let layer = |index: usize| {
        let position = index % names.len();
        let spec = match names[position] {
            "recurrent" => LayerSpec::recurrent(RecurrenceSpec::SizesFromConfig(&["rglru"])),
            "attention" => LayerSpec::window(),
            name => LayerSpec::new(AttentionKind::Unknown { value: name.to_owned() }),
        };
        spec.decided_by(config.path_of(&format!("block_types[{position}]")))
    };
    Ok(Some(Layout::from_fn(num_layers, layer)))
}
