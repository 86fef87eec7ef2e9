//! `sliding_window_layout`: 1 is a window, 0 is full.
//!
//! # Families
//! `SmallThinker`.
//!
//! # Pitfalls
//! A second list, `rope_layout`, often has the same values; it marks layers with rotary positions and is not read here.

use super::{Dialect, flag_list};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{LayerSpec, Layout};

pub(super) static DIALECT: Dialect = Dialect {
    name: "sliding_window_layout",
    fields: &["sliding_window_layout"],
    families: "SmallThinker",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(is_window) = flag_list(config, "sliding_window_layout", num_layers)? else { return Ok(None) };
    Ok(Some(Layout::from_fn(num_layers, |index| {
        let spec = if is_window[index] { LayerSpec::window() } else { LayerSpec::full() };
        spec.decided_by(config.path_of(&format!("sliding_window_layout[{index}]")))
    })))
}
