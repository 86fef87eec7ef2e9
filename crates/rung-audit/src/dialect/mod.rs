//! The dialects: which config fields public models use to say what each layer is.
//!
//! One dialect per file. Each names the fields that decide, the families that use it and its pitfalls, and turns a
//! config into a `Layout` or says that its fields are not there. Adding one: write the file, add its name to the list
//! in `registry!`.
//!
//! All dialects whose fields are present are read. The first in the list decides; the others must agree with it layer
//! by layer, or the config contradicts itself. Dialects marked as fallbacks are tried only when no other applies: they
//! go by the architecture's name, or by a field that models of other dialects may have too (`index_topk`,
//! `use_sliding_window`).

use crate::AuditError;
use crate::config::Config;
use crate::json::JsonValue;
use crate::layout::{AttentionKind, LayerSpec, Layout, RecurrenceSpec};

pub(crate) mod recurrence_sizes;

/// A set of config fields that describe a model's layers.
#[derive(Debug)]
pub struct Dialect {
    /// Its name in reports: that of the main field; the dialect of GGUF files is `gguf`.
    pub name: &'static str,
    /// The fields that decide.
    pub fields: &'static [&'static str],
    /// Model families that use it.
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

/// The result of trying all dialects.
pub(crate) enum Decision {
    /// The layout, and the dialect it comes from.
    Known(&'static Dialect, Layout),
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
            Some((_, first)) => first.check_agreement(&layout)?,
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
    share_source_layers(config, &mut layout)?;
    override_heads(config, &mut layout)?;
    override_fields(config, &mut layout)?;
    drop_rotary_keys(config, &mut layout)?;
    mark_indexed_layers(config, &mut layout)?;
    Ok(Decision::Known(dialect, layout))
}

/// Gemma 3n and 4: the last `num_kv_shared_layers` layers read the cache of an earlier layer of the same kind.
fn share_caches(config: &Config, layout: &mut Layout) -> Result<(), AuditError> {
    let name = if config.gguf { "attention.shared_kv_layers" } else { "num_kv_shared_layers" };
    let Some(shared_layers) = config.count(name)? else { return Ok(()) };
    let num_layers = layout.layers.len();
    // Every layer of Gemma 4's draft model reads a cache of the target model.
    let is_draft = shared_layers as usize == num_layers
        && config.root_model_type().is_some_and(|name| name.ends_with("_assistant"));
    if is_draft {
        layout.assumptions.push("All layers read the caches of the model that this one drafts for.".to_owned());
    }
    if shared_layers as usize >= num_layers && shared_layers > 0 && !is_draft {
        return Err(AuditError::field(
            config.path_of(name),
            shared_layers.to_string(),
            format!("fewer than {num_layers} layers"),
        ));
    }
    for spec in &mut layout.layers[num_layers - shared_layers as usize..] {
        spec.shares_cache = spec.kind != AttentionKind::None;
    }
    Ok(())
}

/// Mistral Large 4: `kv_source_layers` gives for each layer the layer whose cache it reads: its own index if it has a cache.
fn share_source_layers(config: &Config, layout: &mut Layout) -> Result<(), AuditError> {
    let name = "kv_source_layers";
    let Some(sources) = config.numbers(name)? else { return Ok(()) };
    config.require_length(name, sources.len(), layout.layers.len())?;
    for (index, &source) in sources.iter().enumerate() {
        let has_cache = sources.get(source as usize) == Some(&source);
        if source > index as u64 || !has_cache {
            let path = config.path_of(&format!("{name}[{index}]"));
            return Err(AuditError::field(path, source.to_string(), "this layer or an earlier one that has a cache"));
        }
        let spec = &mut layout.layers[index];
        spec.shares_cache |= source < index as u64 && spec.kind != AttentionKind::None;
    }
    Ok(())
}

/// Fields of `per_layer_config` that are understood: either their effect on the cache is counted, or they have none.
const PER_LAYER_FIELDS: &[&str] = &[
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

/// Reads `per_layer_config: {"5": {..}}`, in which transformers from 5.22 on writes fields that differ in single layers.
fn override_fields(config: &Config, layout: &mut Layout) -> Result<(), AuditError> {
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
        match fields.iter().map(|(field, _)| field).find(|field| !PER_LAYER_FIELDS.contains(&field.as_str())) {
            // A field that no dialect reads may change the layer's cache.
            Some(field) => layer.kind = AttentionKind::Unknown { value: format!("a layer with its own `{field}`") },
            None => layer.override_key = Some(key.clone()),
        }
    }
    Ok(())
}

/// Latent attention without rotary positions caches no rotary key (Mistral Large 4).
fn drop_rotary_keys(config: &Config, layout: &mut Layout) -> Result<(), AuditError> {
    if !config.has("kv_lora_rank") {
        return Ok(());
    }
    // In `no_rope_layers` a 1 means that the layer has rotary positions.
    let Some(has_rope) = flag_list(config, "no_rope_layers", layout.layers.len())? else { return Ok(()) };
    for (spec, has_rope) in layout.layers.iter_mut().zip(has_rope) {
        spec.overrides.no_rope = !has_rope;
    }
    Ok(())
}

/// Qwen 4: where the sizes of an indexer are given, layers written as full attention have one that selects blocks of tokens. So do
/// layers written as token-sparse, unless the model caches latents.
fn mark_indexed_layers(config: &Config, layout: &mut Layout) -> Result<(), AuditError> {
    if config.size("indexer_head_dim")?.is_none() {
        return Ok(());
    }
    let is_latent = config.has("kv_lora_rank");
    // Where latents are cached, a token-sparse layer is DeepSeek's, with an indexer of another form.
    let may_have_indexer = |kind: &AttentionKind| {
        matches!(kind, AttentionKind::Full) || (matches!(kind, AttentionKind::TokenSparse { .. }) && !is_latent)
    };
    for spec in layout.layers.iter_mut().filter(|spec| may_have_indexer(&spec.kind)) {
        spec.kind = AttentionKind::IndexedBlockSparse;
    }
    Ok(())
}

/// Reads lists of head counts: models whose layers differ in heads give a list where others give a number (Laguna and others).
fn override_heads(config: &Config, layout: &mut Layout) -> Result<(), AuditError> {
    let query_names = ["num_attention_heads_per_layer", "num_attention_heads", "num_query_heads"];
    let kv_names = ["num_key_value_heads_per_layer", "num_key_value_heads", "num_kv_heads"];
    for (names, is_kv) in [(query_names, false), (kv_names, true)] {
        let is_list = |name: &&str| matches!(config.get(name), Some(JsonValue::List(_)));
        let Some(name) = names.into_iter().find(is_list).filter(|_| !config.gguf) else { continue };
        let heads = config.numbers(name)?.unwrap_or_default();
        config.require_length(name, heads.len(), layout.layers.len())?;
        for (index, (spec, &count)) in layout.layers.iter_mut().zip(&heads).enumerate() {
            if count == 0 && spec.kind != AttentionKind::None {
                let path = config.path_of(&format!("{name}[{index}]"));
                return Err(AuditError::field(path, "0", "at least one head in a layer that attends"));
            }
            let overridden = if is_kv { &mut spec.overrides.kv_heads } else { &mut spec.overrides.heads };
            *overridden = overridden.or(Some(count).filter(|&count| count > 0));
        }
    }
    Ok(())
}

/// A layer of linear recurrence; the size fields tell which one.
fn linear_layer() -> LayerSpec {
    LayerSpec::recurrent(RecurrenceSpec::InferFromSizeFields)
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

/// A list of layer numbers counted from `base`, converted to one flag per layer.
fn layer_mask(config: &Config, name: &str, num_layers: usize, base: u64) -> Result<Option<Vec<bool>>, AuditError> {
    let Some(numbers) = config.numbers(name)? else { return Ok(None) };
    let mut mask = vec![false; num_layers];
    for (position, &number) in numbers.iter().enumerate() {
        let path = || config.path_of(&format!("{name}[{position}]"));
        let flag = number.checked_sub(base).and_then(|index| mask.get_mut(index as usize));
        let Some(flag) = flag else {
            let range = format!("a layer from {base} to {}", num_layers as u64 - 1 + base);
            return Err(AuditError::field(path(), number.to_string(), range));
        };
        if std::mem::replace(flag, true) {
            return Err(AuditError::field(path(), format!("{number} a second time"), "each layer once"));
        }
    }
    Ok(Some(mask))
}

/// A period such as "every 4th": at least 1.
fn period(config: &Config, name: &str) -> Result<Option<usize>, AuditError> {
    Ok(config.number(name, 1, crate::config::MAX_LAYERS)?.map(|period| period as usize))
}

/// The layer with this name in a list, or an unknown one.
fn layer_from_name(name: &str) -> LayerSpec {
    match name {
        "linear_attention"
        | "linear"
        | "lightning_attention"
        | "gated_delta_net"
        | "gated_deltanet"
        | "kda"
        | "gdn" => linear_layer(),
        "conv" | "short_conv" => LayerSpec::recurrent(RecurrenceSpec::SizesFromConfig(&["conv"])),
        "mamba" | "mamba2" | "ssm" => LayerSpec::recurrent(RecurrenceSpec::SizesFromConfig(&["mamba1", "mamba2"])),
        "recurrent" => LayerSpec::recurrent(RecurrenceSpec::SizesFromConfig(&["rglru"])),
        // `reference_sliding_attention` caches the full prompt and a window of the generated tokens: counted as full attention.
        "full_attention"
        | "attention"
        | "global_attention"
        | "global"
        | "full"
        | "attn"
        | "reference_sliding_attention" => LayerSpec::full(),
        "sliding_attention" | "sliding" | "local_attention" | "local" | "swa" | "sliding_window" => LayerSpec::window(),
        "chunked_attention" => LayerSpec::new(AttentionKind::Chunked),
        // transformers writes the same name for an indexer that selects tokens (DeepSeek) and one that selects blocks of tokens (Qwen): the size
        // fields say which it is.
        "deepseek_sparse_attention" | "indexed_attention" => {
            LayerSpec::new(AttentionKind::TokenSparse { has_own_indexer: true })
        }
        "qwen_sparse_attention" => LayerSpec::new(AttentionKind::IndexedBlockSparse),
        "minimax_m3_sparse" => LayerSpec::new(AttentionKind::BlockSparse),
        _ => LayerSpec::new(AttentionKind::Unknown { value: name.to_owned() }),
    }
}
