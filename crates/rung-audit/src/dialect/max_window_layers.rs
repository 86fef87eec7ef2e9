//! `use_sliding_window` and `max_window_layers`: the first `max_window_layers` layers are full, the rest have a window.
//!
//! # Families
//! Qwen2, Qwen2.5, Qwen3 (dense and with experts).
//!
//! # Pitfalls
//! Nearly every file says `use_sliding_window: false`; its `sliding_window` is then ignored.

use super::Dialect;
use crate::AuditError;
use crate::config::Config;
use crate::layout::{LayerSpec, Layout};

pub(super) static DIALECT: Dialect = Dialect {
    name: "use_sliding_window",
    fields: &["use_sliding_window", "max_window_layers"],
    families: "Qwen2, Qwen2.5, Qwen3",
    fallback: true,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    // Other architectures use these two field names with another meaning.
    let known = ["qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"];
    if !config.model_type()?.is_some_and(|name| known.contains(&name)) || config.gguf {
        return Ok(None);
    }
    let Some(uses_window) = config.flag("use_sliding_window")? else { return Ok(None) };
    if !uses_window || !config.has("sliding_window") {
        return Ok(Some(Layout::from_fn(num_layers, |_| {
            LayerSpec::full().decided_by(config.path_of("use_sliding_window"))
        })));
    }
    let Some(full_layers) = config.count("max_window_layers")? else { return Ok(None) };
    Ok(Some(Layout::from_fn(num_layers, |index| {
        let spec = if index < full_layers as usize { LayerSpec::full() } else { LayerSpec::window() };
        spec.decided_by(config.path_of("max_window_layers"))
    })))
}
