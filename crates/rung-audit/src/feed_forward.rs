//! The feed-forward parts: which layers have one network and which have experts.
//!
//! Nothing here changes rungs or caches; it is shown because in some stacks feed-forward parts are layers of their
//! own, and a reader should see that they were not counted as mixers.

use crate::AuditError;
use crate::config::{Config, as_u64};
use crate::json::JsonValue;
use crate::layout::FeedForwardKind;

/// One per layer, used where the layout itself does not say.
pub(crate) fn feed_forwards(config: &Config, num_layers: usize) -> Result<Vec<FeedForwardKind>, AuditError> {
    if has_none(config)? {
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
    let dense_first =
        config.count("first_k_dense_replace")?.or(config.count("leading_dense_block_count")?).unwrap_or(0);
    let mut flags: Vec<bool> = (0..num_layers).map(|index| index as u64 >= dense_first).collect();
    let mut keep =
        |rule: &dyn Fn(usize) -> bool| flags.iter_mut().enumerate().for_each(|(index, flag)| *flag &= rule(index));
    if let Some(period) = config.size("expert_layer_period")? {
        let offset = config.count("expert_layer_offset")?.unwrap_or(0);
        keep(&|index| index as u64 % period == offset);
    }
    for name in ["decoder_sparse_step", "interleave_moe_layer_step"] {
        if let Some(step) = config.size(name)? {
            keep(&|index| (index as u64 + 1).is_multiple_of(step));
        }
    }
    match config.get("moe_layer_freq") {
        Some(JsonValue::List(items)) if items.len() == num_layers => keep(&|index| as_u64(&items[index]) == Some(1)),
        Some(value) => {
            if let Some(step) = as_u64(value).filter(|&step| step > 1) {
                keep(&|index| (index as u64).is_multiple_of(step));
            }
        }
        None => {}
    }
    if let Some(JsonValue::List(items)) = config.get("mlp_only_layers") {
        keep(&|index| !items.iter().any(|item| as_u64(item) == Some(index as u64)));
    }
    if let Some(JsonValue::List(items)) = config.get("mlp_layer_types") {
        keep(&|index| !matches!(items.get(index), Some(JsonValue::Text(word)) if word == "dense"));
    }
    Ok(flags.into_iter().map(|flag| if flag { FeedForwardKind::Experts } else { FeedForwardKind::Dense }).collect())
}

/// Mamba models put everything into the mixer.
fn has_none(config: &Config) -> Result<bool, AuditError> {
    let pure = matches!(config.model_type()?, Some("mamba" | "mamba2" | "falcon_mamba"));
    let authors = config.has_key("ssm_cfg") && config.count("d_intermediate")?.unwrap_or(0) == 0;
    Ok(pure || authors)
}
