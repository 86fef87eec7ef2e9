//! `block_configs`: an object per layer, some of which have no mixer.
//!
//! # Families
//! Nemotron models found by architecture search (Super-49B, Ultra-253B), Puzzle.
//!
//! # Pitfalls
//! `no_op` layers have nothing where attention was, `replace_with_linear` layers have one matrix: neither mixes tokens.
//! The others give their key/value heads as a group size (`n_heads_in_group`: query heads per key/value head), or as a number
//! (`num_key_value_heads`).

use super::Dialect;
use crate::AuditError;
use crate::config::{Config, MAX_SIZE, as_u64};
use crate::json::JsonValue;
use crate::layout::{AttentionKind, LayerOverrides, LayerSpec, Layout};

pub(super) static DIALECT: Dialect = Dialect {
    name: "block_configs",
    fields: &["block_configs"],
    families: "Nemotron Super and Ultra (architecture search)",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(blocks) = config.list("block_configs")? else { return Ok(None) };
    config.require_length("block_configs", blocks.len(), num_layers)?;
    let heads = config.size("num_attention_heads")?;
    let mut layers = Vec::with_capacity(num_layers);
    for (index, block) in blocks.iter().enumerate() {
        let name = format!("block_configs[{index}].attention");
        let attention =
            block.get("attention").ok_or_else(|| config.field_error(&name, block, "an object with `attention`"))?;
        let flag = |key: &str| match attention.get(key) {
            None | Some(JsonValue::Null | JsonValue::Bool(false)) => Ok(false),
            Some(JsonValue::Bool(true)) => Ok(true),
            Some(other) => Err(config.field_error(&format!("{name}.{key}"), other, "true or false")),
        };
        let number = |key: &str| match attention.get(key) {
            None | Some(JsonValue::Null) => Ok(None),
            Some(value) => match as_u64(value).filter(|number| (1..=MAX_SIZE).contains(number)) {
                Some(number) => Ok(Some(number)),
                None => Err(config.field_error(
                    &format!("{name}.{key}"),
                    value,
                    &format!("a whole number from 1 to {MAX_SIZE}"),
                )),
            },
        };
        let (key, spec) = if flag("no_op")? {
            ("no_op", LayerSpec::new(AttentionKind::None))
        } else if flag("replace_with_linear")? {
            ("replace_with_linear", LayerSpec::new(AttentionKind::None))
        } else {
            let group_size = number("n_heads_in_group")?;
            let kv_heads = group_size
                .zip(heads)
                .map(|(group_size, heads)| (heads / group_size).max(1))
                .or(number("num_key_value_heads")?);
            let kind = number("window_length")?.map_or(AttentionKind::Full, |size| AttentionKind::Window(Some(size)));
            (
                "no_op",
                LayerSpec {
                    overrides: LayerOverrides { kv_heads, ..LayerOverrides::default() },
                    ..LayerSpec::new(kind)
                },
            )
        };
        layers.push(spec.decided_by(config.path_of(&format!("{name}.{key}"))));
    }
    Ok(Some(Layout::new(layers)))
}
