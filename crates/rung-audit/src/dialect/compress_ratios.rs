//! `compress_ratios`: per layer, how many tokens share one entry of the cache; 0 for a window only.
//!
//! # Families
//! DeepSeek-V4.
//!
//! # Trap
//! The list has one entry more for each layer that predicts further tokens. Small ratios come with an indexer that
//! picks entries, the large one (128) reads them all. Every layer keeps a window of single tokens too, and one vector
//! serves as key and value.

use super::{Dialect, each};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Kind, Layout, Reading};

pub(super) static DIALECT: Dialect = Dialect {
    name: "compress_ratios",
    fields: &["compress_ratios"],
    families: "DeepSeek-V4",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let name = if config.gguf { "attention.compress_ratios" } else { "compress_ratios" };
    let Some(ratios) = config.numbers(name)? else { return Ok(None) };
    let extra = config.count("num_nextn_predict_layers")?.unwrap_or(0) as usize;
    if ratios.len() != depth + extra {
        config.require_length(name, ratios.len(), depth)?;
    }
    let layout = each(depth, |index| {
        let kind = match ratios[index] {
            0 => Kind::Window(None),
            // The published pattern: an indexer where entries are many, none where they are few.
            ratio => Kind::Compressed { ratio, picks: ratio < 128 },
        };
        Reading::new(kind).by(config.path_of(&format!("{name}[{index}]")))
    });
    Ok(Some(layout.assuming(
        "Layers with a compression ratio below 128 pick entries with the indexer, others read all entries; tokens that \
         wait to be compressed are charged as recurrent state, as many as can wait.",
    )))
}
