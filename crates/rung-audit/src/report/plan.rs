//! A memory plan as text and as JSON. `crates/rung-audit/schemas/plan.schema.json` describes the names.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{count_noun, format_bytes, with_commas};
use crate::engine::{EngineMetric, MemoryPlan};

/// One plan as JSON.
pub fn json(plan: &MemoryPlan) -> Value {
    let metric = |metric: &EngineMetric| {
        // Whole numbers are written as JSON integers, which are exact.
        let value = if metric.value.fract() == 0.0 && metric.value.abs() < 9.0e15 {
            json!(metric.value as i64)
        } else {
            json!(metric.value)
        };
        json!({"name": metric.name, "value": value, "unit": metric.unit, "rule": metric.rule})
    };
    json!({
        "model": plan.model,
        "engine": plan.engine,
        "engine_version": plan.version,
        "context": plan.context,
        "requests": plan.requests,
        "tp": plan.tp,
        "kv_dtype": plan.kv_dtype,
        "state_dtype": plan.state_dtype,
        "block_tokens": plan.block_tokens,
        "page_bytes": plan.page_bytes,
        "bytes_per_token": plan.bytes_per_token,
        "bytes_per_request": plan.bytes_per_request,
        "kv_bytes": plan.kv_bytes,
        "window_bytes": plan.window_bytes,
        "state_bytes": plan.state_bytes,
        "cache_bytes": plan.cache_bytes,
        "memory_bytes": plan.memory_bytes,
        "weight_bytes": plan.weight_bytes,
        "available_bytes": plan.available_bytes,
        "tokens_fit": plan.tokens_fit,
        "requests_fit": plan.requests_fit,
        "context_fit": plan.context_fit,
        "figures": plan.metrics.iter().map(metric).collect::<Vec<_>>(),
        "flags": plan.flags,
        "assumed": plan.assumptions,
        "unknown": plan.unknown_reasons,
    })
}

/// Writes a metric and, below it, the rule it follows.
fn write_metric(out: &mut String, name: &str, value: Option<u64>, unit: &str, rule: &str) {
    let Some(value) = value else { return };
    let readable = if unit == "bytes" { format!("  ({})", format_bytes(value)) } else { String::new() };
    let _ = writeln!(out, "  {name:<22} {:>20} {unit}{readable}", with_commas(value));
    let _ = writeln!(out, "  {:<22} {rule}", "");
}

/// One plan for the terminal: each metric with the rule it follows.
pub fn text(plan: &MemoryPlan) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{} under {} {}", plan.model, plan.engine, plan.version);
    let requests = count_noun(plan.requests as usize, "request");
    let devices = if plan.tp > 1 { format!(", on each of {} devices", plan.tp) } else { String::new() };
    let _ = writeln!(
        out,
        "  context {} tokens, {requests}, keys and values in {}, state in {}{devices}\n",
        with_commas(plan.context),
        plan.kv_dtype,
        plan.state_dtype
    );
    write_metric(&mut out, "block", plan.block_tokens, "tokens", "tokens that are allocated together");
    write_metric(&mut out, "page", plan.page_bytes, "bytes", "what one layer stores in one block");
    write_metric(&mut out, "KV cache per token", plan.bytes_per_token, "bytes", "layers that see the whole context");
    write_metric(
        &mut out,
        "one request",
        plan.bytes_per_request,
        "bytes",
        "KV cache, windows and recurrent state at the context",
    );
    write_metric(&mut out, "KV cache", plan.kv_bytes, "bytes", "grows with the context, all requests");
    write_metric(&mut out, "window cache", plan.window_bytes, "bytes", "layers with a window or chunks, all requests");
    write_metric(
        &mut out,
        "recurrent state",
        plan.state_bytes,
        "bytes",
        "does not grow with the context, all requests",
    );
    write_metric(&mut out, "all caches", plan.cache_bytes, "bytes", "the sum of the three");
    write_metric(&mut out, "weights", plan.weight_bytes, "bytes", "on one device");
    write_metric(
        &mut out,
        "left for caches",
        plan.available_bytes,
        "bytes",
        "memory that the engine may use, less the weights",
    );
    write_metric(&mut out, "tokens that fit", plan.tokens_fit, "tokens", "as the engine counts them");
    write_metric(&mut out, "requests that fit", plan.requests_fit, "requests", "at this context");
    write_metric(&mut out, "context that fits", plan.context_fit, "tokens", &format!("for {requests}"));
    if !plan.metrics.is_empty() {
        out.push('\n');
    }
    for metric in &plan.metrics {
        let value =
            if metric.value.fract() == 0.0 { with_commas(metric.value as u64) } else { format!("{:.2}", metric.value) };
        let _ = writeln!(out, "  {:<28} {value:>14} {}", metric.name, metric.unit);
        let _ = writeln!(out, "  {:<28} {}", "", metric.rule);
    }
    let lists = [("flags", &plan.flags), ("assumed", &plan.assumptions), ("unknown", &plan.unknown_reasons)];
    for (name, items) in lists.into_iter().filter(|(_, items)| !items.is_empty()) {
        out.push('\n');
        for item in items {
            let _ = writeln!(out, "  {name:<12} {item}");
        }
    }
    out
}
