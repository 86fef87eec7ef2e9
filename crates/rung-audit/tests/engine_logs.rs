//! Plans reproduce the figures that engines log at start.

mod plans;

use plans::{metric, settings};
use rung_audit::engine::{EngineSettings, engine, plan};
use rung_audit::{Audit, AuditOptions, audit_preset, audit_text};
use serde_json::Value;

const GIB: f64 = 1_073_741_824.0;

fn data() -> Value {
    serde_json::from_str(include_str!("data/engine_logs.json")).unwrap()
}

fn audit(data: &Value, model: &str) -> Audit {
    let config = &data["configs"][model];
    if config.is_null() {
        return audit_preset(model, &AuditOptions::default()).unwrap();
    }
    audit_text(&config.to_string(), model, &AuditOptions::default()).unwrap()
}

/// Whether a value, rounded like the log, equals the logged one.
fn rounds_to(value: f64, row: &Value) -> bool {
    let printed = row["value"].as_f64().unwrap();
    match row["digits"].as_i64() {
        None => (value - printed).abs() < 1e-9,
        Some(digits) => {
            let tolerance = 0.5 * 10_f64.powi(-(digits as i32)) * (1.0 + 1e-9);
            (value - printed).abs() <= tolerance
        }
    }
}

/// The row's settings. The logged memory is rounded to 0.01 GiB, so there is one candidate for each number of blocks it allows.
fn candidate_settings(audit: &Audit, row: &Value) -> Vec<EngineSettings> {
    let base = settings(&row["settings"]);
    let Some(available) = row["settings"]["available_gib"].as_f64() else { return vec![base] };
    let engine = engine(row["engine"].as_str().unwrap()).unwrap();
    let blocks = |gib: f64| {
        let mut settings = base.clone();
        settings.options.push(("kv_cache_memory_bytes".to_owned(), format!("{:.0}", gib * GIB)));
        plan(audit, engine, &settings).unwrap().metric("num_gpu_blocks").unwrap() as u64
    };
    let with_blocks = |blocks: u64| {
        let mut settings = base.clone();
        settings.options.push(("num_gpu_blocks_override".to_owned(), blocks.to_string()));
        settings
    };
    (blocks(available - 0.005)..=blocks(available + 0.005)).map(with_blocks).collect()
}

/// Fails unless a plan gives the row's logged figure.
fn check_row(data: &Value, row: &Value) -> Result<(), String> {
    let audit = audit(data, row["model"].as_str().unwrap());
    let engine = engine(row["engine"].as_str().unwrap()).unwrap();
    let mut planned = Vec::new();
    for settings in candidate_settings(&audit, row) {
        let plan = plan(&audit, engine, &settings).map_err(|error| error.to_string())?;
        if let Some(value) = metric(&plan, row["figure"].as_str().unwrap(), row["unit"].as_str().unwrap()) {
            if rounds_to(value, row) {
                return Ok(());
            }
            planned.push(value);
        }
    }
    Err(format!("{}: printed {}, planned {planned:?}", row["id"], row["value"]))
}

#[test]
fn plans_reproduce_the_logged_figures() {
    let data = data();
    let rows = data["figures"].as_array().unwrap();
    let errors: Vec<String> =
        rows.iter().filter(|row| row["unexplained"].is_null()).filter_map(|row| check_row(&data, row).err()).collect();
    assert!(errors.is_empty(), "{} of {}:\n{}", errors.len(), rows.len(), errors.join("\n"));
    let explained = rows.iter().filter(|row| row["unexplained"].is_null()).count();
    assert_eq!((rows.len(), explained), (243, 233));
}

/// Fails when a figure marked as unexplained is reproduced, so that the mark gets removed.
#[test]
fn unexplained_figures_are_not_reproduced() {
    let data = data();
    for row in data["figures"].as_array().unwrap().iter().filter(|row| row["unexplained"].is_string()) {
        assert!(check_row(&data, row).is_err(), "{} is reproduced", row["id"]);
        assert!(row["unexplained"].as_str().unwrap().len() > 20);
    }
}

/// Shows that the comparison can fail.
#[test]
fn another_model_does_not_reproduce_the_figure() {
    let data = data();
    let row = data["figures"].as_array().unwrap().iter().find(|row| row["id"] == "v-q3next-tokens").unwrap();
    let mut other = row.clone();
    other["model"] = Value::from("qwen3.6-27b");
    assert!(check_row(&data, row).is_ok());
    assert!(check_row(&data, &other).is_err());
}
