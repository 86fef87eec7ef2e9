//! `full_attn_idxs`: the layers (from 0) that are attention; the others are short convolutions.
//!
//! # Families
//! LFM2, older files.
//!
//! # Trap
//! A convolution keeps only `conv_L_cache` - 1 inputs, however long the text.

use super::{Dialect, each, indices};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Layout, Reading, Recurrent};

pub(super) static DIALECT: Dialect = Dialect {
    name: "full_attn_idxs",
    fields: &["full_attn_idxs"],
    families: "LFM2",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let Some(listed) = indices(config, "full_attn_idxs", depth, 0)? else { return Ok(None) };
    let by = config.path_of("full_attn_idxs");
    let conv = || Reading::recurrent(Recurrent::OneOf(&["conv"]));
    let layer = |index: usize| if listed[index] { Reading::full() } else { conv() };
    Ok(Some(each(depth, |index| layer(index).by(&*by))))
}
