//! `attn_layer_indices`: the layers (from 0) that are attention.
//!
//! # Families
//! Bamba.
//!
//! # Trap
//! The layers that are not listed are not named anywhere: they are Mamba-2. Falcon-H1 writes `null` here and means that
//! *every* layer is attention beside Mamba-2.

use super::{Dialect, each, indices};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Layout, Reading, Recurrent};

pub(super) static DIALECT: Dialect = Dialect {
    name: "attn_layer_indices",
    fields: &["attn_layer_indices"],
    families: "Bamba",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    // Bamba without a list has no attention; in Falcon-H1 `null` means nothing.
    let none = config.mentions("attn_layer_indices") && config.model_type()? == Some("bamba");
    let listed = indices(config, "attn_layer_indices", depth, 0)?.or(none.then(|| vec![false; depth]));
    let Some(listed) = listed else { return Ok(None) };
    let by = config.path_of("attn_layer_indices");
    let mamba = || Reading::recurrent(Recurrent::OneOf(&["mamba1", "mamba2"]));
    let layer = |index: usize| if listed[index] { Reading::full() } else { mamba() };
    Ok(Some(each(depth, |index| layer(index).by(&*by))))
}
