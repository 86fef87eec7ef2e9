//! `attention_layers`: one word per layer, `global` or `local`.
//!
//! # Families
//! GPT-Neo.
//!
//! # Trap
//! The file also has `attention_types`, the same in a nested shorthand; the expanded list is what is read. transformers
//! keeps whole caches for the local layers too.

use super::{Dialect, by_word};
use crate::AuditError;
use crate::config::Config;
use crate::layout::Layout;

pub(super) static DIALECT: Dialect = Dialect {
    name: "attention_layers",
    fields: &["attention_layers"],
    families: "GPT-Neo",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let Some(words) = config.words("attention_layers")? else { return Ok(None) };
    config.require_length("attention_layers", words.len(), depth)?;
    let layer = |(index, word): (usize, &str)| by_word(word).by(config.path_of(&format!("attention_layers[{index}]")));
    Ok(Some(Layout::new(words.into_iter().enumerate().map(layer).collect())))
}
