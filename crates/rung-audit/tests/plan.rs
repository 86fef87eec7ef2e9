//! Plans: the JSON schema, what fits into a memory, bad settings, and layers that an engine's rules do not cover.

mod schema;

use rung_audit::engine::{ENGINES, EngineSettings, MemoryPlan, engine, plan};
use rung_audit::layer_ratio::plan_ratios;
use rung_audit::report::{layer_ratio, plan as report};
use rung_audit::{Audit, AuditOptions, audit_preset, audit_text, presets, what_if};
use schema::validate;
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

fn preset(name: &str) -> Audit {
    audit_preset(name, &AuditOptions::default()).unwrap()
}

fn preset_plan(model: &str, engine_name: &str, settings: &EngineSettings) -> MemoryPlan {
    plan(&preset(model), engine(engine_name).unwrap(), settings).unwrap()
}

fn check_schema(value: &Value) -> Result<(), String> {
    let schema: Value = serde_json::from_str(include_str!("../schemas/plan.schema.json")).unwrap();
    validate(&schema, &schema, value, "$")
}

fn settings_at(context: u64, requests: u64) -> EngineSettings {
    EngineSettings { context: Some(context), requests, ..EngineSettings::default() }
}

#[test]
fn json_follows_the_published_schema() {
    let settings = EngineSettings { memory: Some(80 * GIB), weights: Some(20 * GIB), ..settings_at(32_768, 4) };
    for name in presets() {
        for engine in ENGINES {
            let memory_plan = plan(&preset(name), engine, &settings).unwrap();
            check_schema(&report::json(&memory_plan)).unwrap();
            assert!(report::text(&memory_plan).contains(engine.name));
        }
    }
    let mut wrong = report::json(&preset_plan("qwen3.5-9b", "vllm", &settings));
    wrong["new"] = json!(1);
    assert!(check_schema(&wrong).is_err());
}

#[test]
fn cache_bytes_are_the_sum_of_their_parts_or_unknown() {
    for name in presets() {
        for engine in ENGINES {
            let memory_plan = plan(&preset(name), engine, &settings_at(10_000, 3)).unwrap();
            match (memory_plan.kv_bytes, memory_plan.window_bytes, memory_plan.state_bytes, memory_plan.cache_bytes) {
                (Some(kv), Some(window), Some(state), Some(cache)) => assert_eq!(kv + window + state, cache),
                (None, None, None, None) => assert!(!memory_plan.unknown_reasons.is_empty(), "{name} {}", engine.name),
                other => panic!("{name} {}: {other:?}", engine.name),
            }
        }
    }
}

#[test]
fn context_fit_is_the_longest_context_that_fits() {
    for (model, name) in [
        ("qwen3.6-27b", "vllm"),
        ("gemma-3-27b", "vllm"),
        ("qwen3.6-27b", "llama.cpp"),
        ("gemma-3-27b", "llama.cpp"),
        ("granite-4.0-h-tiny", "transformers"),
        ("llama-3.1-8b", "tensorrt-llm"),
    ] {
        let settings = EngineSettings { memory: Some(48 * GIB), weights: Some(20 * GIB), ..settings_at(8192, 2) };
        let memory_plan = preset_plan(model, name, &settings);
        let (available, longest) = (memory_plan.available_bytes.unwrap(), memory_plan.context_fit.unwrap());
        let cache_bytes = |context: u64| preset_plan(model, name, &settings_at(context, 2)).cache_bytes.unwrap();
        assert!(cache_bytes(longest) <= available, "{model} {name}");
        assert!(cache_bytes(longest + 1024) > available, "{model} {name}: {longest}");
    }
}

#[test]
fn models_without_a_growing_cache_are_planned() {
    let memory_plan = preset_plan("mamba2-2.7b", "vllm", &settings_at(4096, 1));
    assert_eq!((memory_plan.kv_bytes, memory_plan.block_tokens), (Some(0), None));
    assert!(memory_plan.state_bytes.unwrap() > 0);
}

#[test]
fn invalid_settings_are_errors() {
    let audit = preset("qwen3.6-27b");
    let error_of = |settings: EngineSettings| plan(&audit, engine("vllm").unwrap(), &settings).unwrap_err().to_string();
    assert!(error_of(EngineSettings { memory: Some(0), ..settings_at(1, 1) }).contains("no memory"));
    assert!(error_of(EngineSettings { tp: 7, ..settings_at(1, 1) }).contains("cannot be divided"));
    assert!(error_of(EngineSettings { tp: u64::MAX, ..settings_at(1, 1) }).contains("at most"));
    assert!(error_of(settings_at(u64::MAX, 1)).contains("a context has"));
    assert!(
        error_of(EngineSettings { version: Some("latest".to_owned()), ..settings_at(1, 1) })
            .contains("a release such as")
    );
    let option = |name: &str, value: &str| EngineSettings {
        options: vec![(name.to_owned(), value.to_owned())],
        ..settings_at(1, 1)
    };
    assert!(error_of(option("block_sizes", "16")).contains("no option of vllm; it has gpu_memory_utilization"));
    assert!(error_of(option("mamba_cache_mode", "some")).contains("none, align or all"));
    assert!(error_of(option("kernel_block", "0")).contains("1 to 1048576"));
    assert!(engine("vlm").unwrap_err().to_string().contains("expected one of vllm"));
}

#[test]
fn nothing_fits_beside_weights_larger_than_memory() {
    let settings = EngineSettings { memory: Some(GIB), weights: Some(20 * GIB), ..settings_at(8192, 1) };
    for engine in ENGINES {
        let memory_plan = plan(&preset("qwen3-8b"), engine, &settings).unwrap();
        assert_eq!((memory_plan.tokens_fit, memory_plan.requests_fit), (Some(0), Some(0)), "{}", engine.name);
    }
}

#[test]
fn huge_sizes_saturate() {
    let settings = EngineSettings { memory: Some(u64::MAX), weights: Some(1), ..settings_at(1 << 40, 1 << 20) };
    for engine in ENGINES {
        let memory_plan = plan(&preset("llama-3.1-8b"), engine, &settings).unwrap();
        assert!(memory_plan.cache_bytes.unwrap() >= 1 << 50, "{}", engine.name);
    }
}

#[test]
fn unsupported_layers_are_reported_and_left_out_only_with_partial() {
    let memory_plan = preset_plan("deepseek-v4-flash", "vllm", &settings_at(8192, 1));
    assert_eq!(memory_plan.cache_bytes, None);
    assert!(
        memory_plan.unknown_reasons.iter().any(|reason| reason.contains("compressed caches")),
        "{:?}",
        memory_plan.unknown_reasons
    );
    let partial = preset_plan(
        "deepseek-v4-flash",
        "vllm",
        &EngineSettings { skip_unsupported_layers: true, ..settings_at(8192, 1) },
    );
    assert!(partial.cache_bytes.is_some() && !partial.unknown_reasons.is_empty());
    assert!(partial.assumptions.iter().any(|text| text.contains("too low")), "{:?}", partial.assumptions);
}

#[test]
fn what_if_edits_change_the_plan() {
    let audit = preset("qwen3.6-27b");
    let edited = what_if::apply(&audit, "every=8", &AuditOptions::default()).unwrap();
    let vllm = engine("vllm").unwrap();
    let bytes = |audit: &Audit| plan(audit, vllm, &settings_at(131_072, 1)).unwrap().bytes_per_token.unwrap();
    assert_eq!(bytes(&audit), 2 * bytes(&edited));
}

#[test]
fn tensor_parallelism_divides_heads_but_not_latents() {
    let bytes = |model: &str, tp: u64| {
        preset_plan(model, "sglang", &EngineSettings { tp, ..settings_at(8192, 1) }).kv_bytes.unwrap()
    };
    assert_eq!(bytes("llama-3.1-8b", 1), 8 * bytes("llama-3.1-8b", 8));
    assert_eq!(bytes("kimi-linear-48b-a3b", 1), bytes("kimi-linear-48b-a3b", 8));
}

#[test]
fn plan_ratios_compares_layer_ratios() {
    let audit = preset("qwen3.6-27b");
    let settings = EngineSettings { memory: Some(80 * GIB), weights: Some(54 * GIB), ..settings_at(131_072, 1) };
    let plans = plan_ratios(&audit, engine("vllm").unwrap(), &settings, &AuditOptions::default()).unwrap();
    let row = |name: &str| plans.iter().find(|ratio| ratio.name == name).unwrap();
    assert_eq!(row("as it is").plan.bytes_per_token, row("3:1").plan.bytes_per_token);
    assert_eq!(row("0:1").full_layer_count, 64);
    assert!(row("7:1").plan.context_fit > row("3:1").plan.context_fit);
    assert!(row("7:1").rungs < row("3:1").rungs);
    let text = layer_ratio::text(&plans);
    assert!(text.contains("as it is") && text.contains("11:1"), "{text}");
    assert_eq!(layer_ratio::json(&plans)["mixes"].as_array().unwrap().len(), plans.len());
}

#[test]
fn transformers_follows_the_dtype_of_the_config() {
    let config = |dtype: &str| {
        format!(
            r#"{{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2{dtype}}}"#
        )
    };
    let bytes = |text: &str| {
        let audit = audit_text(text, "test", &AuditOptions::default()).unwrap();
        plan(&audit, engine("transformers").unwrap(), &settings_at(10, 1)).unwrap().kv_bytes.unwrap()
    };
    assert_eq!(bytes(&config("")), 2 * 10 * 16 * 2);
    assert_eq!(bytes(&config(r#", "dtype": "float32""#)), 2 * 10 * 16 * 4);
}
