//! `index_topk`: every layer selects single tokens with an indexer.
//!
//! # Families
//! DeepSeek-V3.2, GLM-5.
//!
//! # Pitfalls
//! The cache is not sparse: every token is cached, with an index key beside it. Layers whose `indexer_types` entry is
//! `shared` reuse the tokens that an earlier layer selected and cache no index key. `num_nextn_predict_layers` counts
//! multi-token-prediction layers, which are not in `num_hidden_layers`. Where `layer_types` or `compress_ratios` are present, they
//! decide: this dialect is a fallback.

use super::{Dialect, layer_types};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{AttentionKind, LayerSpec, Layout};

pub(super) static DIALECT: Dialect = Dialect {
    name: "index_topk",
    fields: &["index_topk", "indexer_types"],
    families: "DeepSeek-V3.2, GLM-5",
    fallback: true,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let name = if config.gguf { "attention.indexer.top_k" } else { "index_topk" };
    // An indexer with blocks is block-sparse: another dialect reads it.
    if config.size(name)?.is_none() || config.has("attention.indexer.block_size") {
        return Ok(None);
    }
    let shares_indexer = layer_types::indexer_sharing(config, num_layers)?;
    Ok(Some(Layout::from_fn(num_layers, |index| {
        let has_own_indexer = !shares_indexer.get(index).copied().unwrap_or(false);
        LayerSpec::new(AttentionKind::TokenSparse { has_own_indexer }).decided_by(config.path_of(name))
    })))
}
