//! `compress_ratios`: for each layer the number of tokens that share one cache entry; 0 for a layer with only a window.
//!
//! # Families
//! DeepSeek-V4.
//!
//! # Pitfalls
//! The list has one entry more for each multi-token-prediction (MTP) layer. Small ratios come with an indexer that
//! selects entries, the large one (128) reads them all. Every layer also caches a window of single tokens, and one vector
//! is both key and value.

use super::Dialect;
use crate::AuditError;
use crate::config::Config;
use crate::layout::{AttentionKind, LayerSpec, Layout};

pub(super) static DIALECT: Dialect =
    Dialect { name: "compress_ratios", fields: &["compress_ratios"], families: "DeepSeek-V4", fallback: false, read };

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let name = if config.gguf { "attention.compress_ratios" } else { "compress_ratios" };
    let Some(ratios) = config.numbers(name)? else { return Ok(None) };
    let mtp_layers = config.count("num_nextn_predict_layers")?.unwrap_or(0) as usize;
    if ratios.len() != num_layers + mtp_layers {
        config.require_length(name, ratios.len(), num_layers)?;
    }
    let layout = Layout::from_fn(num_layers, |index| {
        let kind = match ratios[index] {
            0 => AttentionKind::Window(None),
            // As published: layers with many entries (small ratios) have an indexer, layers with few entries have none.
            ratio => AttentionKind::Compressed { ratio, has_indexer: ratio < 128 },
        };
        LayerSpec::new(kind).decided_by(config.path_of(&format!("{name}[{index}]")))
    });
    Ok(Some(layout.with_assumption(
        "Layers with a compression ratio below 128 select entries with the indexer, others read all entries; tokens that \
         wait to be compressed are counted as recurrent state, the largest number that can wait.",
    )))
}
