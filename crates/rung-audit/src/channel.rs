//! The channel mixers: which layers have one feed-forward network and which have experts.
//!
//! Nothing here changes rungs or caches; it is shown because in some stacks feed-forward parts take slots of their
//! own, and a reader should see that they were not counted as mixers.

use crate::AuditError;
use crate::config::{Config, whole};
use crate::json::Value;
use crate::layout::Channel;

/// One per layer, for layers whose layout does not tell.
pub(crate) fn channels(config: &Config, depth: usize) -> Result<Vec<Channel>, AuditError> {
    if has_none(config)? {
        return Ok(vec![Channel::None; depth]);
    }
    let names = ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "expert_count"];
    let mut experts = 0;
    for name in names {
        experts = experts.max(config.count(name)?.unwrap_or(0));
    }
    if experts == 0 {
        return Ok(vec![Channel::Dense; depth]);
    }
    let dense_first =
        config.count("first_k_dense_replace")?.or(config.count("leading_dense_block_count")?).unwrap_or(0);
    let mut flags: Vec<bool> = (0..depth).map(|index| index as u64 >= dense_first).collect();
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
        Some(Value::List(items)) if items.len() == depth => keep(&|index| whole(&items[index]) == Some(1)),
        Some(value) => {
            if let Some(step) = whole(value).filter(|&step| step > 1) {
                keep(&|index| (index as u64).is_multiple_of(step));
            }
        }
        None => {}
    }
    if let Some(Value::List(items)) = config.get("mlp_only_layers") {
        keep(&|index| !items.iter().any(|item| whole(item) == Some(index as u64)));
    }
    if let Some(Value::List(items)) = config.get("mlp_layer_types") {
        keep(&|index| !matches!(items.get(index), Some(Value::Text(word)) if word == "dense"));
    }
    Ok(flags.into_iter().map(|flag| if flag { Channel::Experts } else { Channel::Dense }).collect())
}

/// Mamba models put everything into the mixer.
fn has_none(config: &Config) -> Result<bool, AuditError> {
    let pure = matches!(config.model_type()?, Some("mamba" | "mamba2" | "falcon_mamba"));
    let authors = config.mentions("ssm_cfg") && config.count("d_intermediate")?.unwrap_or(0) == 0;
    Ok(pure || authors)
}
