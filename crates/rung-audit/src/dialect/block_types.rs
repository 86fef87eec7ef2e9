//! `block_types`: a short list of words, repeated to the depth of the model.
//!
//! # Families
//! `RecurrentGemma`, Griffin.
//!
//! # Pitfalls
//! `attention` is *local* here (`attention_window_size`): such a model has no layer that attends to every earlier token.

use super::Dialect;
use crate::AuditError;
use crate::config::Config;
use crate::layout::{AttentionKind, Layout, LayerSpec, Recurrent};

pub(super) static DIALECT: Dialect = Dialect {
    name: "block_types",
    fields: &["block_types", "attention_window_size"],
    families: "RecurrentGemma, Griffin",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(words) = config.words("block_types")? else { return Ok(None) };
    if words.is_empty() {
        return Err(AuditError::field(config.path_of("block_types"), "an empty list", "at least one word"));
    }
    let layer = |index: usize| {
        let position = index % words.len();
        let spec = match words[position] {
            "recurrent" => LayerSpec::recurrent(Recurrent::Candidates(&["rglru"])),
            "attention" => LayerSpec::window(),
            word => LayerSpec::new(AttentionKind::Unknown { word: word.to_owned() }),
        };
        spec.decided_by(config.path_of(&format!("block_types[{position}]")))
    };
    Ok(Some(Layout::from_fn(num_layers, layer)))
}
