//! No field at all: architectures in which every layer is two mixers.
//!
//! # Families
//! Falcon-H1 (attention beside Mamba-2), Zaya (attention behind a convolution).
//!
//! # Trap
//! Falcon-H1 even carries `attn_layer_indices: null`. With no other field to go by, the architecture's name decides.
//! Zaya has no recurrence: its "hybrid" layers run a short convolution over queries and keys before they attend.

use super::{Dialect, each, layer_types};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Join, Kind, Layout, Reading, Recurrent};

pub(super) static DIALECT: Dialect = Dialect {
    name: "model_type",
    fields: &["model_type"],
    families: "Falcon-H1, Zaya",
    fallback: true,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let reading = match config.model_type()? {
        Some("falcon_h1" | "falcon-h1") if config.gguf => return Ok(None),
        Some("falcon_h1") => Reading::full().with(Recurrent::OneOf(&["mamba2"]), Join::Beside),
        Some("zaya") => layer_types::hybrid(config, Kind::Full)?,
        _ => return Ok(None),
    };
    let reading = reading.by(config.path_of("model_type"));
    Ok(Some(each(depth, |_| reading.clone())))
}
