//! `block_pattern`: a short list of names, repeated to the depth of the model.
//!
//! # Families
//! OLMo-core.
//!
//! # Trap
//! The names are the author's own and point into `block`; only well-known ones (`attn`, `gdn`, `mamba`, ..) are read,
//! others are unknown. The depth must be a multiple of the pattern.

use super::{Dialect, by_word, each};
use crate::AuditError;
use crate::config::Config;
use crate::layout::Layout;

pub(super) static DIALECT: Dialect = Dialect {
    name: "block_pattern",
    fields: &["block_pattern"],
    families: "OLMo-core",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let Some(words) = config.words("block_pattern")? else { return Ok(None) };
    if words.is_empty() || !depth.is_multiple_of(words.len()) {
        let found = format!("a list of {}", words.len());
        return Err(AuditError::field(config.path_of("block_pattern"), found, format!("a list that divides {depth} layers")));
    }
    Ok(Some(each(depth, |index| {
        let place = index % words.len();
        by_word(words[place]).by(config.path_of(&format!("block_pattern[{place}]")))
    })))
}
