//! Finds fields that no dialect reads and that may enlarge a layer's cache: the audit then answers *unknown* instead of a
//! number that may be too low.
//!
//! A field is suspect if it is a list of strings or integers with one entry per layer, or if its name begins like those
//! of indexers, cache sources or cache compression. Fields known not to matter are listed here.

use crate::config::{Config, as_u64};
use crate::dialect::DIALECTS;
use crate::json::JsonValue;

/// Per-layer lists that do not affect a cache, or are read outside the dialects.
const IGNORED_LISTS: &[&str] = &[
    "mlp_layer_types",
    "moe_layer_freq",
    "moe_layers",
    "mlp_only_layers",
    "layer_moe_types",
    "num_attention_heads",
    "num_attention_heads_per_layer",
    "num_query_heads",
    "num_key_value_heads",
    "num_key_value_heads_per_layer",
    "num_kv_heads",
    "kv_source_layers",
    "no_rope_layers",
    "no_rope_layer_interval",
    "intermediate_size",
    "feed_forward_length",
    "ffn_hidden_size",
    "ffn_dim",
    "conv_dim",
    "ple_layer_ids",
    "mtp_layer_types",
    "rope_layers",
    "nope_layers",
    "activation_sparsity_pattern",
    "eos_token_id",
    "attention_types",
    "qk_norm_layers",
    "num_experts_per_layer",
];

/// Words in the names of per-layer lists that are not about attention.
const IGNORED_NAME_PARTS: &[&str] =
    &["rope", "theta", "norm", "scale", "dropout", "mlp", "moe", "expert", "ffn", "token"];

/// Prefixes of fields that usually describe something cached.
const CACHE_PREFIXES: &[&str] = &["index_", "indexer_", "kv_source", "compress_", "kv_compress", "cache_"];

/// Names with such prefixes that are read, or do not affect a cache.
const KNOWN_FIELDS: &[&str] = &[
    "index_topk",
    "index_n_heads",
    "index_head_dim",
    "index_topk_freq",
    "index_topk_pattern",
    "index_kpool",
    "index_kpool_always_select_tail",
    "index_share_for_mtp_iteration",
    "index_skip_topk_offset",
    "index_local_blocks",
    "index_block_size",
    "index_topk_blocks",
    "indexer_types",
    "indexer_rope_interleave",
    "indexer_n_heads",
    "indexer_kv_heads",
    "indexer_head_dim",
    "indexer_budget",
    "indexer_compress_ratio",
    "compress_ratios",
    "compress_rates",
    "compress_rope_theta",
    "cache_implementation",
    "kv_source_layers",
];

/// One sentence for each suspect field that no dialect reads.
pub(crate) fn unread_fields(config: &Config, num_layers: usize) -> Vec<String> {
    let mut reasons = Vec::new();
    for (name, value) in config.fields() {
        let path = config.path_of(name);
        if is_per_layer(value, num_layers) && !is_read_or_ignored(name) {
            reasons.push(format!("`{path}` has one entry per layer and is not read: it may change what layers cache"));
        } else if is_suspect(name, value) {
            reasons.push(format!("`{path}` is not read: its name suggests that layers cache more"));
        }
    }
    reasons.truncate(8);
    reasons
}

fn is_per_layer(value: &JsonValue, num_layers: usize) -> bool {
    let JsonValue::List(items) = value else { return false };
    let is_string_or_number =
        |item: &JsonValue| matches!(item, JsonValue::String(_) | JsonValue::Bool(_)) || as_u64(item).is_some();
    num_layers > 2 && items.len() == num_layers && items.iter().all(is_string_or_number)
}

fn is_read_or_ignored(name: &str) -> bool {
    // A dialect's field `object.field` covers the whole `object`.
    let covers = |field: &&str| *field == name || field.split('.').next() == Some(name);
    IGNORED_NAME_PARTS.iter().any(|word| name.contains(word))
        || IGNORED_LISTS.contains(&name)
        || KNOWN_FIELDS.contains(&name)
        || DIALECTS.iter().any(|dialect| dialect.fields.iter().any(covers))
}

fn is_suspect(name: &str, value: &JsonValue) -> bool {
    let is_unset = matches!(value, JsonValue::Null | JsonValue::Bool(false));
    !is_unset && CACHE_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && !KNOWN_FIELDS.contains(&name)
}
