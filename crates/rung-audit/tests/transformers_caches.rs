//! Plans for transformers against caches that were counted: tiny models of every decoder class, run with a cache.
//!
//! `oracle/transformers_cache.py` counted them; its output is stored in `data/`, so no Python is needed here.

use rung_audit::engine::{EngineSettings, MemoryPlan, engine, plan};
use rung_audit::{AuditOptions, audit_text};
use serde_json::Value;

/// Elements of a dtype at the two lengths, as bytes.
fn counted(row: &Value, length: usize) -> u64 {
    let bytes =
        |(dtype, held): (&String, &Value)| held[length].as_u64().unwrap() * if dtype == "float32" { 4 } else { 2 };
    row["elements"].as_object().unwrap().iter().map(bytes).sum()
}

fn rows() -> Vec<Value> {
    include_str!("data/transformers_caches.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn planned(row: &Value, context: u64) -> Result<MemoryPlan, String> {
    let audit =
        audit_text(&row["config"].to_string(), "tiny", &AuditOptions::default()).map_err(|error| error.to_string())?;
    let dtype = row["dtype"].as_str().unwrap().parse().unwrap();
    let settings = EngineSettings { context: Some(context), kv_format: Some(dtype), ..EngineSettings::default() };
    let found = plan(&audit, engine("transformers").unwrap(), &settings).map_err(|error| error.to_string())?;
    if found.unknown.is_empty() { Ok(found) } else { Err(format!("unknown: {}", found.unknown.join("; "))) }
}

/// What differs between a plan and a count: bytes that grow and bytes that do not.
fn difference(row: &Value, lengths: &[u64; 2]) -> Result<(), String> {
    let [first, second] = [planned(row, lengths[0])?, planned(row, lengths[1])?];
    let (a, b) = (first.cache_bytes.unwrap(), second.cache_bytes.unwrap());
    let (counted_a, counted_b) = (counted(row, 0), counted(row, 1));
    let growing = (b.wrapping_sub(a), counted_b - counted_a);
    if growing.0 != growing.1 {
        return Err(format!("growing: planned {}, counted {}", growing.0, growing.1));
    }
    if a != counted_a {
        let grows = (counted_b - counted_a) * lengths[0] / (lengths[1] - lengths[0]);
        let fixed = |total: u64| i128::from(total) - i128::from(grows);
        return Err(format!("fixed: planned {}, counted {}", fixed(a), fixed(counted_a)));
    }
    Ok(())
}

#[test]
fn plans_equal_the_counted_caches_or_say_why_not() {
    let rows = rows();
    let lengths = [rows[0]["lengths"][0].as_u64().unwrap(), rows[0]["lengths"][1].as_u64().unwrap()];
    let differences: Value = serde_json::from_str(include_str!("data/transformers_differences.json")).unwrap();
    let mut wrong = Vec::new();
    let (mut equal, mut no_decoder, mut explained, mut not_run) = (0, 0, 0, 0);
    for row in &rows[1..] {
        if row["elements"].is_null() {
            not_run += 1;
            assert!(row["not_run"].as_str().is_some_and(|why| !why.is_empty()), "{}", row["type"]);
            continue;
        }
        match (difference(row, &lengths), differences[row["type"].as_str().unwrap()].as_str()) {
            (Ok(()), None) => equal += 1,
            (Ok(()), Some(_)) => wrong.push(format!("{}: no longer differs", row["type"])),
            (Err(why), None) if why.starts_with("unknown: the config describes an encoder") => no_decoder += 1,
            (Err(_), Some(_)) => explained += 1,
            (Err(why), None) => wrong.push(format!("{}: {why}", row["type"])),
        }
    }
    assert!(wrong.is_empty(), "{} wrong, {equal} equal:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(explained, differences.as_object().unwrap().len());
    assert!(equal >= 150, "{equal} equal, {no_decoder} no decoders, {not_run} not run");
}
