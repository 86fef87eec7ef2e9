//! Lint: each mistake is found at its field, and good configs have none.

use rung_audit::lint::{Severity, lint};
use rung_audit::{preset_config, presets};

const BASE: &str = r#""hidden_size": 32, "num_attention_heads": 8, "head_dim": 4"#;

/// The first finding: severity, field and line.
fn first(fields: &str) -> (Severity, String, Option<usize>) {
    let found = lint(&format!("{{\n{BASE},\n{fields}\n}}")).unwrap();
    let finding = found.first().unwrap_or_else(|| panic!("nothing found in {fields}"));
    assert!(!finding.reason.is_empty() && !finding.fix.is_empty());
    (finding.severity, finding.field.clone(), finding.line)
}

#[test]
fn every_mistake_is_found_at_its_field() {
    let cases = [
        (r#""num_hidden_layers": 3, "layer_types": ["full_attention"]"#, "layer_types"),
        (
            r#""num_hidden_layers": 3, "model_type": "qwen3_next", "full_attention_interval": 4, "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 4"#,
            "full_attention_interval",
        ),
        (r#""num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]"#, "sliding_window"),
        (r#""num_hidden_layers": 2, "model_type": "llama", "num_key_value_heads": 3"#, "num_key_value_heads"),
        (r#""num_hidden_layers": 2, "model_type": "llama", "kv_source_layers": [1, 1]"#, "kv_source_layers[0]"),
        (r#""num_hidden_layers": 2, "model_type": "llama", "num_layers": 4"#, "num_hidden_layers"),
        (
            r#""num_hidden_layers": 2, "model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 4"#,
            "num_experts_per_tok",
        ),
        (
            r#""num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4, "num_kv_shared_layers": 1"#,
            "num_kv_shared_layers",
        ),
        (r#""num_hidden_layers": -2"#, "num_hidden_layers"),
    ];
    for (fields, field) in cases {
        let (severity, found, line) = first(fields);
        assert_eq!((severity, found.as_str()), (Severity::Error, field), "{fields}");
        if field != "sliding_window" {
            assert_eq!(line, Some(3), "{fields}");
        }
    }
}

#[test]
fn likely_mistakes_are_warnings() {
    let cases = [
        (
            r#""num_hidden_layers": 1, "layer_types": ["sliding_attention"], "sliding_window": 64, "max_position_embeddings": 32"#,
            "sliding_window",
        ),
        (
            r#""num_hidden_layers": 1, "layer_types": ["mamba"], "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 4, "mamba_ssm_dtype": "bfloat16""#,
            "mamba_ssm_dtype",
        ),
        (r#""num_hidden_layers": 1, "layer_types": ["odd"]"#, "layer_types[0]"),
    ];
    for (fields, field) in cases {
        let (severity, found, _) = first(fields);
        assert_eq!((severity, found.as_str()), (Severity::Warning, field), "{fields}");
    }
}

#[test]
fn heads_that_do_not_divide_the_width() {
    let found = lint(r#"{"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 30, "num_attention_heads": 8}"#)
        .unwrap();
    assert!(found.iter().any(|finding| finding.field == "num_attention_heads" && finding.severity == Severity::Error));
}

#[test]
fn public_models_have_no_errors() {
    for name in presets() {
        let found = lint(&preset_config(name).unwrap()).unwrap();
        assert!(found.iter().all(|finding| finding.severity == Severity::Warning), "{name}: {found:?}");
    }
}

#[test]
fn what_is_no_config_is_refused() {
    for text in ["", "[]", "{", "\u{0}"] {
        assert!(lint(text).is_err(), "{text:?}");
    }
}
