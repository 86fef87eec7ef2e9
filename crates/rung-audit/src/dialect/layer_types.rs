//! `layer_types`: one word per layer.
//!
//! # Families
//! Qwen3.5, Granite 4, LFM2, gpt-oss, Gemma 3/3n/4, `OLMo`, GLM with sparse attention, Step, Zaya, `DeepSeek`-V4.
//!
//! # Pitfalls
//! `linear_attention` contains the word attention. Newer libraries rewrite `mamba` and `conv` as `linear_attention` when
//! they load a model, so the word alone does not say which recurrence it is: the size fields do. `moe` names a layer
//! without a mixer. Zaya's `hybrid` is attention after a convolution, everyone else's is attention in parallel with a recurrence.

use super::{Dialect, layer_from_word};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{FeedForwardKind, Join, AttentionKind, Layout, LayerSpec, Recurrent};

pub(super) static DIALECT: Dialect = Dialect {
    name: "layer_types",
    fields: &["layer_types"],
    families: "Qwen3.5, Granite 4, LFM2, gpt-oss, Gemma 3 and 4, OLMo, GLM, Step, Zaya, DeepSeek-V4",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(words) = config.words("layer_types")? else { return Ok(None) };
    config.require_length("layer_types", words.len(), num_layers)?;
    let shared = shared_index(config, num_layers)?;
    let global = super::layer_mask(config, "global_attn_idx", num_layers, 0)?;
    let mut layers = Vec::with_capacity(num_layers);
    for (index, word) in words.into_iter().enumerate() {
        let mut spec = match word {
            "hybrid" | "hybrid_sliding" => {
                let kind = if word == "hybrid" { AttentionKind::Full } else { AttentionKind::Window(None) };
                hybrid(config, kind)?
            }
            "compressed_sparse_attention" => compressed(config, word, 4, true)?,
            "heavily_compressed_attention" => compressed(config, word, 128, false)?,
            "moe" => LayerSpec::without_mixer(FeedForwardKind::Experts),
            "mlp" => LayerSpec::without_mixer(FeedForwardKind::Dense),
            // Nemotron-Flash names its slots by letters and lists the layers with global attention.
            "f" if global.is_some() => LayerSpec::without_mixer(FeedForwardKind::Dense),
            "m2" if global.is_some() => LayerSpec::recurrent(Recurrent::OneOf(&["mamba2"])).without_feed_forward(),
            "a" if global.as_ref().is_some_and(|global| global[index]) => LayerSpec::full().without_feed_forward(),
            "a" if global.is_some() => LayerSpec::window().without_feed_forward(),
            "deltanet" => LayerSpec::recurrent(Recurrent::OneOf(&["deltanet", "gdn"])),
            _ => layer_from_word(word),
        };
        if let AttentionKind::TokenSparse { own_index } = &mut spec.kind {
            *own_index = !shared.get(index).copied().unwrap_or(false);
        }
        layers.push(spec.decided_by(config.path_of(&format!("layer_types[{index}]"))));
    }
    Ok(Some(Layout::new(layers)))
}

/// Layers that reuse the indexer's choice of an earlier layer.
pub(super) fn shared_index(config: &Config, num_layers: usize) -> Result<Vec<bool>, AuditError> {
    let Some(types) = config.words("indexer_types")? else { return Ok(Vec::new()) };
    config.require_length("indexer_types", types.len(), num_layers)?;
    let one = |(index, word): (usize, &str)| match word {
        "full" => Ok(false),
        "shared" => Ok(true),
        _ => Err(AuditError::field(
            config.path_of(&format!("indexer_types[{index}]")),
            format!("the text \"{}\"", word.escape_debug()),
            "full or shared",
        )),
    };
    types.into_iter().enumerate().map(one).collect()
}

fn compressed(config: &Config, word: &str, default: u64, has_indexer: bool) -> Result<LayerSpec, AuditError> {
    let ratio = config.size(&format!("compress_rates.{word}"))?.unwrap_or(default);
    Ok(LayerSpec::new(AttentionKind::Compressed { ratio, has_indexer }))
}

/// Attention and a second mixer in one layer.
pub(super) fn hybrid(config: &Config, kind: AttentionKind) -> Result<LayerSpec, AuditError> {
    let convolution = match zaya_convolutions(config)? {
        Some(found) => Some(found),
        None => inkling_convolutions(config, &kind)?,
    };
    let Some((kernel_size, channels)) = convolution else {
        return Ok(LayerSpec::new(kind).with_recurrence(Recurrent::BySizes, Join::Parallel));
    };
    let numbers = vec![("taps", kernel_size), ("channels", channels), ("gated", 1)];
    Ok(LayerSpec::new(kind).with_recurrence(Recurrent::Known("conv", numbers), Join::RecurrenceFirst))
}

/// Zaya: two short convolutions run over queries and keys before attention, and half of the values is delayed by a token.
fn zaya_convolutions(config: &Config) -> Result<Option<(u64, u64)>, AuditError> {
    let (Some(first), Some(second)) = (config.size("cca_time0")?, config.size("cca_time1")?) else { return Ok(None) };
    let (heads, kv) = (config.size("num_attention_heads")?, config.size("num_key_value_heads")?);
    let head = config.size("head_dim")?.unwrap_or(128);
    let (Some(heads), Some(kv)) = (heads, kv) else { return Ok(None) };
    // Together they keep first-1 and second-1 inputs; all that is kept is counted as one input of a wider convolution.
    let columns = (first + second).saturating_sub(2);
    Ok(Some((2, (columns * (heads + kv) * head + kv * head / 2).max(1))))
}

/// Inkling: convolutions over keys and values, and over the residual stream after attention and after the feed-forward part.
fn inkling_convolutions(config: &Config, kind: &AttentionKind) -> Result<Option<(u64, u64)>, AuditError> {
    let known = config.model_type()?.is_some_and(|name| name.starts_with("inkling"));
    let four = config.count("number_of_conv_states")?.map_or(known, |count| count == 4);
    let Some(kernel_size) = config.size("conv_kernel_size")?.filter(|_| four) else { return Ok(None) };
    let window = matches!(kind, AttentionKind::Window(_));
    let size = |window_name: &str, name: &str| match config.size(window_name)? {
        Some(found) if window => Ok(Some(found)),
        _ => config.size(name),
    };
    let (kv, head) = (size("swa_num_key_value_heads", "num_key_value_heads")?, size("swa_head_dim", "head_dim")?);
    let (Some(kv), Some(head), Some(width)) = (kv, head, config.width()?) else { return Ok(None) };
    Ok(Some((kernel_size, 2 * kv * head + 2 * width)))
}
