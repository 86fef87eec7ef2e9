//! `layers_block_type`: one word per slot.
//!
//! # Families
//! Zamba2, Nemotron 3 Ultra and 3.5, exports of Jamba.
//!
//! # Trap
//! Zamba2's `hybrid` is a shared attention block whose result goes into the layer's own Mamba: attention first, then the
//! recurrence. `num_mem_blocks` of them share their weights, never their caches. Nemotron's `moe` and `mlp` are slots
//! without a mixer, and `mtp_layers_block_type` is extra.

use super::{Dialect, by_word};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Channel, Join, Layout, Reading, Recurrent};

pub(super) static DIALECT: Dialect = Dialect {
    name: "layers_block_type",
    fields: &["layers_block_type"],
    families: "Zamba2, Nemotron 3 Ultra, Nemotron 3.5, exports of Jamba",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let Some(words) = config.words("layers_block_type")? else { return Ok(None) };
    config.require_length("layers_block_type", words.len(), depth)?;
    // Where feed-forward parts stand in slots of their own, or belong to the shared block, other layers have none.
    let slots = words.iter().any(|word| matches!(*word, "moe" | "mlp" | "hybrid"));
    let distinct = config.size("num_mem_blocks")?.unwrap_or(u64::MAX);
    let mut hybrids = 0;
    let mut layers = Vec::with_capacity(depth);
    for (index, word) in words.into_iter().enumerate() {
        let reading = match word {
            "moe" => Reading::slot(Channel::Experts),
            "mlp" => Reading::slot(Channel::Dense),
            "hybrid" => {
                hybrids += 1;
                let joined = Reading::full().with(Recurrent::OneOf(&["mamba1", "mamba2"]), Join::After);
                Reading { shares_weights: hybrids > distinct, ..joined }
            }
            _ if slots => by_word(word).alone(),
            _ => by_word(word),
        };
        layers.push(reading.by(config.path_of(&format!("layers_block_type[{index}]"))));
    }
    Ok(Some(Layout::new(layers)))
}
