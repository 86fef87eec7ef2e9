//! GGUF headers: correct ones, contradicting ones, and ones with false lengths.

mod common;

use common::{Meta, header, qwen};
use rung_audit::{Audit, AuditError, AuditOptions, audit_bytes, audit_path};

fn read(bytes: &[u8]) -> Result<Audit, AuditError> {
    audit_bytes(bytes, "test", &AuditOptions::default())
}

#[test]
fn only_the_header_of_a_file_is_read() {
    let mut bytes = qwen(100_000, &[("qwen35.full_attention_interval", Meta::Number(4))]);
    bytes.extend(vec![0xff; 4096]);
    let path = std::env::temp_dir().join(format!("rung-audit-{}.gguf", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let audit = audit_path(&path, &AuditOptions::default());
    std::fs::remove_file(&path).unwrap();
    let audit = audit.unwrap();
    assert_eq!((audit.model.as_str(), audit.layer_letters().as_str()), ("A Small Hybrid", "rrrFrrrF"));
    assert_eq!(audit.layers[0].recurrent, Some("gdn"));
    assert_eq!(audit.layers[3].decided_by, "qwen35.full_attention_interval");
    let cache = audit.cache.unwrap();
    assert_eq!(cache.per_token, 2 * 2 * 2 * 128 * 2);
    assert_eq!(cache.state, 6 * (16 * 128 * 128 * 4 + 3 * (2 * 8 * 128 + 2048) * 2));
}

#[test]
fn layers_are_read_from_each_kind_of_field() {
    let flags = vec![true, true, false, true, true, false, true, false];
    let audit = read(&qwen(3, &[("qwen35.attention.recurrent_layers", Meta::Flags(flags))])).unwrap();
    assert_eq!(audit.layer_letters(), "rrFrrFrF");
    let lfm = header(&[
        ("general.architecture", Meta::Text("lfm2")),
        ("lfm2.block_count", Meta::Number(4)),
        ("lfm2.embedding_length", Meta::Number(64)),
        ("lfm2.attention.head_count", Meta::Number(4)),
        ("lfm2.attention.head_count_kv", Meta::Numbers(vec![0, 0, 2, 0])),
        ("lfm2.shortconv.l_cache", Meta::Number(3)),
    ]);
    let audit = read(&lfm).unwrap();
    assert_eq!((audit.layer_letters().as_str(), audit.layers[0].recurrent), ("rrFr", Some("conv")));
    assert_eq!(audit.cache.unwrap().state, 3 * 2 * 64 * 2);
    let mimo = header(&[
        ("general.architecture", Meta::Text("mimo2")),
        ("mimo2.block_count", Meta::Number(3)),
        ("mimo2.nextn_predict_layers", Meta::Number(1)),
        ("mimo2.embedding_length", Meta::Number(64)),
        ("mimo2.attention.head_count", Meta::Number(4)),
        ("mimo2.attention.head_count_kv", Meta::Numbers(vec![1, 2, 1])),
        ("mimo2.attention.sliding_window", Meta::Number(8)),
        ("mimo2.attention.sliding_window_pattern", Meta::Flags(vec![false, true, false])),
    ]);
    let audit = read(&mimo).unwrap();
    assert_eq!(audit.layer_letters(), "FW");
    let cache = audit.cache.unwrap();
    assert_eq!((cache.per_token, cache.window), (2 * 16 * 2, 8 * 2 * 2 * 16 * 2));
    let llama = header(&[
        ("general.architecture", Meta::Text("llama")),
        ("llama.block_count", Meta::Number(2)),
        ("llama.embedding_length", Meta::Number(64)),
        ("llama.attention.head_count", Meta::Number(4)),
        ("llama.attention.head_count_kv", Meta::Number(2)),
    ]);
    let audit = read(&llama).unwrap();
    assert_eq!((audit.layer_letters().as_str(), audit.layers[0].decided_by.as_str()), ("FF", "general.architecture"));
    let unknown = header(&[("general.architecture", Meta::Text("new")), ("new.block_count", Meta::Number(2))]);
    assert_eq!(read(&unknown).unwrap().unknown_reasons.len(), 1);
}

#[test]
fn contradicting_fields_and_repeated_keys_are_errors() {
    let short_list = qwen(1, &[("qwen35.attention.recurrent_layers", Meta::Flags(vec![true; 5]))]);
    assert!(read(&short_list).unwrap_err().to_string().contains("has 5 entries, the second says 8 layers"));
    let repeated_key = header(&[("a", Meta::Number(1)), ("a", Meta::Number(1))]);
    assert!(read(&repeated_key).unwrap_err().to_string().contains("occurs twice"));
}

#[test]
fn false_lengths_are_errors_without_large_allocations() {
    let error_of_value = |value_type: u32, value: &[u8]| {
        let mut bytes = header(&[]);
        bytes[16..24].copy_from_slice(&1_u64.to_le_bytes());
        bytes.extend(1_u64.to_le_bytes());
        bytes.push(b'k');
        bytes.extend(value_type.to_le_bytes());
        bytes.extend(value);
        read(&bytes).unwrap_err().to_string()
    };
    let huge = u64::MAX.to_le_bytes();
    assert!(error_of_value(8, &huge).contains("claims more than"));
    assert!(error_of_value(8, &1000_u64.to_le_bytes()).contains("the file ends inside its header, at byte"));
    for item in [0_u32, 4, 8, 9, 12] {
        let list = [&item.to_le_bytes()[..], &huge].concat();
        let error = error_of_value(9, &list);
        assert!(error.contains("claims") || error.contains("ends inside"), "{item}: {error}");
    }
    assert!(error_of_value(77, &[]).contains("value type 77"));
    let mut keys = header(&[]);
    keys[16..24].copy_from_slice(&huge);
    assert!(read(&keys).unwrap_err().to_string().contains("keys"));
    let mut version = header(&[]);
    version[4] = 9;
    assert!(read(&version).unwrap_err().to_string().contains("version 9"));
    assert!(read(b"GGUF").unwrap_err().to_string().contains("the file ends inside its header"));
}
