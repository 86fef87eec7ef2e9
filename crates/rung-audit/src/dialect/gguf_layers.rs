//! GGUF metadata: what a header of llama.cpp says about layers.
//!
//! # Families
//! Any model converted to GGUF; fields stand under the architecture's name (`qwen35.attention.head_count`).
//!
//! # Trap
//! A layer's kind is told in four ways: `attention.recurrent_layers` (flags), `full_attention_interval`, a list under
//! `attention.head_count_kv` with 0 for layers that do not attend, and a list under
//! `attention.sliding_window_pattern` with 1 for windows. In a stack of Nemotron's kind, slots that neither attend nor
//! recur have 0 key/value heads *and* a feed-forward length. `ssm.time_step_rank` is a number of heads for Mamba-2 and
//! for the delta rule, a rank for Mamba-1. `block_count` includes layers that predict further tokens.

use super::{Dialect, each, period};
use crate::AuditError;
use crate::config::Config;
use crate::geometry::window_size;
use crate::json::Value;
use crate::layout::{Channel, Join, Layout, Own, Reading, Recurrent};

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

const RECURRENT: &str = "attention.recurrent_layers";
const INTERVAL: &str = "full_attention_interval";
const KV: &str = "attention.head_count_kv";
const PATTERN: &str = "attention.sliding_window_pattern";

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    if !config.gguf {
        return Ok(None);
    }
    let (recurrent, attends) = match recurrent_layers(config, depth)? {
        Some(found) => found,
        None => (vec![false; depth], String::new()),
    };
    let heads = per_layer(config, KV, depth)?;
    let windows = windows(config, depth)?;
    let kind = recurrence(config)?;
    // Nothing per layer is told: an architecture of one kind, or a pattern fixed in a program we cannot see.
    let told = !attends.is_empty() || heads.is_some() || windows.is_some();
    let parallel = config.model_type()? == Some("falcon-h1");
    if !told && !parallel && kind.is_none() {
        return Ok(None);
    }
    let lengths = per_layer(config, "feed_forward_length", depth)?;
    Ok(Some(each(depth, |index| {
        let kv = heads.as_ref().map(|heads| heads[index]);
        let ffn = lengths.as_ref().is_some_and(|lengths| lengths[index] > 0);
        if parallel {
            let kind = kind.clone().unwrap_or(Recurrent::OneOf(&["mamba2"]));
            return Reading::full().with(kind, Join::Beside).by(config.path_of("model_type"));
        }
        if recurrent[index] || kv == Some(0) || (!told && kind.is_some()) {
            let by = if recurrent[index] {
                attends.as_str()
            } else if kv == Some(0) {
                KV
            } else {
                "ssm.state_size"
            };
            let slot =
                kv == Some(0) && ffn && !recurrent[index] && config.model_type().ok().flatten() == Some("nemotron_h");
            let reading = if slot {
                Reading::slot(Channel::Dense)
            } else {
                Reading::recurrent(kind.clone().unwrap_or(Recurrent::BySizes))
            };
            return reading.by(config.path_of(by));
        }
        let window = windows.as_ref().is_some_and(|windows| windows[index]);
        let base = if window { Reading::window() } else { Reading::full() };
        let by = [(windows.is_some(), PATTERN), (heads.is_some(), KV)].into_iter().find(|(told, _)| *told);
        let by = by.map_or(attends.as_str(), |(_, name)| name);
        Reading { own: Own { heads: None, kv, ..Own::default() }, ..base.by(config.path_of(by)) }
    })))
}

/// Flags for layers that recur, and the field that says so.
fn recurrent_layers(config: &Config, depth: usize) -> Result<Option<(Vec<bool>, String)>, AuditError> {
    if let Some(flags) = per_layer(config, RECURRENT, depth)? {
        return Ok(Some((flags.into_iter().map(|flag| flag != 0).collect(), RECURRENT.to_owned())));
    }
    let Some(period) = period(config, INTERVAL)? else { return Ok(None) };
    let flags = (0..depth).map(|index| !(index + 1).is_multiple_of(period)).collect();
    Ok(Some((flags, INTERVAL.to_owned())))
}

/// A list with an entry per layer; lists that also cover layers beyond the stack are cut.
fn per_layer(config: &Config, name: &str, depth: usize) -> Result<Option<Vec<u64>>, AuditError> {
    if !matches!(config.get(name), Some(Value::List(_))) {
        return Ok(None);
    }
    let mut numbers = config.numbers(name)?.unwrap_or_default();
    let extra = config.count("nextn_predict_layers")?.unwrap_or(0) as usize;
    if numbers.len() != depth + extra {
        config.require_length(name, numbers.len(), depth)?;
    }
    numbers.truncate(depth);
    Ok(Some(numbers))
}

fn windows(config: &Config, depth: usize) -> Result<Option<Vec<bool>>, AuditError> {
    if window_size(config)?.is_none() {
        return Ok(None);
    }
    if let Some(flags) = per_layer(config, PATTERN, depth)? {
        return Ok(Some(flags.into_iter().map(|flag| flag != 0).collect()));
    }
    let Some(period) = period(config, PATTERN)? else { return Ok(None) };
    Ok(Some((0..depth).map(|index| !(index + 1).is_multiple_of(period)).collect()))
}

/// The recurrence that the size fields describe.
fn recurrence(config: &Config) -> Result<Option<Recurrent>, AuditError> {
    if let Some(taps) = config.size("shortconv.l_cache")? {
        let channels = config.width()?.unwrap_or(1);
        return Ok(Some(Recurrent::Known("conv", vec![("taps", taps), ("channels", channels)])));
    }
    if let (Some(head), Some(width)) = (config.size("wkv.head_size")?, config.width()?) {
        let name = if config.has("attention.iclr_lora_rank") { "rwkv7" } else { "rwkv6" };
        return Ok(Some(Recurrent::Known(
            name,
            vec![("heads", (width / head).max(1)), ("head", head), ("channel", 1)],
        )));
    }
    let conv = config.size("ssm.conv_kernel")?.unwrap_or(4);
    if let (Some(head), Some(heads)) = (config.size("kda.head_dim")?, heads_of(config)?) {
        return Ok(Some(Recurrent::Known(
            "kda",
            vec![("heads", heads), ("key", head), ("value", head), ("conv", conv)],
        )));
    }
    let (Some(state), Some(inner)) = (config.size("ssm.state_size")?, config.size("ssm.inner_size")?) else {
        return Ok(None);
    };
    let rank = config.size("ssm.time_step_rank")?.unwrap_or(1);
    let groups = config.count("ssm.group_count")?.unwrap_or(0);
    Ok(Some(if config.has(INTERVAL) || config.has(RECURRENT) {
        // The delta rule: groups of key heads, as many value heads as the "rank", keys as wide as the "state".
        let value = (inner / rank).max(1);
        let numbers =
            vec![("heads", groups.max(1)), ("value-heads", rank), ("key", state), ("value", value), ("conv", conv)];
        Recurrent::Known("gdn", numbers)
    } else if groups > 0 {
        let head = (inner / rank).max(1);
        Recurrent::Known(
            "mamba2",
            vec![("heads", rank), ("head", head), ("state", state), ("groups", groups), ("conv", conv)],
        )
    } else {
        Recurrent::Known("mamba1", vec![("inner", inner), ("state", state), ("conv", conv), ("rank", rank)])
    }))
}

/// Query heads, of the first layer where each has its own.
fn heads_of(config: &Config) -> Result<Option<u64>, AuditError> {
    const NAME: &str = "attention.head_count";
    match config.get(NAME) {
        Some(Value::List(_)) => {
            Ok(config.numbers(NAME)?.and_then(|heads| heads.into_iter().max()).filter(|&heads| heads > 0))
        }
        _ => config.size(NAME),
    }
}
