//! Plans: the schema, what fits, bad settings, and kinds of layers that an engine does not have.

mod schema;

use rung_audit::engine::{ENGINES, EngineSettings, MemoryPlan, engine, plan};
use rung_audit::mix::mixes;
use rung_audit::report::{mix, plan as report};
use rung_audit::{Audit, AuditOptions, audit_preset, audit_text, presets, what_if};
use schema::validate;
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

fn preset(name: &str) -> Audit {
    audit_preset(name, &AuditOptions::default()).unwrap()
}

fn planned(model: &str, name: &str, settings: &EngineSettings) -> MemoryPlan {
    plan(&preset(model), engine(name).unwrap(), settings).unwrap()
}

fn check(value: &Value) -> Result<(), String> {
    let schema: Value = serde_json::from_str(include_str!("../schemas/plan.schema.json")).unwrap();
    validate(&schema, &schema, value, "$")
}

fn at(context: u64, requests: u64) -> EngineSettings {
    EngineSettings { context: Some(context), requests, ..EngineSettings::default() }
}

#[test]
fn json_follows_the_published_schema() {
    let settings = EngineSettings { memory: Some(80 * GIB), weights: Some(20 * GIB), ..at(32_768, 4) };
    for name in presets() {
        for engine in ENGINES {
            let found = plan(&preset(name), engine, &settings).unwrap();
            check(&report::json(&found)).unwrap();
            assert!(report::text(&found).contains(engine.name));
        }
    }
    let mut wrong = report::json(&planned("qwen3.5-9b", "vllm", &settings));
    wrong["new"] = json!(1);
    assert!(check(&wrong).is_err());
}

#[test]
fn the_parts_add_up_and_the_rest_is_null_only_where_unknown() {
    for name in presets() {
        for engine in ENGINES {
            let found = plan(&preset(name), engine, &at(10_000, 3)).unwrap();
            match (found.kv_bytes, found.window_bytes, found.state_bytes, found.cache_bytes) {
                (Some(kv), Some(window), Some(state), Some(cache)) => assert_eq!(kv + window + state, cache),
                (None, None, None, None) => assert!(!found.unknown.is_empty(), "{name} {}", engine.name),
                other => panic!("{name} {}: {other:?}", engine.name),
            }
        }
    }
}

#[test]
fn what_fits_is_the_largest_that_fits() {
    for (model, name) in [
        ("qwen3.6-27b", "vllm"),
        ("gemma-3-27b", "vllm"),
        ("qwen3.6-27b", "llama.cpp"),
        ("gemma-3-27b", "llama.cpp"),
        ("granite-4.0-h-tiny", "transformers"),
        ("llama-3.1-8b", "tensorrt-llm"),
    ] {
        let settings = EngineSettings { memory: Some(48 * GIB), weights: Some(20 * GIB), ..at(8192, 2) };
        let found = planned(model, name, &settings);
        let (left, longest) = (found.available_bytes.unwrap(), found.context_fit.unwrap());
        let used = |context: u64| planned(model, name, &at(context, 2)).cache_bytes.unwrap();
        assert!(used(longest) <= left, "{model} {name}");
        assert!(used(longest + 1024) > left, "{model} {name}: {longest}");
    }
}

#[test]
fn recurrent_models_without_a_cache_that_grows_are_planned() {
    let found = planned("mamba2-2.7b", "vllm", &at(4096, 1));
    assert_eq!((found.kv_bytes, found.block_tokens), (Some(0), None));
    assert!(found.state_bytes.unwrap() > 0);
}

#[test]
fn bad_settings_are_refused() {
    let audit = preset("qwen3.6-27b");
    let refuse = |settings: EngineSettings| plan(&audit, engine("vllm").unwrap(), &settings).unwrap_err().to_string();
    assert!(refuse(EngineSettings { memory: Some(0), ..at(1, 1) }).contains("no memory"));
    assert!(refuse(EngineSettings { tp: 7, ..at(1, 1) }).contains("cannot be divided"));
    assert!(refuse(EngineSettings { tp: u64::MAX, ..at(1, 1) }).contains("at most"));
    assert!(refuse(at(u64::MAX, 1)).contains("a context has"));
    assert!(refuse(EngineSettings { version: Some("latest".to_owned()), ..at(1, 1) }).contains("a release such as"));
    let option =
        |name: &str, value: &str| EngineSettings { options: vec![(name.to_owned(), value.to_owned())], ..at(1, 1) };
    assert!(refuse(option("block_sizes", "16")).contains("no option of vllm; it has gpu_memory_utilization"));
    assert!(refuse(option("mamba_cache_mode", "some")).contains("none, align or all"));
    assert!(refuse(option("kernel_block", "0")).contains("1 to 1048576"));
    assert!(engine("vlm").unwrap_err().to_string().contains("expected one of vllm"));
}

#[test]
fn weights_that_do_not_fit_leave_nothing() {
    let settings = EngineSettings { memory: Some(GIB), weights: Some(20 * GIB), ..at(8192, 1) };
    for engine in ENGINES {
        let found = plan(&preset("qwen3-8b"), engine, &settings).unwrap();
        assert_eq!((found.tokens_fit, found.requests_fit), (Some(0), Some(0)), "{}", engine.name);
    }
}

#[test]
fn absurd_sizes_saturate_instead_of_wrapping() {
    let settings = EngineSettings { memory: Some(u64::MAX), weights: Some(1), ..at(1 << 40, 1 << 20) };
    for engine in ENGINES {
        let found = plan(&preset("llama-3.1-8b"), engine, &settings).unwrap();
        assert!(found.cache_bytes.unwrap() >= 1 << 50, "{}", engine.name);
    }
}

#[test]
fn layers_without_a_rule_are_said_and_left_out_only_if_asked() {
    let found = planned("deepseek-v4-flash", "vllm", &at(8192, 1));
    assert_eq!(found.cache_bytes, None);
    assert!(found.unknown.iter().any(|why| why.contains("compressed caches")), "{:?}", found.unknown);
    let partial = planned("deepseek-v4-flash", "vllm", &EngineSettings { partial: true, ..at(8192, 1) });
    assert!(partial.cache_bytes.is_some() && !partial.unknown.is_empty());
    assert!(partial.assumed.iter().any(|what| what.contains("too low")), "{:?}", partial.assumed);
}

#[test]
fn edits_change_the_plan() {
    let audit = preset("qwen3.6-27b");
    let edited = what_if::apply(&audit, "every=8", &AuditOptions::default()).unwrap();
    let vllm = engine("vllm").unwrap();
    let bytes = |audit: &Audit| plan(audit, vllm, &at(131_072, 1)).unwrap().bytes_per_token.unwrap();
    assert_eq!(bytes(&audit), 2 * bytes(&edited));
}

#[test]
fn tensor_parallelism_shares_heads_but_not_latents() {
    let bytes =
        |model: &str, tp: u64| planned(model, "sglang", &EngineSettings { tp, ..at(8192, 1) }).kv_bytes.unwrap();
    assert_eq!(bytes("llama-3.1-8b", 1), 8 * bytes("llama-3.1-8b", 8));
    assert_eq!(bytes("kimi-linear-48b-a3b", 1), bytes("kimi-linear-48b-a3b", 8));
}

#[test]
fn ratios_are_compared_under_an_engine() {
    let audit = preset("qwen3.6-27b");
    let settings = EngineSettings { memory: Some(80 * GIB), weights: Some(54 * GIB), ..at(131_072, 1) };
    let found = mixes(&audit, engine("vllm").unwrap(), &settings, &AuditOptions::default()).unwrap();
    let row = |name: &str| found.iter().find(|mix| mix.name == name).unwrap();
    assert_eq!(row("as it is").plan.bytes_per_token, row("3:1").plan.bytes_per_token);
    assert_eq!(row("0:1").full, 64);
    assert!(row("7:1").plan.context_fit > row("3:1").plan.context_fit);
    assert!(row("7:1").rungs < row("3:1").rungs);
    let text = mix::text(&found);
    assert!(text.contains("as it is") && text.contains("11:1"), "{text}");
    assert_eq!(mix::json(&found)["mixes"].as_array().unwrap().len(), found.len());
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
        plan(&audit, engine("transformers").unwrap(), &at(10, 1)).unwrap().kv_bytes.unwrap()
    };
    assert_eq!(bytes(&config("")), 2 * 10 * 16 * 2);
    assert_eq!(bytes(&config(r#", "dtype": "float32""#)), 2 * 10 * 16 * 4);
}
