//! `sparse_attention_config`: layers that select whole blocks of tokens.
//!
//! # Families
//! MiniMax-M3.
//!
//! # Pitfalls
//! `sparse_attention_freq` has a 1 for block-sparse layers; the first few are full. The cache holds every token, with an
//! index key beside it. The block-sparse lower bound applies to these layers (blocks of 128 tokens, 16 selected).

use super::{Dialect, flag_list};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{AttentionKind, LayerSpec, Layout};

pub(super) static DIALECT: Dialect = Dialect {
    name: "sparse_attention_config",
    fields: &["sparse_attention_config.sparse_attention_freq"],
    families: "MiniMax-M3",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    const NAME: &str = "sparse_attention_config.sparse_attention_freq";
    if config.flag("sparse_attention_config.use_sparse_attention")? == Some(false) {
        return Ok(None);
    }
    let Some(is_sparse) = flag_list(config, NAME, num_layers)? else { return Ok(None) };
    Ok(Some(Layout::from_fn(num_layers, |index| {
        let kind = if is_sparse[index] { AttentionKind::BlockSparse } else { AttentionKind::Full };
        LayerSpec::new(kind).decided_by(config.path_of(&format!("{NAME}[{index}]")))
    })))
}
