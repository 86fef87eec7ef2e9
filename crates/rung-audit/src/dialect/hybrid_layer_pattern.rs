//! `hybrid_layer_pattern`: 1 is a window, 0 is full.
//!
//! # Families
//! MiMo-V2-Flash.
//!
//! # Pitfalls
//! `MiniMax`'s `attn_type_list` has the opposite meaning: there 1 is full. Keys and values have different widths (`v_head_dim`), and window layers have heads
//! of their own (`swa_*`).

use super::{Dialect, flag_list};
use crate::AuditError;
use crate::config::Config;
use crate::json::JsonValue;
use crate::layout::{LayerSpec, Layout};

pub(super) static DIALECT: Dialect = Dialect {
    name: "hybrid_layer_pattern",
    fields: &["hybrid_layer_pattern"],
    families: "MiMo-V2-Flash",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    // Training frameworks use the same name for a string of letters; that field is not read here.
    if matches!(config.get("hybrid_layer_pattern"), Some(JsonValue::String(_))) {
        return Ok(None);
    }
    let Some(is_window) = flag_list(config, "hybrid_layer_pattern", num_layers)? else { return Ok(None) };
    Ok(Some(Layout::from_fn(num_layers, |index| {
        let spec = if is_window[index] { LayerSpec::window() } else { LayerSpec::full() };
        spec.decided_by(config.path_of(&format!("hybrid_layer_pattern[{index}]")))
    })))
}
