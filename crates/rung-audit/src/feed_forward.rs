//! The feed-forward networks: which layers have one dense network and which have experts.
//!
//! Rungs and caches do not depend on them. Reports show them because in some models a feed-forward network counts as a
//! layer of its own, and a reader should see that it was not counted as a mixer.

use std::collections::HashSet;

use crate::AuditError;
use crate::config::{Config, as_u64};
use crate::json::JsonValue;
use crate::layout::FeedForwardKind;

/// The feed-forward kind of each layer, for layers whose dialect does not give it.
pub(crate) fn feed_forwards(config: &Config, num_layers: usize) -> Result<Vec<FeedForwardKind>, AuditError> {
    if has_no_feed_forward(config)? {
        return Ok(vec![FeedForwardKind::None; num_layers]);
    }
    let names = ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "expert_count"];
    let mut experts = 0;
    for name in names {
        experts = experts.max(config.count(name)?.unwrap_or(0));
    }
    if experts == 0 {
        return Ok(vec![FeedForwardKind::Dense; num_layers]);
    }
    let leading_dense =
        config.count("first_k_dense_replace")?.or(config.count("leading_dense_block_count")?).unwrap_or(0);
    let mut has_experts: Vec<bool> = (0..num_layers).map(|index| index as u64 >= leading_dense).collect();
    let mut require = |rule: &dyn Fn(usize) -> bool| {
        has_experts.iter_mut().enumerate().for_each(|(index, flag)| *flag &= rule(index));
    };
    if let Some(period) = config.size("expert_layer_period")? {
        let offset = config.count("expert_layer_offset")?.unwrap_or(0);
        require(&|index| index as u64 % period == offset);
    }
    for name in ["decoder_sparse_step", "interleave_moe_layer_step"] {
        if let Some(step) = config.size(name)? {
            require(&|index| (index as u64 + 1).is_multiple_of(step));
        }
    }
    match config.get("moe_layer_freq") {
        Some(JsonValue::List(items)) if items.len() == num_layers => require(&|index| as_u64(&items[index]) == Some(1)),
        Some(value) => {
            if let Some(step) = as_u64(value).filter(|&step| step > 1) {
                require(&|index| (index as u64).is_multiple_of(step));
            }
        }
        None => {}
    }
    if let Some(JsonValue::List(items)) = config.get("mlp_only_layers") {
        let dense: HashSet<u64> = items.iter().filter_map(as_u64).collect();
        require(&|index| !dense.contains(&(index as u64)));
    }
    if let Some(JsonValue::List(items)) = config.get("mlp_layer_types") {
        require(&|index| !matches!(items.get(index), Some(JsonValue::String(word)) if word == "dense"));
    }
    Ok(has_experts
        .into_iter()
        .map(|flag| if flag { FeedForwardKind::Experts } else { FeedForwardKind::Dense })
        .collect())
}

/// Whether the model has only mixers, as Mamba models do.
fn has_no_feed_forward(config: &Config) -> Result<bool, AuditError> {
    let is_mamba = matches!(config.model_type()?, Some("mamba" | "mamba2" | "falcon_mamba"));
    let is_original_mamba = config.has_key("ssm_cfg") && config.count("d_intermediate")?.unwrap_or(0) == 0;
    Ok(is_mamba || is_original_mamba)
}
