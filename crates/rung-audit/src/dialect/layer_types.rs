//! `layer_types`: one word per layer.
//!
//! # Families
//! Qwen3.5, Granite 4, LFM2, gpt-oss, Gemma 3/3n/4, `OLMo`, GLM with sparse attention, Step, Zaya, `DeepSeek`-V4.
//!
//! # Trap
//! `linear_attention` contains the word attention. Newer libraries rewrite `mamba` and `conv` as `linear_attention` when
//! they load a model, so the word alone does not say which recurrence it is: the size fields do. `moe` names a slot
//! without a mixer. Zaya's `hybrid` is attention behind a convolution, everyone else's is attention beside a recurrence.

use super::{Dialect, by_word};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Channel, Join, Kind, Layout, Reading, Recurrent};

pub(super) static DIALECT: Dialect = Dialect {
    name: "layer_types",
    fields: &["layer_types"],
    families: "Qwen3.5, Granite 4, LFM2, gpt-oss, Gemma 3 and 4, OLMo, GLM, Step, Zaya, DeepSeek-V4",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let Some(words) = config.words("layer_types")? else { return Ok(None) };
    config.require_length("layer_types", words.len(), depth)?;
    let shared = shared_index(config, depth)?;
    let global = super::indices(config, "global_attn_idx", depth, 0)?;
    let mut layers = Vec::with_capacity(depth);
    for (index, word) in words.into_iter().enumerate() {
        let mut reading = match word {
            "hybrid" | "hybrid_sliding" => {
                let kind = if word == "hybrid" { Kind::Full } else { Kind::Window(None) };
                hybrid(config, kind)?
            }
            "compressed_sparse_attention" => compressed(config, word, 4, true)?,
            "heavily_compressed_attention" => compressed(config, word, 128, false)?,
            "moe" => Reading::slot(Channel::Experts),
            "mlp" => Reading::slot(Channel::Dense),
            // Nemotron-Flash names its slots by letters and tells global attention from local in a list.
            "f" if global.is_some() => Reading::slot(Channel::Dense),
            "m2" if global.is_some() => Reading::recurrent(Recurrent::OneOf(&["mamba2"])).alone(),
            "a" if global.as_ref().is_some_and(|global| global[index]) => Reading::full().alone(),
            "a" if global.is_some() => Reading::window().alone(),
            "deltanet" => Reading::recurrent(Recurrent::OneOf(&["deltanet", "gdn"])),
            _ => by_word(word),
        };
        if let Kind::TokenSparse { own_index } = &mut reading.kind {
            *own_index = !shared.get(index).copied().unwrap_or(false);
        }
        layers.push(reading.by(config.path_of(&format!("layer_types[{index}]"))));
    }
    Ok(Some(Layout::new(layers)))
}

/// Layers that reuse the indexer's choice of an earlier layer.
pub(super) fn shared_index(config: &Config, depth: usize) -> Result<Vec<bool>, AuditError> {
    let Some(types) = config.words("indexer_types")? else { return Ok(Vec::new()) };
    config.require_length("indexer_types", types.len(), depth)?;
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

fn compressed(config: &Config, word: &str, default: u64, picks: bool) -> Result<Reading, AuditError> {
    let ratio = config.size(&format!("compress_rates.{word}"))?.unwrap_or(default);
    Ok(Reading::new(Kind::Compressed { ratio, picks }))
}

/// Attention and a second mixer in one layer.
pub(super) fn hybrid(config: &Config, kind: Kind) -> Result<Reading, AuditError> {
    let front = match front_convolution(config)? {
        Some(found) => Some(found),
        None => four_convolutions(config, &kind)?,
    };
    let Some((taps, channels)) = front else {
        return Ok(Reading::new(kind).with(Recurrent::BySizes, Join::Beside));
    };
    let numbers = vec![("taps", taps), ("channels", channels), ("gated", 1)];
    Ok(Reading::new(kind).with(Recurrent::Known("conv", numbers), Join::Before))
}

/// Zaya: two short convolutions run over queries and keys before attention, and half of the values is delayed by a token.
fn front_convolution(config: &Config) -> Result<Option<(u64, u64)>, AuditError> {
    let (Some(first), Some(second)) = (config.size("cca_time0")?, config.size("cca_time1")?) else { return Ok(None) };
    let (heads, kv) = (config.size("num_attention_heads")?, config.size("num_key_value_heads")?);
    let head = config.size("head_dim")?.unwrap_or(128);
    let (Some(heads), Some(kv)) = (heads, kv) else { return Ok(None) };
    // Together they keep first-1 and second-1 inputs; all that is kept is charged as one input of a wider convolution.
    let columns = (first + second).saturating_sub(2);
    Ok(Some((2, (columns * (heads + kv) * head + kv * head / 2).max(1))))
}

/// Inkling: convolutions over keys and values, and over the stream after attention and after the feed-forward part.
fn four_convolutions(config: &Config, kind: &Kind) -> Result<Option<(u64, u64)>, AuditError> {
    let known = config.model_type()?.is_some_and(|name| name.starts_with("inkling"));
    let four = config.count("number_of_conv_states")?.map_or(known, |count| count == 4);
    let Some(taps) = config.size("conv_kernel_size")?.filter(|_| four) else { return Ok(None) };
    let window = matches!(kind, Kind::Window(_));
    let pick = |own: &str, other: &str| match config.size(own)? {
        Some(found) if window => Ok(Some(found)),
        _ => config.size(other),
    };
    let (kv, head) = (pick("swa_num_key_value_heads", "num_key_value_heads")?, pick("swa_head_dim", "head_dim")?);
    let (Some(kv), Some(head), Some(width)) = (kv, head, config.width()?) else { return Ok(None) };
    Ok(Some((taps, 2 * kv * head + 2 * width)))
}
