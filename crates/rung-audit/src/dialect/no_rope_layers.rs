//! `no_rope_layers` with `attention_chunk_size`: layers without rotary positions are full, the others attend within chunks.
//!
//! # Families
//! Llama 4.
//!
//! # Pitfalls
//! A 0 in `no_rope_layers` marks a layer *without* rotary positions: a full layer. The list may be empty
//! or missing; the interval (4 by default) then says that the last layer of each group is full. Models without rotary
//! positions in some layers but without chunks (`SmolLM3`) are full everywhere, so the dialect requires a chunk size.

use super::{Dialect, flag_list, period};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{AttentionKind, LayerSpec, Layout};

pub(super) static DIALECT: Dialect = Dialect {
    name: "attention_chunk_size",
    fields: &["attention_chunk_size", "no_rope_layers", "no_rope_layer_interval"],
    families: "Llama 4",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    // MiMo repeats its window size in `attention_chunk_size`; its layer pattern decides.
    let has_pattern = config.has("hybrid_layer_pattern") || config.has("layer_types");
    let equals_window = || config.get("attention_chunk_size") == config.get("sliding_window");
    if !config.has("attention_chunk_size") || (has_pattern && equals_window()) {
        return Ok(None);
    }
    let layer = |has_rope: bool| if has_rope { LayerSpec::new(AttentionKind::Chunked) } else { LayerSpec::full() };
    let has_list = config.list("no_rope_layers")?.is_some_and(|items| !items.is_empty());
    if let Some(has_rope) = flag_list(config, "no_rope_layers", num_layers)?.filter(|_| has_list) {
        let field = |index: usize| config.path_of(&format!("no_rope_layers[{index}]"));
        return Ok(Some(Layout::from_fn(num_layers, |index| layer(has_rope[index]).decided_by(field(index)))));
    }
    let given_interval = period(config, "no_rope_layer_interval")?;
    let interval = given_interval.unwrap_or(4);
    let name = if given_interval.is_some() { "no_rope_layer_interval" } else { "attention_chunk_size" };
    let layout = Layout::from_fn(num_layers, |index| {
        layer(!(index + 1).is_multiple_of(interval)).decided_by(config.path_of(name))
    });
    Ok(Some(match given_interval {
        Some(_) => layout,
        None => layout
            .with_assumption("Every 4th layer is full: the interval is not in the file, 4 is its published default."),
    }))
}
