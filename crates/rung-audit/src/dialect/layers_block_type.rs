//! `layers_block_type`: one string per layer.
//!
//! # Families
//! Zamba2, Nemotron 3 Ultra and 3.5, exports of Jamba.
//!
//! # Pitfalls
//! Zamba2's `hybrid` layer is a shared attention block whose output feeds the layer's own Mamba: attention first, then the
//! recurrence. There are `num_mem_blocks` distinct attention blocks; layers share their weights, never their caches.
//! Nemotron's `moe` and `mlp` are layers without a mixer, and `mtp_layers_block_type` lists layers outside the stack.

use super::{Dialect, layer_from_name};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{FeedForwardKind, LayerSpec, Layout, MixerOrder, RecurrenceSpec};

pub(super) static DIALECT: Dialect = Dialect {
    name: "layers_block_type",
    fields: &["layers_block_type"],
    families: "Zamba2, Nemotron 3 Ultra, Nemotron 3.5, exports of Jamba",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(names) = config.strings("layers_block_type")? else { return Ok(None) };
    config.require_length("layers_block_type", names.len(), num_layers)?;
    // Where feed-forward networks are layers of their own, or belong to the shared block, mixer layers have none.
    let has_separate_ffn = names.iter().any(|name| matches!(*name, "moe" | "mlp" | "hybrid"));
    let distinct_blocks = config.size("num_mem_blocks")?.unwrap_or(u64::MAX);
    let mut hybrid_count = 0;
    let mut layers = Vec::with_capacity(num_layers);
    for (index, name) in names.into_iter().enumerate() {
        let spec = match name {
            "moe" => LayerSpec::without_mixer(FeedForwardKind::Experts),
            "mlp" => LayerSpec::without_mixer(FeedForwardKind::Dense),
            "hybrid" => {
                hybrid_count += 1;
                let hybrid = LayerSpec::full().with_recurrence(
                    RecurrenceSpec::SizesFromConfig(&["mamba1", "mamba2"]),
                    MixerOrder::AttentionFirst,
                );
                LayerSpec { shares_parameters: hybrid_count > distinct_blocks, ..hybrid }
            }
            _ if has_separate_ffn => layer_from_name(name).without_feed_forward(),
            _ => layer_from_name(name),
        };
        layers.push(spec.decided_by(config.path_of(&format!("layers_block_type[{index}]"))));
    }
    Ok(Some(Layout::new(layers)))
}
