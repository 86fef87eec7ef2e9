//! `block_configs`: an object per layer, some of which have no mixer.
//!
//! # Families
//! Nemotron models found by architecture search (Super-49B, Ultra-253B), Puzzle.
//!
//! # Trap
//! `no_op` layers have nothing where attention was, `replace_with_linear` layers have one matrix: neither mixes tokens.
//! The others give their key/value heads as a group size (`n_heads_in_group`: query heads per key/value head).

use super::Dialect;
use crate::AuditError;
use crate::config::{Config, LARGEST, whole};
use crate::json::Value;
use crate::layout::{Kind, Layout, Own, Reading};

pub(super) static DIALECT: Dialect = Dialect {
    name: "block_configs",
    fields: &["block_configs"],
    families: "Nemotron Super and Ultra (architecture search)",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let Some(blocks) = config.list("block_configs")? else { return Ok(None) };
    config.require_length("block_configs", blocks.len(), depth)?;
    let heads = config.size("num_attention_heads")?;
    let mut layers = Vec::with_capacity(depth);
    for (index, block) in blocks.iter().enumerate() {
        let name = format!("block_configs[{index}].attention");
        let attention = block.get("attention").ok_or_else(|| config.wrong(&name, block, "an object with `attention`"))?;
        let flag = |key: &str| match attention.get(key) {
            None | Some(Value::Null | Value::Bool(false)) => Ok(false),
            Some(Value::Bool(true)) => Ok(true),
            Some(other) => Err(config.wrong(&format!("{name}.{key}"), other, "true or false")),
        };
        let number = |key: &str| match attention.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match whole(value).filter(|number| (1..=LARGEST).contains(number)) {
                Some(number) => Ok(Some(number)),
                None => Err(config.wrong(&format!("{name}.{key}"), value, &format!("a whole number from 1 to {LARGEST}"))),
            },
        };
        let (by, reading) = if flag("no_op")? {
            ("no_op", Reading::new(Kind::None))
        } else if flag("replace_with_linear")? {
            ("replace_with_linear", Reading::new(Kind::None))
        } else {
            let group = number("n_heads_in_group")?;
            let kv = group.zip(heads).map(|(group, heads)| (heads / group).max(1)).or(number("num_key_value_heads")?);
            let kind = number("window_length")?.map_or(Kind::Full, |size| Kind::Window(Some(size)));
            ("no_op", Reading { own: Own { heads: None, kv, ..Own::default() }, ..Reading::new(kind) })
        };
        layers.push(reading.by(config.path_of(&format!("{name}.{by}"))));
    }
    Ok(Some(Layout::new(layers)))
}
