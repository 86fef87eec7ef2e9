//! No layout field: architectures in which every layer has two mixers.
//!
//! # Families
//! Falcon-H1 (attention and Mamba-2 in parallel), Zaya (attention after a convolution).
//!
//! # Pitfalls
//! Falcon-H1's only layout field is `attn_layer_indices: null`, so the architecture's name decides.
//! Zaya has no recurrence: its "hybrid" layers run a short convolution over queries and keys before they attend.

use super::{Dialect, layer_types};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{AttentionKind, LayerSpec, Layout, MixerOrder, RecurrenceSpec};

pub(super) static DIALECT: Dialect =
    Dialect { name: "model_type", fields: &["model_type"], families: "Falcon-H1, Zaya", fallback: true, read };

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let spec = match config.model_type()? {
        Some("falcon_h1" | "falcon-h1") if config.gguf => return Ok(None),
        Some("falcon_h1") => {
            LayerSpec::full().with_recurrence(RecurrenceSpec::SizesFromConfig(&["mamba2"]), MixerOrder::Parallel)
        }
        Some("zaya") => layer_types::hybrid_layer(config, AttentionKind::Full)?,
        _ => return Ok(None),
    };
    let spec = spec.decided_by(config.path_of("model_type"));
    Ok(Some(Layout::from_fn(num_layers, |_| spec.clone())))
}
