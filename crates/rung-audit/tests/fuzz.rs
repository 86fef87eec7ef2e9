//! Mutated configs and headers give an audit or an error, without a panic.

mod common;

use common::{Meta, qwen};
use proptest::prelude::*;
use rung_audit::report::{html, json, text};
use rung_audit::{AuditOptions, audit_bytes, preset_text, presets, what_if};

/// The config of a preset, without the preset's other fields.
fn config(index: usize) -> String {
    let name = presets().nth(index % presets().len()).unwrap();
    let value: serde_json::Value = serde_json::from_str(preset_text(name).unwrap()).unwrap();
    value["config"].to_string()
}

/// Audits the bytes and, if they are a config, runs every report and edit; passes unless something panics.
fn exercise(bytes: &[u8]) {
    let options = AuditOptions::default();
    let Ok(audit) = audit_bytes(bytes, "fuzz", &options) else { return };
    let _ = (
        text::audit(&audit, true),
        json::audit(&audit).to_string(),
        html::page(std::slice::from_ref(&audit), "fuzz").unwrap(),
    );
    for edit in ["every=2", "ratio=3:1", "first=full", "0=none", "all=window", "last=recurrent"] {
        let _ = what_if::apply(&audit, edit, &options);
    }
    let _ = rung_audit::placement::find_best_placements(&audit, 1 << 30, &options);
}

/// Unusual values that occur in configs.
fn unusual_value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_owned()),
        Just("-1".to_owned()),
        Just("0".to_owned()),
        Just("16777216".to_owned()),
        Just("18446744073709551616".to_owned()),
        Just("1e308".to_owned()),
        Just("NaN".to_owned()),
        Just("0.5".to_owned()),
        Just("\"auto\"".to_owned()),
        Just("[]".to_owned()),
        Just("{}".to_owned()),
        Just("[0,1,2,3]".to_owned()),
        Just("true".to_owned()),
        (0_u64..100).prop_map(|number| number.to_string()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn config_with_changed_bytes_does_not_panic(index in 0_usize..64, edits in prop::collection::vec((any::<usize>(), any::<u8>()), 0..6), cut in any::<usize>()) {
        let mut bytes = config(index).into_bytes();
        for (offset, byte) in edits {
            let length = bytes.len();
            bytes[offset % length] = byte;
        }
        bytes.truncate(if cut % 3 == 0 { cut % (bytes.len() + 1) } else { bytes.len() });
        exercise(&bytes);
    }

    #[test]
    fn config_with_changed_fields_does_not_panic(index in 0_usize..64, other in 0_usize..64, replacements in prop::collection::vec((any::<usize>(), unusual_value()), 1..4)) {
        let parse = |index| serde_json::from_str::<serde_json::Value>(&config(index)).unwrap();
        let model_fields = |value: serde_json::Value| match value.get("text_config") {
            Some(inner) => inner.clone(),
            None => value,
        };
        let mut fields: Vec<(String, String)> = Vec::new();
        for value in [model_fields(parse(index)), model_fields(parse(other))] {
            for (key, value) in value.as_object().unwrap() {
                if !fields.iter().any(|(known, _)| known == key) {
                    fields.push((key.clone(), value.to_string()));
                }
            }
        }
        for (position, value) in replacements {
            let count = fields.len();
            fields[position % count].1 = value;
        }
        let fields: Vec<String> = fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        exercise(format!("{{{}}}", fields.join(",")).as_bytes());
    }

    #[test]
    fn gguf_header_with_changed_bytes_does_not_panic(edits in prop::collection::vec((any::<usize>(), any::<u8>()), 0..6), cut in any::<usize>()) {
        let mut bytes = qwen(20, &[
            ("qwen35.attention.recurrent_layers", Meta::Flags(vec![true, true, true, false, true, true, true, false])),
            ("qwen35.feed_forward_length", Meta::Numbers(vec![4; 8])),
        ]);
        for (offset, byte) in edits {
            let length = bytes.len();
            bytes[offset % length] = byte;
        }
        bytes.truncate(if cut % 3 == 0 { cut % (bytes.len() + 1) } else { bytes.len() });
        exercise(&bytes);
    }

    #[test]
    fn random_bytes_and_edits_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), edit in "[a-z0-9=:, -]{0,20}") {
        exercise(&bytes);
        exercise(&[b"GGUF".as_slice(), &bytes].concat());
        let audit = rung_audit::audit_preset("lfm2-1.2b", &AuditOptions::default()).unwrap();
        let _ = what_if::apply(&audit, &edit, &AuditOptions::default());
    }
}
