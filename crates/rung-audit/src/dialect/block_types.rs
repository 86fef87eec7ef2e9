//! `block_types`: a short list of words, repeated to the depth of the model.
//!
//! # Families
//! `RecurrentGemma`, Griffin.
//!
//! # Trap
//! `attention` is *local* here (`attention_window_size`): such a model has no layer that sees the whole past.

use super::Dialect;
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Kind, Layout, Reading, Recurrent};

pub(super) static DIALECT: Dialect = Dialect {
    name: "block_types",
    fields: &["block_types", "attention_window_size"],
    families: "RecurrentGemma, Griffin",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let Some(words) = config.words("block_types")? else { return Ok(None) };
    if words.is_empty() {
        return Err(AuditError::field(config.path_of("block_types"), "an empty list", "at least one word"));
    }
    let layer = |index: usize| {
        let place = index % words.len();
        let reading = match words[place] {
            "recurrent" => Reading::recurrent(Recurrent::OneOf(&["rglru"])),
            "attention" => Reading::window(),
            word => Reading::new(Kind::Unknown { word: word.to_owned() }),
        };
        reading.by(config.path_of(&format!("block_types[{place}]")))
    };
    Ok(Some(super::each(depth, layer)))
}
