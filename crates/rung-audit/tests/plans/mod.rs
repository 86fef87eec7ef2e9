//! Reads plan settings from JSON and metrics by name.

use rung_audit::engine::{EngineSettings, MemoryPlan};
use serde_json::Value;

/// Settings from an object keyed by the names of `rung plan`'s options.
pub fn settings(value: &Value) -> EngineSettings {
    let number = |name: &str| value[name].as_u64();
    let text = |name: &str| value[name].as_str();
    let options = value["set"].as_object().into_iter().flatten();
    EngineSettings {
        tp: number("tp").unwrap_or(1),
        kv_format: text("kv_dtype").map(|name| name.parse().unwrap()),
        state_dtype: text("state_dtype").map(|name| name.parse().unwrap()),
        memory: number("memory"),
        weights: number("weights"),
        context: number("context"),
        requests: number("requests").unwrap_or(1),
        speculative: number("speculative").unwrap_or(0),
        version: text("engine_version").map(str::to_owned),
        skip_unsupported_layers: value["partial"] == true,
        options: options.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned())).collect(),
    }
}

/// A metric of a plan, converted from bytes to `unit` where necessary.
pub fn metric(plan: &MemoryPlan, name: &str, unit: &str) -> Option<f64> {
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| (bytes as f64, "bytes"));
    let (value, value_unit) = match name {
        "cache_bytes" => bytes(plan.cache_bytes)?,
        "kv_bytes" => bytes(plan.kv_bytes)?,
        "kv_and_window_bytes" => bytes(Some(plan.kv_bytes? + plan.window_bytes?))?,
        _ => plan.metrics.iter().find(|metric| metric.name == name).map(|metric| (metric.value, metric.unit))?,
    };
    match (value_unit, unit) {
        ("bytes", "GiB") => Some(value / 1_073_741_824.0),
        ("bytes", "MiB") => Some(value / 1_048_576.0),
        (value_unit, unit) if value_unit == unit => Some(value),
        _ => panic!("{name} is in {value_unit}, not {unit}"),
    }
}
