//! `sparse_attention_config`: layers that pick whole blocks of tokens.
//!
//! # Families
//! MiniMax-M3.
//!
//! # Trap
//! `sparse_attention_freq` has a 1 for block-sparse layers; the first few are full. The cache keeps every token, and an
//! index key beside it. This is the block-sparse case of the theory (block of 128 tokens, 16 chosen).

use super::{Dialect, bits, each};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Kind, Layout, Reading};

pub(super) static DIALECT: Dialect = Dialect {
    name: "sparse_attention_config",
    fields: &["sparse_attention_config.sparse_attention_freq"],
    families: "MiniMax-M3",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    const NAME: &str = "sparse_attention_config.sparse_attention_freq";
    if config.flag("sparse_attention_config.use_sparse_attention")? == Some(false) {
        return Ok(None);
    }
    let Some(sparse) = bits(config, NAME, depth)? else { return Ok(None) };
    Ok(Some(each(depth, |index| {
        let kind = if sparse[index] { Kind::BlockSparse } else { Kind::Full };
        Reading::new(kind).by(config.path_of(&format!("{NAME}[{index}]")))
    })))
}
