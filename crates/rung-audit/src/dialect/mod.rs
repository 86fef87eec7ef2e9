//! The dialects: how public models write down which layer does what.
//!
//! One dialect per file. Each names the fields that decide, the families that use it and its pitfalls, and turns a
//! config into a `Layout` or says that its fields are not there. Adding one: write the file, add its name to the list
//! in `registry!`.
//!
//! All dialects whose fields are present are read. The first in the list decides; the others must agree with it layer
//! by layer, or the config contradicts itself. Dialects marked as fallbacks are tried only when no other applies: they
//! go by the architecture's name, for architectures that have no layout field.

use crate::AuditError;
use crate::config::Config;
use crate::json::JsonValue;
use crate::layout::{AttentionKind, LayerSpec, Layout, Recurrent};

/// A way of writing down the layers.
#[derive(Debug)]
pub struct Dialect {
    /// Its name in reports: that of the main field.
    pub name: &'static str,
    /// The fields that decide.
    pub fields: &'static [&'static str],
    /// Who uses it.
    pub families: &'static str,
    /// Tried only when no other dialect applies.
    pub fallback: bool,
    read: fn(&Config, usize) -> Result<Option<Layout>, AuditError>,
}

macro_rules! registry {
    ($($module:ident),* $(,)?) => {
        $(mod $module;)*
        /// Every dialect, in the order in which they decide.
        pub static DIALECTS: &[&Dialect] = &[$(&$module::DIALECT),*];
    };
}

registry! {
    layer_types, layers_block_type, hybrid_override_pattern, linear_attn_config, attn_type_list, compress_ratios,
    sparse_attention_config, block_configs, hybrid_layer_pattern, sliding_window_layout, sliding_window_layers,
    full_attn_idxs, attn_layer_indices, global_attn_idx, full_attention_interval, attn_layer_period,
    layer_group_size, global_attn_every_n_layers, sliding_window_pattern, block_types, layer_mapping,
    block_pattern, mb_per_layer, fla_attn, ssm_cfg, gguf_layers, no_rope_layers,
    attention_layers, cross_attention_layers, index_topk, max_window_layers, two_mixers, architecture,
}

/// What all dialects together find.
pub(crate) enum Decision {
    Read(&'static Dialect, Layout),
    /// No dialect applies; the fields that were looked for.
    Unknown(Vec<String>),
}

/// Tries every dialect.
pub(crate) fn decide(config: &Config) -> Result<Decision, AuditError> {
    let Some(num_layers) = config.num_layers()? else {
        return Ok(Decision::Unknown(vec![
            "num_hidden_layers (or n_layer, num_layers, layers_block_type, ..)".to_owned(),
        ]));
    };
    let mut decided: Option<(&'static Dialect, Layout)> = None;
    for dialect in DIALECTS.iter().filter(|dialect| !dialect.fallback) {
        let Some(layout) = (dialect.read)(config, num_layers)? else { continue };
        match &decided {
            None => decided = Some((dialect, layout)),
            Some((_, first)) => first.agree(&layout)?,
        }
    }
    for dialect in DIALECTS.iter().filter(|dialect| dialect.fallback) {
        if decided.is_none() {
            decided = (dialect.read)(config, num_layers)?.map(|layout| (*dialect, layout));
        }
    }
    let Some((dialect, mut layout)) = decided else {
        let fields = DIALECTS.iter().filter(|dialect| !dialect.fallback).map(|dialect| dialect.fields[0].to_owned());
        return Ok(Decision::Unknown(fields.collect()));
    };
    share_caches(config, &mut layout)?;
    share_sources(config, &mut layout)?;
    heads_per_layer(config, &mut layout)?;
    fields_per_layer(config, &mut layout)?;
    drop_rotary_keys(config, &mut layout)?;
    add_index_keys(config, &mut layout)?;
    Ok(Decision::Read(dialect, layout))
}

/// Gemma 3n and 4: the last so many layers read the cache of an earlier layer of their own kind.
fn share_caches(config: &Config, layout: &mut Layout) -> Result<(), AuditError> {
    let name = if config.gguf { "attention.shared_kv_layers" } else { "num_kv_shared_layers" };
    let Some(shared) = config.count(name)? else { return Ok(()) };
    let num_layers = layout.layers.len();
    // A draft of Gemma 4 reads the caches of the model it drafts for, in every layer.
    let draft = shared as usize == num_layers && config.outer_type().is_some_and(|name| name.ends_with("_assistant"));
    if draft {
        layout.assumed.push("All layers read the caches of the model that this one drafts for.".to_owned());
    }
    if shared as usize >= num_layers && shared > 0 && !draft {
        return Err(AuditError::field(
            config.path_of(name),
            shared.to_string(),
            format!("fewer than {num_layers} layers"),
        ));
    }
    for spec in &mut layout.layers[num_layers - shared as usize..] {
        spec.shares_cache = spec.kind != AttentionKind::None;
    }
    Ok(())
}

/// Mistral Large 4: the layer whose cache each layer reads; its own number where it keeps one.
fn share_sources(config: &Config, layout: &mut Layout) -> Result<(), AuditError> {
    let name = "kv_source_layers";
    let Some(sources) = config.numbers(name)? else { return Ok(()) };
    config.require_length(name, sources.len(), layout.layers.len())?;
    for (index, &source) in sources.iter().enumerate() {
        let keeps = sources.get(source as usize) == Some(&source);
        if source > index as u64 || !keeps {
            let path = config.path_of(&format!("{name}[{index}]"));
            return Err(AuditError::field(path, source.to_string(), "this layer or an earlier one that keeps a cache"));
        }
        let spec = &mut layout.layers[index];
        spec.shares_cache |= source < index as u64 && spec.kind != AttentionKind::None;
    }
    Ok(())
}

/// Fields of `per_layer_config` that change what a layer keeps, and those that do not.
const LAYER_SIZES: &[&str] = &[
    "head_dim",
    "num_attention_heads",
    "num_key_value_heads",
    "kv_lora_rank",
    "q_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "sliding_window",
    "index_head_dim",
    "index_n_heads",
    "index_topk",
    "linear_num_heads",
    "linear_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
    "intermediate_size",
    "moe_intermediate_size",
    "num_experts",
    "num_experts_per_tok",
    "rope_parameters",
    "rope_theta",
    "hidden_act",
    "qk_head_dim",
];

/// transformers from 5.22 on writes what differs in single layers as `per_layer_config: {"5": {..}}`.
fn fields_per_layer(config: &Config, layout: &mut Layout) -> Result<(), AuditError> {
    let name = crate::config::PER_LAYER;
    let entries = match config.get(name) {
        None => return Ok(()),
        Some(JsonValue::Object(entries)) => entries,
        Some(value) => {
            return Err(config.field_error(name, value, "an object with one entry for each layer that differs"));
        }
    };
    let num_layers = layout.layers.len();
    for (key, fields) in entries {
        let path = format!("{name}.{key}");
        let layer = key.parse::<usize>().ok().and_then(|index| layout.layers.get_mut(index));
        let Some(layer) = layer else {
            return Err(AuditError::field(
                config.path_of(&path),
                key.clone(),
                format!("a layer from 0 to {}", num_layers - 1),
            ));
        };
        let JsonValue::Object(fields) = fields else { return Err(config.field_error(&path, fields, "an object")) };
        match fields.iter().map(|(field, _)| field).find(|field| !LAYER_SIZES.contains(&field.as_str())) {
            // A field that no dialect reads may change what the layer keeps.
            Some(field) => layer.kind = AttentionKind::Unknown { word: format!("a layer with its own `{field}`") },
            None => layer.override_key = Some(key.clone()),
        }
    }
    Ok(())
}

/// Latent attention without rotary positions keeps no rotary key (Mistral Large 4).
fn drop_rotary_keys(config: &Config, layout: &mut Layout) -> Result<(), AuditError> {
    if !config.has("kv_lora_rank") {
        return Ok(());
    }
    let Some(rotary) = flag_list(config, "no_rope_layers", layout.layers.len())? else { return Ok(()) };
    for (spec, rotary) in layout.layers.iter_mut().zip(rotary) {
        spec.overrides.no_rope = !rotary;
    }
    Ok(())
}

/// Qwen 4: layers written as full attention have an indexer of their own where its sizes are given.
fn add_index_keys(config: &Config, layout: &mut Layout) -> Result<(), AuditError> {
    if config.size("indexer_head_dim")?.is_none() {
        return Ok(());
    }
    let latent = config.has("kv_lora_rank");
    let keeps_all = |kind: &AttentionKind| {
        matches!(kind, AttentionKind::Full) || (matches!(kind, AttentionKind::TokenSparse { .. }) && !latent)
    };
    for spec in layout.layers.iter_mut().filter(|spec| keeps_all(&spec.kind)) {
        spec.kind = AttentionKind::QuerySparse;
    }
    Ok(())
}

/// Models whose layers differ in heads give a list where others give a number (Laguna and others).
fn heads_per_layer(config: &Config, layout: &mut Layout) -> Result<(), AuditError> {
    let queries = ["num_attention_heads_per_layer", "num_attention_heads", "num_query_heads"];
    let keys = ["num_key_value_heads_per_layer", "num_key_value_heads", "num_kv_heads"];
    for (names, is_key) in [(queries, false), (keys, true)] {
        let listed = |name: &&str| matches!(config.get(name), Some(JsonValue::List(_)));
        let Some(name) = names.into_iter().find(listed).filter(|_| !config.gguf) else { continue };
        let heads = config.numbers(name)?.unwrap_or_default();
        config.require_length(name, heads.len(), layout.layers.len())?;
        for (index, (spec, &count)) in layout.layers.iter_mut().zip(&heads).enumerate() {
            if count == 0 && spec.kind != AttentionKind::None {
                let path = config.path_of(&format!("{name}[{index}]"));
                return Err(AuditError::field(path, "0", "at least one head in a layer that attends"));
            }
            let overridden = if is_key { &mut spec.overrides.kv } else { &mut spec.overrides.heads };
            *overridden = overridden.or(Some(count).filter(|&count| count > 0));
        }
    }
    Ok(())
}

/// A linear recurrence of whichever family the sizes belong to.
fn linear_layer() -> LayerSpec {
    LayerSpec::recurrent(Recurrent::BySizes)
}

/// A list of 0 and 1, one per layer.
fn flag_list(config: &Config, name: &str, num_layers: usize) -> Result<Option<Vec<bool>>, AuditError> {
    let Some(numbers) = config.numbers(name)? else { return Ok(None) };
    config.require_length(name, numbers.len(), num_layers)?;
    if let Some(index) = numbers.iter().position(|&number| number > 1) {
        return Err(AuditError::field(
            config.path_of(&format!("{name}[{index}]")),
            numbers[index].to_string(),
            "0 or 1",
        ));
    }
    Ok(Some(numbers.into_iter().map(|number| number == 1).collect()))
}

/// A list of layer numbers counted from `base`, as a flag per layer.
fn layer_mask(config: &Config, name: &str, num_layers: usize, base: u64) -> Result<Option<Vec<bool>>, AuditError> {
    let Some(numbers) = config.numbers(name)? else { return Ok(None) };
    let mut listed = vec![false; num_layers];
    for (position, &number) in numbers.iter().enumerate() {
        let path = || config.path_of(&format!("{name}[{position}]"));
        let flag = number.checked_sub(base).and_then(|index| listed.get_mut(index as usize));
        let Some(flag) = flag else {
            let range = format!("a layer from {base} to {}", num_layers as u64 - 1 + base);
            return Err(AuditError::field(path(), number.to_string(), range));
        };
        if std::mem::replace(flag, true) {
            return Err(AuditError::field(path(), format!("{number} a second time"), "each layer once"));
        }
    }
    Ok(Some(listed))
}

/// A period such as "every 4th": at least 1.
fn period(config: &Config, name: &str) -> Result<Option<usize>, AuditError> {
    Ok(config.number(name, 1, crate::config::MAX_LAYERS)?.map(|period| period as usize))
}

/// The layer that a word of a list names, or an unknown one.
fn layer_from_word(word: &str) -> LayerSpec {
    // Linear words first: "linear_attention" contains the word attention.
    match word {
        "linear_attention"
        | "linear"
        | "lightning_attention"
        | "gated_delta_net"
        | "gated_deltanet"
        | "kda"
        | "gdn" => linear_layer(),
        "conv" | "short_conv" => LayerSpec::recurrent(Recurrent::OneOf(&["conv"])),
        "mamba" | "mamba2" | "ssm" => LayerSpec::recurrent(Recurrent::OneOf(&["mamba1", "mamba2"])),
        "recurrent" => LayerSpec::recurrent(Recurrent::OneOf(&["rglru"])),
        // The last keeps the prompt whole and a window of what is generated: counted as if all were prompt.
        "full_attention"
        | "attention"
        | "global_attention"
        | "global"
        | "full"
        | "attn"
        | "reference_sliding_attention" => LayerSpec::full(),
        "sliding_attention" | "sliding" | "local_attention" | "local" | "swa" | "sliding_window" => LayerSpec::window(),
        "chunked_attention" => LayerSpec::new(AttentionKind::Chunked),
        // transformers writes one word for both kinds of index: the size fields say which.
        "deepseek_sparse_attention" | "indexed_attention" => {
            LayerSpec::new(AttentionKind::TokenSparse { own_index: true })
        }
        "qwen_sparse_attention" => LayerSpec::new(AttentionKind::QuerySparse),
        "minimax_m3_sparse" => LayerSpec::new(AttentionKind::BlockSparse),
        _ => LayerSpec::new(AttentionKind::Unknown { word: word.to_owned() }),
    }
}
