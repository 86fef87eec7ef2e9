//! `full_attention_interval`: every k-th layer is full, the others are linear.
//!
//! # Families
//! Qwen3-Next, Qwen3.5; their GGUF headers are read by the dialect `gguf_layers`.
//!
//! # Pitfalls
//! The full layer is the *last* of each group: layer i (from 0) is full when (i + 1) is a multiple of k.

use super::{Dialect, linear_layer, period};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{LayerSpec, Layout};

pub(super) static DIALECT: Dialect = Dialect {
    name: "full_attention_interval",
    fields: &["full_attention_interval"],
    families: "Qwen3-Next, Qwen3.5",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    // A GGUF header is read by its own dialect, which knows how the sizes are written there.
    let Some(period) = period(config, "full_attention_interval")?.filter(|_| !config.gguf) else { return Ok(None) };
    let field = config.path_of("full_attention_interval");
    let layer = |index: usize| if (index + 1).is_multiple_of(period) { LayerSpec::full() } else { linear_layer() };
    Ok(Some(Layout::from_fn(num_layers, |index| layer(index).decided_by(&*field))))
}
