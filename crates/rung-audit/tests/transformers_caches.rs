//! Plans for transformers against the real caches of tiny models of every decoder class.
//!
//! `oracle/transformers_cache.py` counted their elements; its output is stored in `data/`, so no Python is needed here.

use rung_audit::engine::{EngineSettings, MemoryPlan, engine, plan};
use rung_audit::{AuditOptions, audit_text};
use serde_json::Value;

/// Bytes of the counted cache at the first or the second length.
fn counted_bytes(row: &Value, length_index: usize) -> u64 {
    let bytes = |(dtype, elements): (&String, &Value)| {
        elements[length_index].as_u64().unwrap() * if dtype == "float32" { 4 } else { 2 }
    };
    row["elements"].as_object().unwrap().iter().map(bytes).sum()
}

fn rows() -> Vec<Value> {
    include_str!("data/transformers_caches.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn plan_row(row: &Value, context: u64) -> Result<MemoryPlan, String> {
    let audit =
        audit_text(&row["config"].to_string(), "tiny", &AuditOptions::default()).map_err(|error| error.to_string())?;
    let dtype = row["dtype"].as_str().unwrap().parse().unwrap();
    let settings = EngineSettings { context: Some(context), kv_format: Some(dtype), ..EngineSettings::default() };
    let plan = plan(&audit, engine("transformers").unwrap(), &settings).map_err(|error| error.to_string())?;
    if plan.unknown_reasons.is_empty() {
        Ok(plan)
    } else {
        Err(format!("unknown: {}", plan.unknown_reasons.join("; ")))
    }
}

/// Fails where a plan differs from the count, in bytes that grow with the length or in bytes that do not.
fn compare(row: &Value, lengths: &[u64; 2]) -> Result<(), String> {
    let [first, second] = [plan_row(row, lengths[0])?, plan_row(row, lengths[1])?];
    let (planned_first, planned_second) = (first.cache_bytes.unwrap(), second.cache_bytes.unwrap());
    let (counted_first, counted_second) = (counted_bytes(row, 0), counted_bytes(row, 1));
    let growing = (planned_second.wrapping_sub(planned_first), counted_second - counted_first);
    if growing.0 != growing.1 {
        return Err(format!("growing: planned {}, counted {}", growing.0, growing.1));
    }
    if planned_first != counted_first {
        let growing_bytes = (counted_second - counted_first) * lengths[0] / (lengths[1] - lengths[0]);
        let fixed = |total: u64| i128::from(total) - i128::from(growing_bytes);
        return Err(format!("fixed: planned {}, counted {}", fixed(planned_first), fixed(counted_first)));
    }
    Ok(())
}

#[test]
fn plans_equal_the_counted_caches_or_have_a_listed_reason() {
    let rows = rows();
    let lengths = [rows[0]["lengths"][0].as_u64().unwrap(), rows[0]["lengths"][1].as_u64().unwrap()];
    let differences: Value = serde_json::from_str(include_str!("data/transformers_differences.json")).unwrap();
    let mut errors = Vec::new();
    let (mut equal, mut encoders, mut explained, mut not_run) = (0, 0, 0, 0);
    for row in &rows[1..] {
        if row["elements"].is_null() {
            not_run += 1;
            assert!(row["not_run"].as_str().is_some_and(|why| !why.is_empty()), "{}", row["type"]);
            continue;
        }
        match (compare(row, &lengths), differences[row["type"].as_str().unwrap()].as_str()) {
            (Ok(()), None) => equal += 1,
            (Ok(()), Some(_)) => errors.push(format!("{}: no longer differs", row["type"])),
            (Err(why), None) if why.starts_with("unknown: the config describes an encoder") => encoders += 1,
            (Err(_), Some(_)) => explained += 1,
            (Err(why), None) => errors.push(format!("{}: {why}", row["type"])),
        }
    }
    assert!(errors.is_empty(), "{} wrong, {equal} equal:\n{}", errors.len(), errors.join("\n"));
    assert_eq!(explained, differences.as_object().unwrap().len());
    assert!(equal >= 150, "{equal} equal, {encoders} encoders, {not_run} not run");
}
