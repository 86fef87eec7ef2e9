//! Lint reports each mistake at its field and none in good configs.

use rung_audit::lint::{Severity, lint};
use rung_audit::{preset_config, presets};

const BASE: &str = r#""hidden_size": 32, "num_attention_heads": 8, "head_dim": 4"#;

/// Severity, field and line of the first finding.
fn first_finding(fields: &str) -> (Severity, String, Option<usize>) {
    let findings = lint(&format!("{{\n{BASE},\n{fields}\n}}")).unwrap();
    let finding = findings.first().unwrap_or_else(|| panic!("nothing found in {fields}"));
    assert!(!finding.reason.is_empty() && !finding.fix.is_empty());
    (finding.severity, finding.field.clone(), finding.line)
}

#[test]
fn errors_are_reported_at_their_field() {
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
        let (severity, found_field, line) = first_finding(fields);
        assert_eq!((severity, found_field.as_str()), (Severity::Error, field), "{fields}");
        if field != "sliding_window" {
            assert_eq!(line, Some(3), "{fields}");
        }
    }
}

#[test]
fn likely_mistakes_are_reported_as_warnings() {
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
        let (severity, found_field, _) = first_finding(fields);
        assert_eq!((severity, found_field.as_str()), (Severity::Warning, field), "{fields}");
    }
}

#[test]
fn heads_that_do_not_divide_the_width_are_an_error() {
    let findings =
        lint(r#"{"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 30, "num_attention_heads": 8}"#)
            .unwrap();
    assert!(
        findings.iter().any(|finding| finding.field == "num_attention_heads" && finding.severity == Severity::Error)
    );
}

#[test]
fn public_models_have_no_errors() {
    for name in presets() {
        let findings = lint(&preset_config(name).unwrap()).unwrap();
        assert!(findings.iter().all(|finding| finding.severity == Severity::Warning), "{name}: {findings:?}");
    }
}

#[test]
fn lint_rejects_malformed_configs() {
    for text in ["", "[]", "{", "\u{0}"] {
        assert!(lint(text).is_err(), "{text:?}");
    }
}
