//! Malformed configs: a clear error that names the field, in bounded time and memory.

use std::io::Read;
use std::time::{Duration, Instant};

use rung_audit::{AuditError, AuditOptions, audit_bytes, audit_named, audit_reader, audit_text};

fn error(text: &str) -> String {
    audit_text(text, "test", &AuditOptions::default()).unwrap_err().to_string()
}

const SIZES: &str = r#""hidden_size": 64, "num_attention_heads": 4"#;

#[test]
fn malformed_text_is_an_error() {
    assert!(error("").contains("the text ends"));
    assert!(error("[1]").contains("found a list of 1, expected an object"));
    assert!(error(r#"{"num_hidden_layers": 3, "layer_types": ["full_atten"#).contains("the text ends inside quotes"));
    assert!(
        error(r#"{"a": 1, "b": {"c": 1, "c": 2}}"#)
            .contains("the key \"c\" occurs twice, at line 1, column 27, in `b`")
    );
    assert!(error(&format!("{}1{}", "{\"a\":".repeat(5000), "}".repeat(5000))).contains("nested more than 64 deep"));
    assert!(error(&"[".repeat(1_000_000)).contains("nested more than 64 deep"));
}

#[test]
fn bytes_that_are_not_utf8_are_an_error() {
    let read = |bytes: &[u8]| audit_bytes(bytes, "test", &AuditOptions::default());
    assert_eq!(read(b"{\"a\": \"\xff\"}").unwrap_err(), AuditError::NotUtf8 { offset: 7 });
    // A byte-order mark is skipped; the other encodings' marks are not UTF-8.
    let with_mark = b"\xef\xbb\xbf{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"hidden_size\": 8, \"num_attention_heads\": 2}";
    assert_eq!(read(with_mark).unwrap().layer_letters(), "F");
    assert!(matches!(read(b"\xff\xfe{\0}\0").unwrap_err(), AuditError::NotUtf8 { offset: 0 }));
}

#[test]
fn endless_input_is_rejected_at_the_limit() {
    struct Endless;
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            buffer.fill(b' ');
            Ok(buffer.len())
        }
    }
    let start = Instant::now();
    let error = audit_reader(Endless, "test", &AuditOptions::default()).unwrap_err();
    assert_eq!(error, AuditError::TooLong { limit: 16 << 20 });
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn numbers_out_of_range_are_errors_that_name_the_field() {
    for (field, found, path) in [
        (r#""num_hidden_layers": -1"#, "found -1", "`num_hidden_layers`"),
        (
            r#""num_hidden_layers": 10000000"#,
            "found 10000000, expected a whole number from 1 to 65536",
            "`num_hidden_layers`",
        ),
        (r#""num_hidden_layers": 1e300"#, "found 1e300", "`num_hidden_layers`"),
        (
            r#""num_hidden_layers": 99999999999999999999999999"#,
            "found 99999999999999999999999999",
            "`num_hidden_layers`",
        ),
        (r#""num_hidden_layers": 2.5"#, "found 2.5", "`num_hidden_layers`"),
        (r#""num_hidden_layers": "4""#, "found the string \"4\"", "`num_hidden_layers`"),
        (r#""num_hidden_layers": [4]"#, "found a list of 1", "`num_hidden_layers`"),
        (r#""num_hidden_layers": 0"#, "found 0", "`num_hidden_layers`"),
        (r#""num_hidden_layers": 2, "head_dim": 18446744073709551615"#, "found 18446744073709551615", "`head_dim`"),
        (r#""num_hidden_layers": 2, "head_dim": -4"#, "found -4", "`head_dim`"),
        (r#""num_hidden_layers": 2, "num_key_value_heads": true"#, "found true", "`num_key_value_heads`"),
        (
            r#""num_hidden_layers": 2, "architectures": 3, "num_nextn_predict_layers": {}"#,
            "found an object",
            "`num_nextn_predict_layers`",
        ),
    ] {
        let text = format!(r#"{{"model_type": "llama", {SIZES}, {field}}}"#);
        let message = error(&text);
        assert!(message.contains(found) && message.contains(path), "{text}: {message}");
    }
}

#[test]
fn totals_beyond_64_bits_are_errors() {
    let text = r#"{"model_type": "llama", "num_hidden_layers": 65536, "hidden_size": 16777216, "num_attention_heads": 16777216,
        "num_key_value_heads": 16777216, "head_dim": 16777216}"#;
    assert!(error(text).contains("does not fit 64 bits"));
    let message =
        audit_text("{}", "test", &AuditOptions { context: 0, ..AuditOptions::default() }).unwrap_err().to_string();
    assert!(message.contains("a context has 1 to"));
}

#[test]
fn lists_of_the_wrong_length_or_type_are_errors() {
    let error_with =
        |fields: &str| error(&format!(r#"{{"text_config": {{"num_hidden_layers": 3, {SIZES}, {fields}}}}}"#));
    let message = error_with(r#""layer_types": ["full_attention"]"#);
    assert_eq!(
        message,
        "fields `text_config.layer_types` and `text_config.num_hidden_layers` contradict each other: the first has 1 entries, the second says 3 layers"
    );
    let message = error_with(r#""layer_types": ["full_attention", 7, "full_attention"]"#);
    assert_eq!(message, "field `text_config.layer_types[1]`: found 7, expected a string");
    assert!(error_with(r#""layer_types": "full""#).contains("found the string \"full\", expected a list"));
    assert!(
        error_with(r#""attn_type_list": [0, 1, 2]"#)
            .contains("`text_config.attn_type_list[2]`: found 2, expected 0 or 1")
    );
    assert!(error_with(r#""full_attn_idxs": [0, 3]"#).contains("found 3, expected a layer from 0 to 2"));
    assert!(error_with(r#""full_attn_idxs": [1, 1]"#).contains("found 1 a second time"));
    assert!(
        error_with(r#""hybrid_override_pattern": "M*""#).contains("the first has 2 entries, the second says 3 layers")
    );
    assert!(error_with(r#""full_attention_interval": 0"#).contains("found 0, expected a whole number from 1"));
    assert!(
        error_with(r#""attn_layer_period": 2, "attn_layer_offset": 2"#)
            .contains("`text_config.attn_layer_offset`: found 2")
    );
    assert!(error_with(r#""num_kv_shared_layers": 3, "model_type": "llama""#).contains("fewer than 3 layers"));
    assert!(error_with(r#""compress_ratios": [0, 4]"#).contains("has 2 entries"));
    assert!(error_with(r#""block_configs": [{}, {}, {}]"#).contains("`text_config.block_configs[0].attention`"));
    assert!(error_with(r#""attn": 3, "model_type": "gla""#).contains("found 3, expected an object"));
}

#[test]
fn contradicting_fields_are_errors() {
    let text = format!(
        r#"{{"num_hidden_layers": 4, {SIZES}, "full_attention_interval": 2,
            "layer_types": ["linear_attention", "full_attention", "full_attention", "linear_attention"],
            "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 4}}"#
    );
    assert_eq!(
        error(&text),
        "fields `layer_types[2]` and `full_attention_interval` contradict each other: for layer 2 the first says full, the second recurrent"
    );
    let text = format!(
        r#"{{"model_type": "falcon_h1", "num_hidden_layers": 1, {SIZES}, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_ssm": 33, "mamba_d_state": 4}}"#
    );
    assert!(error(&text).contains("33 channels are not 4 heads of 8"));
}

#[test]
fn unknown_names_are_errors_with_a_hint() {
    let error_for = |name: &str| audit_named(name, &AuditOptions::default()).unwrap_err().to_string();
    assert_eq!(
        error_for("qwen3.5-9c"),
        "there is no file, directory or preset `qwen3.5-9c`; did you mean the preset `qwen3.5-9b`?"
    );
    assert_eq!(error_for("no/such/file.json"), "there is no file, directory or preset `no/such/file.json`");
    let empty = std::env::temp_dir().join(format!("rung-audit-empty-{}", std::process::id()));
    std::fs::create_dir_all(&empty).unwrap();
    let message = error_for(empty.to_str().unwrap());
    std::fs::remove_dir(&empty).unwrap();
    assert!(message.contains("config.json"), "{message}");
}

#[test]
fn deepest_stack_is_audited_within_seconds() {
    let words = vec!["\"full_attention\",\"linear_attention\""; 32_768].join(",");
    let text = format!(
        r#"{{"num_hidden_layers": 65536, {SIZES}, "layer_types": [{words}],
            "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 4}}"#
    );
    let start = Instant::now();
    let audit = audit_text(&text, "test", &AuditOptions::default()).unwrap();
    assert_eq!(audit.capacity.unwrap().rungs, 32_768);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    // All words different and none known.
    let words: Vec<String> = (0..65_536).map(|index| format!("\"word{index}\"")).collect();
    let text = format!(r#"{{"num_hidden_layers": 65536, {SIZES}, "layer_types": [{}]}}"#, words.join(","));
    let start = Instant::now();
    assert!(audit_text(&text, "test", &AuditOptions::default()).unwrap().unknown_reasons.len() < 100);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn long_lists_and_objects_take_bounded_time() {
    let start = Instant::now();
    let deep = format!(r#""num_hidden_layers": 65536, {SIZES}"#);
    let list = vec!["16777215"; 400_000].join(",");
    let text = format!(r#"{{"model_type": "llama", {deep}, "num_experts": 4, "mlp_only_layers": [{list}]}}"#);
    audit_text(&text, "test", &AuditOptions::default()).unwrap();
    let fields: Vec<String> = (0..200_000).map(|index| format!("\"k{index}\":0")).collect();
    let fields = fields.join(",");
    assert!(error(&format!(r#"{{"model_type": "llama", {deep}, {fields}}}"#)).contains("at most 1024 fields"));
    let inner = format!(r#"{{"model_type": "llama", {deep}, "per_layer_config": {{{fields}}}}}"#);
    assert!(error(&inner).contains("`per_layer_config`"));
    let attention = vec![r#"{"layers": [0]}"#; 5000].join(",");
    assert!(error(&format!(r#"{{"model_type": "gla", {deep}, "attn": [{attention}]}}"#)).contains("at most 64 items"));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn products_of_large_sizes_are_errors() {
    let text = r#"{"model_type": "zaya", "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 16777216,
        "num_key_value_heads": 16777216, "head_dim": 16777216, "cca_time0": 16777216, "cca_time1": 2, "layer_types": ["hybrid"]}"#;
    assert!(audit_text(text, "test", &AuditOptions::default()).is_err());
}
