//! Plans for llama.cpp against the sizes that it logged for tiny GGUF files.
//!
//! `oracle/llama_cpp_cache.py` wrote the files and collected the log; its output is stored in `data/`.

mod common;

use common::{Meta, header};
use rung_audit::engine::{EngineSettings, engine, plan};
use rung_audit::{AuditOptions, audit_bytes};
use serde_json::Value;

const MIB: f64 = 1_048_576.0;

/// The header that the script wrote, without fields that are not whole numbers.
fn gguf_header(row: &Value) -> Vec<u8> {
    let name = row["architecture"].as_str().unwrap();
    let mut fields = vec![("general.architecture".to_owned(), Meta::Text(Box::leak(name.to_owned().into_boxed_str())))];
    for (key, value) in row["fields"].as_object().unwrap() {
        let meta = match value {
            Value::Array(items) => Meta::Numbers(items.iter().map(|item| item.as_i64().unwrap() as i32).collect()),
            Value::Number(number) if number.is_u64() => Meta::Number(number.as_u64().unwrap() as u32),
            _ => continue,
        };
        fields.push((format!("{name}.{key}"), meta));
    }
    let header_fields: Vec<(&str, Meta)> = fields.iter().map(|(key, meta)| (key.as_str(), meta.clone())).collect();
    header(&header_fields)
}

/// The sum of the logged sizes in MiB, and its rounding error: each size has two decimals.
fn logged_mib(row: &Value, part: &str) -> (f64, f64) {
    let sizes = row[part].as_array().unwrap();
    (sizes.iter().filter_map(Value::as_f64).sum(), 0.0051 * sizes.len() as f64)
}

#[test]
fn plans_equal_the_sizes_that_llama_cpp_logs() {
    let mut architectures = Vec::new();
    for line in include_str!("data/llama_cpp_caches.jsonl").lines().skip(1) {
        let row: Value = serde_json::from_str(line).unwrap();
        let name = row["architecture"].as_str().unwrap();
        let audit = audit_bytes(&gguf_header(&row), name, &AuditOptions::default()).unwrap();
        let settings = EngineSettings {
            context: row["context"].as_u64(),
            requests: row["requests"].as_u64().unwrap(),
            ..EngineSettings::default()
        };
        let plan = plan(&audit, engine("llama.cpp").unwrap(), &settings).unwrap();
        assert!(plan.unknown_reasons.is_empty(), "{name}: {:?}", plan.unknown_reasons);
        let (kv, kv_rounding) = logged_mib(&row, "kv");
        let (state, state_rounding) = logged_mib(&row, "recurrent");
        let planned_kv = (plan.kv_bytes.unwrap() + plan.window_bytes.unwrap()) as f64 / MIB;
        let planned_state = plan.state_bytes.unwrap() as f64 / MIB;
        assert!((planned_kv - kv).abs() <= kv_rounding, "{name}: KV planned {planned_kv}, logged {kv}");
        assert!(
            (planned_state - state).abs() <= state_rounding,
            "{name}: state planned {planned_state}, logged {state}"
        );
        assert!(kv + state > 0.0, "{name}: nothing was logged");
        architectures.push(name.to_owned());
    }
    architectures.dedup();
    assert_eq!(architectures, ["llama", "gemma3", "qwen35", "mamba2", "granitehybrid", "rwkv7", "lfm2"]);
}
