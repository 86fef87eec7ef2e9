//! `layer_mapping`: letters, `m` for Mamba and `g` for the shared global attention before it.
//!
//! # Families
//! Zyphra's own files (Zamba, Zamba2, `BlackMamba`).
//!
//! # Pitfalls
//! A `g` layer is a Mamba layer *with* the shared attention block in front of it; the field is one string or
//! a list of letters. A number may follow a letter (`m1`, `g2`).

use super::Dialect;
use crate::AuditError;
use crate::config::Config;
use crate::json::JsonValue;
use crate::layout::{AttentionKind, LayerSpec, Layout, MixerOrder, RecurrenceSpec};

pub(super) static DIALECT: Dialect = Dialect {
    name: "layer_mapping",
    fields: &["layer_mapping"],
    families: "Zyphra's own files",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    const MAMBA: RecurrenceSpec = RecurrenceSpec::SizesFromConfig(&["mamba1", "mamba2"]);
    let names: Vec<String> = match config.get("layer_mapping") {
        None => return Ok(None),
        Some(JsonValue::String(text)) => {
            text.chars().filter(|letter| letter.is_alphabetic()).map(String::from).collect()
        }
        Some(_) => config.strings("layer_mapping")?.unwrap_or_default().into_iter().map(str::to_owned).collect(),
    };
    config.require_length("layer_mapping", names.len(), num_layers)?;
    let layer = |(index, name): (usize, String)| {
        let spec = match name.trim_end_matches(|letter: char| letter.is_ascii_digit()) {
            "m" => LayerSpec::recurrent(MAMBA),
            "g" => LayerSpec::full().with_recurrence(MAMBA, MixerOrder::AttentionFirst),
            "a" => LayerSpec::full(),
            _ => LayerSpec::new(AttentionKind::Unknown { value: name }),
        };
        spec.decided_by(config.path_of(&format!("layer_mapping[{index}]")))
    };
    Ok(Some(Layout::new(names.into_iter().enumerate().map(layer).collect())))
}
