//! `sliding_window_pattern`: every p-th layer is full, the others have a window.
//!
//! # Families
//! Gemma 3, Cohere 2, EXAONE 4.
//!
//! # Pitfalls
//! The full layer is the last of each group; layers past the last whole group have windows. EXAONE writes the pattern
//! as letters (`LLLG`) and makes the very last layer full whatever the pattern says. transformers saves the field of Gemma 3 with a
//! leading underscore and ignores it where there are `layer_types`, which may differ. Without a window size the field is
//! ignored.

use super::{Dialect, period};
use crate::AuditError;
use crate::attention_sizes::window_size;
use crate::config::Config;
use crate::json::JsonValue;
use crate::layout::{AttentionKind, LayerSpec, Layout};

pub(super) static DIALECT: Dialect = Dialect {
    name: "sliding_window_pattern",
    fields: &["sliding_window_pattern", "_sliding_window_pattern"],
    families: "Gemma 3, Cohere 2, EXAONE 4",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(name) = DIALECT.fields.iter().copied().find(|name| config.has(name)) else { return Ok(None) };
    if window_size(config)?.is_none() || (name.starts_with('_') && config.has("layer_types")) {
        return Ok(None);
    }
    let field = config.path_of(name);
    if let Some(JsonValue::String(letters)) = config.get(name) {
        return layout_from_letters(config, name, letters, num_layers).map(Some);
    }
    let Some(period) = period(config, name)? else { return Ok(None) };
    let layer = |index: usize| if (index + 1).is_multiple_of(period) { LayerSpec::full() } else { LayerSpec::window() };
    Ok(Some(Layout::from_fn(num_layers, |index| layer(index).decided_by(&*field))))
}

fn layout_from_letters(config: &Config, name: &str, letters: &str, num_layers: usize) -> Result<Layout, AuditError> {
    let letters: Vec<char> = letters.chars().collect();
    if letters.is_empty() || letters.len() > num_layers {
        let found = format!("{} letters", letters.len());
        return Err(AuditError::field(config.path_of(name), found, format!("1 to {num_layers} letters L and G")));
    }
    Ok(Layout::from_fn(num_layers, |index| {
        let position = index % letters.len();
        let spec = match letters[position] {
            _ if index + 1 == num_layers => LayerSpec::full(),
            'G' => LayerSpec::full(),
            'L' => LayerSpec::window(),
            other => LayerSpec::new(AttentionKind::Unknown { value: other.to_string() }),
        };
        spec.decided_by(config.path_of(&format!("{name}[{position}]")))
    }))
}
