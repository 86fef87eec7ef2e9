//! `attn_type_list`: 1 is softmax, 0 is lightning attention.
//!
//! # Families
//! MiniMax-Text-01 and M1; M2, with ones only.
//!
//! # Pitfalls
//! Other dialects use 1 for the cheaper layer (`hybrid_layer_pattern`, `sliding_window_layout`); here 1 is full attention.

use super::{Dialect, flag_list};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{LayerSpec, Layout, RecurrenceSpec};

pub(super) static DIALECT: Dialect = Dialect {
    name: "attn_type_list",
    fields: &["attn_type_list"],
    families: "MiniMax-Text-01, MiniMax-M1, MiniMax-M2",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(is_softmax) = flag_list(config, "attn_type_list", num_layers)? else { return Ok(None) };
    Ok(Some(Layout::from_fn(num_layers, |index| {
        let lightning = || LayerSpec::recurrent(RecurrenceSpec::SizesFromConfig(&["lightning"]));
        let spec = if is_softmax[index] { LayerSpec::full() } else { lightning() };
        spec.decided_by(config.path_of(&format!("attn_type_list[{index}]")))
    })))
}
