//! `hybrid_layer_pattern`: 1 is a window, 0 is full.
//!
//! # Families
//! MiMo-V2-Flash.
//!
//! # Trap
//! The opposite polarity of `MiniMax`'s list. Keys and values have different widths (`v_head_dim`), and windows have heads
//! of their own (`swa_*`).

use super::{Dialect, bits, each};
use crate::AuditError;
use crate::config::Config;
use crate::json::Value;
use crate::layout::{Layout, Reading};

pub(super) static DIALECT: Dialect = Dialect {
    name: "hybrid_layer_pattern",
    fields: &["hybrid_layer_pattern"],
    families: "MiMo-V2-Flash",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    // Training frameworks use the same name for a string of letters; that is another thing.
    if matches!(config.get("hybrid_layer_pattern"), Some(Value::Text(_))) {
        return Ok(None);
    }
    let Some(windows) = bits(config, "hybrid_layer_pattern", depth)? else { return Ok(None) };
    Ok(Some(each(depth, |index| {
        let reading = if windows[index] { Reading::window() } else { Reading::full() };
        reading.by(config.path_of(&format!("hybrid_layer_pattern[{index}]")))
    })))
}
