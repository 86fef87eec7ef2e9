//! `layer_types`: one string per layer.
//!
//! # Families
//! Qwen3.5, Granite 4, LFM2, gpt-oss, Gemma 3/3n/4, `OLMo`, GLM with sparse attention, Step, Zaya, `DeepSeek`-V4.
//!
//! # Pitfalls
//! `linear_attention` contains the word attention. Newer libraries rewrite `mamba` and `conv` as `linear_attention` when
//! they load a model, so the value alone does not say which recurrence it is: the size fields do. `moe` names a layer
//! without a mixer. Zaya's `hybrid` is attention after a convolution, in every other family it is attention in parallel with a recurrence.

use super::{Dialect, layer_from_name};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{AttentionKind, FeedForwardKind, LayerSpec, Layout, MixerOrder, RecurrenceSpec};

pub(super) static DIALECT: Dialect = Dialect {
    name: "layer_types",
    fields: &["layer_types"],
    families: "Qwen3.5, Granite 4, LFM2, gpt-oss, Gemma 3 and 4, OLMo, GLM, Step, Zaya, DeepSeek-V4",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(names) = config.strings("layer_types")? else { return Ok(None) };
    config.require_length("layer_types", names.len(), num_layers)?;
    let shares_indexer = indexer_sharing(config, num_layers)?;
    let is_global = super::layer_mask(config, "global_attn_idx", num_layers, 0)?;
    let mut layers = Vec::with_capacity(num_layers);
    for (index, name) in names.into_iter().enumerate() {
        let mut spec = match name {
            "hybrid" | "hybrid_sliding" => {
                let kind = if name == "hybrid" { AttentionKind::Full } else { AttentionKind::Window(None) };
                hybrid_layer(config, kind)?
            }
            "compressed_sparse_attention" => {
                let ratio = compression_ratio(config, name)?.unwrap_or(4);
                LayerSpec::new(AttentionKind::Compressed { ratio, has_indexer: true })
            }
            "heavily_compressed_attention" => {
                let ratio = compression_ratio(config, name)?.unwrap_or(128);
                LayerSpec::new(AttentionKind::Compressed { ratio, has_indexer: false })
            }
            "moe" => LayerSpec::without_mixer(FeedForwardKind::Experts),
            "mlp" => LayerSpec::without_mixer(FeedForwardKind::Dense),
            // Nemotron-Flash names its layers by letters and lists those with global attention.
            "f" if is_global.is_some() => LayerSpec::without_mixer(FeedForwardKind::Dense),
            "m2" if is_global.is_some() => {
                LayerSpec::recurrent(RecurrenceSpec::SizesFromConfig(&["mamba2"])).without_feed_forward()
            }
            "a" if is_global.as_ref().is_some_and(|flags| flags[index]) => LayerSpec::full().without_feed_forward(),
            "a" if is_global.is_some() => LayerSpec::window().without_feed_forward(),
            "deltanet" => LayerSpec::recurrent(RecurrenceSpec::SizesFromConfig(&["deltanet", "gdn"])),
            _ => layer_from_name(name),
        };
        if let AttentionKind::TokenSparse { has_own_indexer } = &mut spec.kind {
            *has_own_indexer = !shares_indexer.get(index).copied().unwrap_or(false);
        }
        layers.push(spec.decided_by(config.path_of(&format!("layer_types[{index}]"))));
    }
    Ok(Some(Layout::new(layers)))
}

/// A flag per layer, set for layers that reuse the tokens an earlier layer's indexer selected.
pub(super) fn indexer_sharing(config: &Config, num_layers: usize) -> Result<Vec<bool>, AuditError> {
    let Some(types) = config.strings("indexer_types")? else { return Ok(Vec::new()) };
    config.require_length("indexer_types", types.len(), num_layers)?;
    let is_shared = |(index, name): (usize, &str)| match name {
        "full" => Ok(false),
        "shared" => Ok(true),
        _ => Err(AuditError::field(
            config.path_of(&format!("indexer_types[{index}]")),
            format!("the string \"{}\"", name.escape_debug()),
            "full or shared",
        )),
    };
    types.into_iter().enumerate().map(is_shared).collect()
}

/// Tokens in one cache entry of the layers with this name, if the config says so.
fn compression_ratio(config: &Config, name: &str) -> Result<Option<u64>, AuditError> {
    config.size(&format!("compress_rates.{name}"))
}

/// Attention and a second mixer in one layer.
pub(super) fn hybrid_layer(config: &Config, kind: AttentionKind) -> Result<LayerSpec, AuditError> {
    let convolution = match zaya_convolutions(config)? {
        Some(sizes) => Some(sizes),
        None => inkling_convolutions(config, &kind)?,
    };
    let Some((kernel_size, channels)) = convolution else {
        return Ok(LayerSpec::new(kind).with_recurrence(RecurrenceSpec::InferFromSizeFields, MixerOrder::Parallel));
    };
    // `gated` is a flag: there are no gates and projections as in LFM2's convolution. So no weights are known that forward a value, and the
    // number of rungs is an upper bound.
    let sizes = vec![("taps", kernel_size), ("channels", channels), ("gated", 0)];
    Ok(LayerSpec::new(kind).with_recurrence(RecurrenceSpec::WithSizes("conv", sizes), MixerOrder::RecurrenceFirst))
}

/// Kernel size and channels of Zaya's convolutions: two short convolutions run over queries and keys before attention, and
/// half of the values is delayed by a token.
fn zaya_convolutions(config: &Config) -> Result<Option<(u64, u64)>, AuditError> {
    let (Some(first_kernel), Some(second_kernel)) = (config.size("cca_time0")?, config.size("cca_time1")?) else {
        return Ok(None);
    };
    let (heads, kv_heads) = (config.size("num_attention_heads")?, config.size("num_key_value_heads")?);
    let head_dim = config.size("head_dim")?.unwrap_or(128);
    let (Some(heads), Some(kv_heads)) = (heads, kv_heads) else { return Ok(None) };
    // The convolutions cache one input less than their kernel sizes, counted here as one input of a single wider convolution.
    let inputs = (first_kernel + second_kernel).saturating_sub(2);
    // Each size is below 2^24, but a product of three need not fit 64 bits. A size that is too large is an error when the mixer is resolved.
    let convolved = inputs.saturating_mul(heads + kv_heads).saturating_mul(head_dim);
    Ok(Some((2, convolved.saturating_add(kv_heads * head_dim / 2).max(1))))
}

/// Kernel size and channels of Inkling's convolutions: over keys and values, and over the residual stream after attention and
/// after the feed-forward network.
fn inkling_convolutions(config: &Config, kind: &AttentionKind) -> Result<Option<(u64, u64)>, AuditError> {
    let is_inkling = config.model_type()?.is_some_and(|name| name.starts_with("inkling"));
    let has_four_states = config.count("number_of_conv_states")?.map_or(is_inkling, |count| count == 4);
    let Some(kernel_size) = config.size("conv_kernel_size")?.filter(|_| has_four_states) else { return Ok(None) };
    let is_window = matches!(kind, AttentionKind::Window(_));
    let size = |window_name: &str, name: &str| match config.size(window_name)? {
        Some(swa_size) if is_window => Ok(Some(swa_size)),
        _ => config.size(name),
    };
    let (kv_heads, head_dim) =
        (size("swa_num_key_value_heads", "num_key_value_heads")?, size("swa_head_dim", "head_dim")?);
    let (Some(kv_heads), Some(head_dim), Some(width)) = (kv_heads, head_dim, config.width()?) else { return Ok(None) };
    Ok(Some((kernel_size, 2 * kv_heads * head_dim + 2 * width)))
}
