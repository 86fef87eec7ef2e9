//! GGUF: what the metadata of a GGUF file says about layers.
//!
//! # Families
//! Any model converted to GGUF; fields stand under the architecture's name (`qwen35.attention.head_count`).
//!
//! # Pitfalls
//! Four fields give a layer's kind: `attention.recurrent_layers` (flags), `full_attention_interval`, a list under
//! `attention.head_count_kv` with 0 for layers that do not attend, and `attention.sliding_window_pattern`: a list with 1 for
//! windows, or a period whose last layer is full. Without any of them, all layers are recurrent if there are sizes of a
//! recurrence (`ssm.*`, `wkv.*` and others). The model type decides too: in Falcon-H1 every layer has attention and Mamba-2 in
//! parallel. In Nemotron-H models, layers with neither attention nor recurrence have 0 key/value heads *and* a feed-forward
//! length. `ssm.time_step_rank` is a number of heads for Mamba-2 and for the delta rule, a rank for Mamba-1. `block_count`
//! includes multi-token-prediction layers.

use super::{Dialect, period};
use crate::AuditError;
use crate::attention_sizes::window_size;
use crate::config::Config;
use crate::json::JsonValue;
use crate::layout::{FeedForwardKind, LayerOverrides, LayerSpec, Layout, MixerOrder, RecurrenceSpec};

pub(super) static DIALECT: Dialect = Dialect {
    name: "gguf",
    fields: &[
        "attention.recurrent_layers",
        "full_attention_interval",
        "attention.head_count_kv",
        "attention.sliding_window_pattern",
    ],
    families: "GGUF headers of llama.cpp",
    fallback: false,
    read,
};

const RECURRENT_LAYERS: &str = "attention.recurrent_layers";
const FULL_INTERVAL: &str = "full_attention_interval";
const KV_HEADS: &str = "attention.head_count_kv";
const WINDOW_PATTERN: &str = "attention.sliding_window_pattern";

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    if !config.gguf {
        return Ok(None);
    }
    let recurrent_layers = recurrent_layers(config, num_layers)?;
    let is_recurrent = |index: usize| recurrent_layers.as_ref().is_some_and(|(flags, _)| flags[index]);
    let recurrent_field = recurrent_layers.as_ref().map_or("", |(_, field)| *field);
    let kv_heads = per_layer(config, KV_HEADS, num_layers)?;
    let is_window = window_layers(config, num_layers)?;
    let recurrence = recurrence(config)?;
    // Without per-layer fields: an architecture whose layers are all alike, or a pattern that llama.cpp hard-codes.
    let has_layer_fields = recurrent_layers.is_some() || kv_heads.is_some() || is_window.is_some();
    let is_parallel = config.model_type()? == Some("falcon-h1");
    if !has_layer_fields && !is_parallel && recurrence.is_none() {
        return Ok(None);
    }
    let ffn_lengths = per_layer(config, "feed_forward_length", num_layers)?;
    Ok(Some(Layout::from_fn(num_layers, |index| {
        let layer_kv_heads = kv_heads.as_ref().map(|heads| heads[index]);
        let has_ffn = ffn_lengths.as_ref().is_some_and(|lengths| lengths[index] > 0);
        if is_parallel {
            let recurrence = recurrence.clone().unwrap_or(RecurrenceSpec::SizesFromConfig(&["mamba2"]));
            return LayerSpec::full()
                .with_recurrence(recurrence, MixerOrder::Parallel)
                .decided_by(config.path_of("model_type"));
        }
        if is_recurrent(index) || layer_kv_heads == Some(0) || (!has_layer_fields && recurrence.is_some()) {
            let field = if is_recurrent(index) {
                recurrent_field
            } else if layer_kv_heads == Some(0) {
                KV_HEADS
            } else {
                "ssm.state_size"
            };
            let nemotron_ffn = match config.model_type().ok().flatten() {
                Some("nemotron_h") => Some(FeedForwardKind::Dense),
                Some("nemotron_h_moe") => Some(FeedForwardKind::Experts),
                _ => None,
            };
            let is_ffn_layer = layer_kv_heads == Some(0) && has_ffn && !is_recurrent(index);
            let spec = if let Some(ffn) = nemotron_ffn.filter(|_| is_ffn_layer) {
                LayerSpec::without_mixer(ffn)
            } else {
                LayerSpec::recurrent(recurrence.clone().unwrap_or(RecurrenceSpec::InferFromSizeFields))
            };
            return spec.decided_by(config.path_of(field));
        }
        let window = is_window.as_ref().is_some_and(|flags| flags[index]);
        let base = if window { LayerSpec::window() } else { LayerSpec::full() };
        let field = match (&is_window, &kv_heads) {
            (Some(_), _) => WINDOW_PATTERN,
            (None, Some(_)) => KV_HEADS,
            (None, None) => recurrent_field,
        };
        let overrides = LayerOverrides { kv_heads: layer_kv_heads, ..LayerOverrides::default() };
        LayerSpec { overrides, ..base.decided_by(config.path_of(field)) }
    })))
}

/// A flag per layer, set for recurrent layers, and the field that says so.
fn recurrent_layers(config: &Config, num_layers: usize) -> Result<Option<(Vec<bool>, &'static str)>, AuditError> {
    if let Some(flags) = per_layer(config, RECURRENT_LAYERS, num_layers)? {
        return Ok(Some((flags.into_iter().map(|flag| flag != 0).collect(), RECURRENT_LAYERS)));
    }
    let Some(period) = period(config, FULL_INTERVAL)? else { return Ok(None) };
    let flags = (0..num_layers).map(|index| !(index + 1).is_multiple_of(period)).collect();
    Ok(Some((flags, FULL_INTERVAL)))
}

/// A list with an entry per layer; entries of multi-token-prediction layers after the stack are dropped.
fn per_layer(config: &Config, name: &str, num_layers: usize) -> Result<Option<Vec<u64>>, AuditError> {
    if !matches!(config.get(name), Some(JsonValue::List(_))) {
        return Ok(None);
    }
    let mut numbers = config.numbers(name)?.unwrap_or_default();
    let mtp_layers = config.count("nextn_predict_layers")?.unwrap_or(0) as usize;
    if numbers.len() != num_layers + mtp_layers {
        config.require_length(name, numbers.len(), num_layers)?;
    }
    numbers.truncate(num_layers);
    Ok(Some(numbers))
}

/// A flag per layer, set for layers with a window; nothing where no field says so.
fn window_layers(config: &Config, num_layers: usize) -> Result<Option<Vec<bool>>, AuditError> {
    if window_size(config)?.is_none() {
        return Ok(None);
    }
    if let Some(flags) = per_layer(config, WINDOW_PATTERN, num_layers)? {
        return Ok(Some(flags.into_iter().map(|flag| flag != 0).collect()));
    }
    let Some(period) = period(config, WINDOW_PATTERN)? else { return Ok(None) };
    Ok(Some((0..num_layers).map(|index| !(index + 1).is_multiple_of(period)).collect()))
}

/// The recurrence that the size fields describe.
fn recurrence(config: &Config) -> Result<Option<RecurrenceSpec>, AuditError> {
    if let Some(kernel_size) = config.size("shortconv.l_cache")? {
        let channels = config.width()?.unwrap_or(1);
        return Ok(Some(RecurrenceSpec::WithSizes("conv", vec![("taps", kernel_size), ("channels", channels)])));
    }
    if let (Some(head_dim), Some(width)) = (config.size("wkv.head_size")?, config.width()?) {
        let name = if config.has("attention.iclr_lora_rank") { "rwkv7" } else { "rwkv6" };
        // `channel` is a flag: the layer has RWKV's channel mixing, with a second token shift.
        return Ok(Some(RecurrenceSpec::WithSizes(
            name,
            vec![("heads", (width / head_dim).max(1)), ("head", head_dim), ("channel", 1)],
        )));
    }
    let conv_kernel = config.size("ssm.conv_kernel")?.unwrap_or(4);
    if let (Some(head_dim), Some(heads)) = (config.size("kda.head_dim")?, max_query_heads(config)?) {
        return Ok(Some(RecurrenceSpec::WithSizes(
            "kda",
            vec![("heads", heads), ("key", head_dim), ("value", head_dim), ("conv", conv_kernel)],
        )));
    }
    let (Some(state_size), Some(inner_dim)) = (config.size("ssm.state_size")?, config.size("ssm.inner_size")?) else {
        return Ok(None);
    };
    // A number of heads, except for Mamba-1, where it is a rank.
    let heads_or_rank = config.size("ssm.time_step_rank")?.unwrap_or(1);
    let groups = config.count("ssm.group_count")?.unwrap_or(0);
    Ok(Some(if config.has(FULL_INTERVAL) || config.has(RECURRENT_LAYERS) {
        // The delta rule: `group_count` key heads, `time_step_rank` value heads, keys of width `state_size`.
        let value_dim = (inner_dim / heads_or_rank).max(1);
        let sizes = vec![
            ("heads", groups.max(1)),
            ("value-heads", heads_or_rank),
            ("key", state_size),
            ("value", value_dim),
            ("conv", conv_kernel),
        ];
        RecurrenceSpec::WithSizes("gdn", sizes)
    } else if groups > 0 {
        let head_dim = (inner_dim / heads_or_rank).max(1);
        RecurrenceSpec::WithSizes(
            "mamba2",
            vec![
                ("heads", heads_or_rank),
                ("head", head_dim),
                ("state", state_size),
                ("groups", groups),
                ("conv", conv_kernel),
            ],
        )
    } else {
        RecurrenceSpec::WithSizes(
            "mamba1",
            vec![("inner", inner_dim), ("state", state_size), ("conv", conv_kernel), ("rank", heads_or_rank)],
        )
    }))
}

/// Query heads: the largest number where layers differ.
fn max_query_heads(config: &Config) -> Result<Option<u64>, AuditError> {
    const NAME: &str = "attention.head_count";
    match config.get(NAME) {
        Some(JsonValue::List(_)) => {
            Ok(config.numbers(NAME)?.and_then(|heads| heads.into_iter().max()).filter(|&heads| heads > 0))
        }
        // Files of models without attention say 0.
        _ => Ok(config.count(NAME)?.filter(|&heads| heads > 0)),
    }
}
