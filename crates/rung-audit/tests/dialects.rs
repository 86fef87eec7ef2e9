//! Small configs written for these tests, one per dialect, with figures worked out by hand.

use std::path::Path;

use rung_audit::{AttentionScope, Audit, AuditOptions, audit_path, audit_text, dialect};

fn audit_file(name: &str) -> Audit {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    audit_path(&path, &AuditOptions::default()).unwrap()
}

fn audit_config(text: &str) -> Audit {
    audit_text(text, "test", &AuditOptions::default()).unwrap()
}

/// Audits a six-layer config with extra fields; a full layer caches 2 * 2 * 4 numbers, 32 bytes, per token.
fn audit_with(fields: &str) -> Audit {
    audit_config(&format!(
        r#"{{"num_hidden_layers": 6, "hidden_size": 32, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4, {fields}}}"#
    ))
}

#[test]
fn nemotron_pattern_gives_layers_and_cache() {
    let audit = audit_file("nemotron-style.json");
    assert_eq!(audit.layer_letters(), "r.rF.r.rF.");
    assert_eq!(audit.layers[6].feed_forward.name(), "moe");
    assert_eq!(audit.layers[0].recurrent, Some("mamba2"));
    assert_eq!(audit.layers[3].decided_by, "hybrid_override_pattern[3]");
    let (capacity, cache) = (audit.capacity.unwrap(), audit.cache.unwrap());
    assert_eq!((capacity.full_layers, capacity.extra_hop, capacity.rungs), (2, true, 2));
    assert_eq!(cache.per_token, 2 * 2 * 2 * 32 * 2);
    assert_eq!(cache.state, 4 * (8 * 64 * 16 * 4 + 3 * (512 + 2 * 2 * 16) * 2));
    assert_eq!(audit.all_full.unwrap().rungs, 5);
    assert!(audit.assumptions.iter().any(|note| note.contains("Multi-token-prediction layers (1)")));
}

#[test]
fn kimi_lists_count_from_one() {
    let audit = audit_file("kimi-style.json");
    assert_eq!(audit.layer_letters(), "rrrFrrF");
    assert_eq!(audit.layers[6].decided_by, "linear_attn_config.full_attn_layers");
    let cache = audit.cache.unwrap();
    assert_eq!(cache.per_token, 2 * (128 + 16) * 2);
    assert_eq!(cache.state, 5 * (8 * 32 * 32 * 4 + 3 * 3 * 256 * 2));
    assert_eq!(audit.layers[0].feed_forward.name(), "dense");
    assert_eq!(audit.layers[1].feed_forward.name(), "moe");
}

#[test]
fn kimi_lists_accept_an_index_base_of_zero() {
    let config = |lists: &str| {
        format!(
            r#"{{"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4,
                "linear_attn_config": {{{lists}, "num_heads": 4, "head_dim": 16}}}}"#
        )
    };
    let zero_based_kda = r#""kda_layer_index_base": 0, "kda_layers": [0, 1, 2], "full_attn_layers": [4]"#;
    assert_eq!(audit_config(&config(zero_based_kda)).layer_letters(), "rrrF");
    let zero_based = r#""kda_layer_index_base": 0, "kda_layers": [0, 1, 2], "full_attn_layers": [3]"#;
    assert_eq!(audit_config(&config(zero_based)).layer_letters(), "rrrF");
    let missing_layer = r#""kda_layers": [1, 2], "full_attn_layers": [4]"#;
    let error = audit_text(&config(missing_layer), "test", &AuditOptions::default()).unwrap_err().to_string();
    assert!(error.contains("layer 3 (from 1) is in neither of them"), "{error}");
}

#[test]
fn mimo_pattern_marks_windows_with_one_and_has_two_head_sizes() {
    let audit = audit_file("mimo-style.json");
    assert_eq!(audit.layer_letters(), "FWWWWF");
    let cache = audit.cache.unwrap();
    assert_eq!(cache.per_token, 2 * 2 * (96 + 64) * 2);
    assert_eq!(cache.window, 4 * 128 * 4 * (96 + 64) * 2);
    // Windows right after the first full layer give the extra hop.
    assert_eq!(audit.capacity.unwrap().rungs, 2);
}

#[test]
fn falcon_h1_layers_have_attention_and_recurrence() {
    let audit = audit_file("falcon-h1-style.json");
    assert_eq!(audit.layer_letters(), "PPPP");
    assert_eq!((audit.layers[0].attention, audit.layers[0].recurrent), (Some(AttentionScope::Full), Some("mamba2")));
    assert_eq!(audit.layers[0].decided_by, "model_type");
    let (capacity, cache) = (audit.capacity.unwrap(), audit.cache.unwrap());
    // State in parallel with attention gives no extra hop.
    assert_eq!((capacity.full_layers, capacity.extra_hop, capacity.rungs), (4, false, 3));
    assert_eq!(cache.per_token, 4 * 2 * 2 * 64 * 2);
    assert_eq!(cache.state, 4 * (384 * 64 * 4 + 3 * (384 + 2 * 64) * 2));
}

#[test]
fn stack_of_windows_has_no_rung() {
    let audit = audit_file("all-window.json");
    assert_eq!(audit.layer_letters(), "WWWWW");
    let (capacity, cache) = (audit.capacity.unwrap(), audit.cache.unwrap());
    assert_eq!((capacity.full_layers, capacity.rungs), (0, 0));
    assert_eq!((cache.per_token, cache.state, cache.window), (0, 0, 5 * 1000 * 2 * 4 * 32 * 2));
    assert_eq!(audit.all_full.unwrap().cache.per_token, 5 * 2 * 4 * 32 * 2);
}

#[test]
fn unknown_word_is_reported_with_its_index() {
    let audit = audit_file("unknown-word.json");
    assert_eq!(audit.layer_letters(), "FW?F");
    assert_eq!(
        audit.unknown_reasons,
        ["layer 2: `layer_types[2]` is \"telepathic_attention\", a value that no dialect knows"]
    );
    assert_eq!((audit.capacity, audit.cache), (None, None));
}

#[test]
fn unknown_architecture_reports_the_fields_looked_for() {
    let audit = audit_config(
        r#"{"model_type": "nobody_knows", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4}"#,
    );
    assert!(audit.layers.is_empty());
    assert!(
        audit.unknown_reasons[0].contains("`nobody_knows`") && audit.unknown_reasons[0].contains("layer_types"),
        "{:?}",
        audit.unknown_reasons
    );
    // The model's own name does not decide either.
    let named = audit_config(r#"{"_name_or_path": "meta-llama/Llama-3.1-8B", "num_hidden_layers": 4}"#);
    assert_eq!(named.unknown_reasons.len(), 1);
}

#[test]
fn known_layers_without_sizes_still_have_rungs() {
    let audit = audit_config(
        r#"{"num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "full_attention"]}"#,
    );
    assert_eq!(audit.layer_letters(), "rFF");
    assert_eq!(audit.capacity.unwrap().rungs, 2);
    assert_eq!(audit.cache, None);
    assert_eq!(audit.unknown_reasons.len(), 2);
    assert!(audit.unknown_reasons[0].contains("linear_num_value_heads"), "{:?}", audit.unknown_reasons);
}

#[test]
fn size_fields_decide_what_linear_attention_is() {
    let name = |fields: &str| {
        let audit = audit_with(&format!(
            r#""layer_types": ["linear_attention","linear_attention","full_attention","linear_attention","linear_attention","full_attention"], {fields}"#
        ));
        (audit.layers[0].recurrent, audit.unknown_reasons.len())
    };
    assert_eq!(
        name(r#""linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8"#),
        (Some("gdn"), 0)
    );
    assert_eq!(name(r#""mamba_n_heads": 8, "mamba_d_head": "auto", "mamba_d_state": 16"#), (Some("mamba2"), 0));
    assert_eq!(name(r#""conv_L_cache": 3"#), (Some("conv"), 0));
    assert_eq!(name(r#""conv_L_cache": 3, "lru_width": 32"#), (Some("unknown"), 1));
}

#[test]
fn each_dialect_gives_the_expected_layer_letters() {
    for (fields, letters) in [
        (
            r#""full_attention_interval": 3, "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 4"#,
            "rrFrrF",
        ),
        (r#""attn_type_list": [0, 0, 1, 0, 0, 1]"#, "rrFrrF"),
        (r#""attn_layer_period": 3, "attn_layer_offset": 1, "mamba_d_state": 4"#, "rFrrFr"),
        (r#""attn_layer_indices": [4], "mamba_d_state": 4"#, "rrrrFr"),
        (r#""full_attn_idxs": [0, 5], "conv_L_cache": 3"#, "FrrrrF"),
        (r#""block_types": ["recurrent", "attention"], "lru_width": 32, "attention_window_size": 8"#, "rWrWrW"),
        (r#""global_attn_idx": [0, 5], "sliding_window": 8, "mamba_d_state": 4"#, "PppppP"),
        (r#""architectures": ["BailingMoeLinearV2ForCausalLM"], "layer_group_size": 4"#, "rrrFFF"),
        (r#""sliding_window_pattern": 4, "sliding_window": 8"#, "WWWFWW"),
        (r#""sliding_window_pattern": "LLG", "sliding_window": 8"#, "WWFWWF"),
        (r#""_sliding_window_pattern": 3, "sliding_window": 8"#, "WWFWWF"),
        (r#""sliding_window_layout": [0, 1, 1, 0, 1, 1], "sliding_window": 8"#, "FWWFWW"),
        (r#""sliding_window_layers": [1, 3], "sliding_window": 8"#, "FWFWFF"),
        (r#""global_attn_every_n_layers": 2, "sliding_window": 8"#, "WFWFWF"),
        (r#""attention_chunk_size": 8"#, "WWWFWW"),
        (r#""attention_chunk_size": 8, "no_rope_layers": [1, 0, 1, 0, 1, 0]"#, "WFWFWF"),
        (r#""layer_mapping": ["m1", "g1", "m", "m", "g2", "m"], "mamba_d_state": 4"#, "rPrrPr"),
        (
            r#""layers_block_type": ["mamba", "hybrid", "mamba", "mamba", "hybrid", "mamba"], "mamba_d_state": 4"#,
            "rPrrPr",
        ),
        (
            r#""block_pattern": ["gdn", "gdn", "attn"], "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 4"#,
            "rrFrrF",
        ),
        (r#""mb_per_layer": 2, "full_per_layer": 4, "local_window": 8"#, "rWrFrW"),
        (r#""model_type": "gla", "attn": {"layers": [1, 4], "num_heads": 2, "window_size": null}"#, "rFrrFr"),
        (
            r#""model_type": "gla", "attn": [{"layers": [1], "num_heads": 2}, {"layers": [2], "num_heads": 2, "window_size": 4}]"#,
            "rFWrrr",
        ),
        (r#""model_type": "gla", "attn": null"#, "rrrrrr"),
        (r#""ssm_cfg": {}, "attn_layer_idx": [2]"#, "rrFrrr"),
        (
            r#""model_type": "qwen2", "use_sliding_window": false, "sliding_window": 8, "max_window_layers": 2"#,
            "FFFFFF",
        ),
        (r#""model_type": "qwen2", "use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2"#, "FFWWWW"),
        (r#""model_type": "gemma2", "sliding_window": 8"#, "WFWFWF"),
        (r#""model_type": "llama""#, "FFFFFF"),
        (r#""model_type": "zaya", "cca_time0": 2, "cca_time1": 2"#, "PPPPPP"),
        (
            r#""kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "index_topk": 4, "index_n_heads": 2, "index_head_dim": 4"#,
            "SSSSSS",
        ),
        (
            r#""compress_ratios": [0, 4, 128, 4, 128, 4, 0], "num_nextn_predict_layers": 1, "sliding_window": 8, "index_topk": 4, "index_n_heads": 2, "index_head_dim": 4"#,
            "WSSSSS",
        ),
        (
            r#""sparse_attention_config": {"sparse_attention_freq": [0, 1, 1, 1, 1, 1], "sparse_block_size": 8, "sparse_topk_blocks": 2}"#,
            "FSSSSS",
        ),
        (
            r#""block_configs": [{"attention": {"no_op": true}}, {"attention": {"n_heads_in_group": 4}}, {"attention": {"replace_with_linear": true}},
               {"attention": {"n_heads_in_group": 8}}, {"attention": {"no_op": false, "n_heads_in_group": 4}}, {"attention": {"no_op": true}}]"#,
            ".F.FF.",
        ),
        (
            r#""layer_types": ["hybrid", "hybrid_sliding", "mamba", "chunked_attention", "moe", "minimax_m3_sparse"],
               "mamba_d_state": 4, "sliding_window": 8, "attention_chunk_size": null"#,
            "PprW.S",
        ),
    ] {
        assert_eq!(audit_with(fields).layer_letters(), letters, "{fields}");
    }
}

#[test]
fn no_op_layers_have_no_cache_and_group_sizes_set_kv_heads() {
    let audit = audit_with(
        r#""block_configs": [{"attention": {"no_op": true}}, {"attention": {"n_heads_in_group": 4}}, {"attention": {"no_op": true}},
           {"attention": {"n_heads_in_group": 8}}, {"attention": {"no_op": true}}, {"attention": {"no_op": true}}]"#,
    );
    // 8 heads in groups of 4 and 8: two and one key/value heads of 4.
    assert_eq!(audit.cache.unwrap().per_token, (2 + 1) * 2 * 4 * 2);
    assert_eq!(audit.mixing_layer_count(), 2);
}

#[test]
fn zaya_has_a_convolution_before_attention() {
    let audit = audit_with(r#""model_type": "zaya", "cca_time0": 2, "cca_time1": 2"#);
    let (capacity, cache) = (audit.capacity.unwrap(), audit.cache.unwrap());
    // The convolution before the first attention is state in block 0.
    assert_eq!((capacity.full_layers, capacity.extra_hop, capacity.rungs), (6, true, 6));
    // Two inputs of the convolutions over queries and keys, and half of the values of the token before.
    assert_eq!(cache.state, 6 * (2 * (8 + 2) * 4 + 2 * 4 / 2) * 2);
}

#[test]
fn baichuan_convolutions_give_no_extra_hop() {
    let audit = audit_with(
        r#""sliding_window_layers": [4], "num_swa_attention_heads": 4, "num_swa_key_value_heads": 1, "sliding_window": 8, "conv_window": 2"#,
    );
    let capacity = audit.capacity.unwrap();
    assert_eq!((capacity.full_layers, capacity.extra_hop, capacity.rungs), (5, false, 4));
    assert_eq!(audit.cache.unwrap().state, (5 * 2 * 2 * 4 + 2 * 8) * 2);
}

#[test]
fn zamba_attention_feeds_its_mamba() {
    let audit = audit_with(
        r#""layers_block_type": ["hybrid", "hybrid", "mamba", "mamba", "hybrid", "mamba"], "num_mem_blocks": 1,
           "n_mamba_heads": 4, "mamba_d_state": 4, "mamba_headdim": 16"#,
    );
    // The recurrence after the first attention is in block 1, though both are one layer of the config.
    let capacity = audit.capacity.unwrap();
    assert_eq!((capacity.full_layers, capacity.extra_hop, capacity.rungs), (3, true, 3));
    assert_eq!(audit.layers.len(), 6);
    assert_eq!(audit.cache.unwrap().per_token, 3 * 32);
    assert!(audit.layers[1].shares_parameters && !audit.layers[0].shares_parameters);
}

#[test]
fn hymba_layers_share_caches() {
    let audit = audit_with(
        r#""global_attn_idx": [0, 5], "kv_reuse_group": [[1, 2], [3, 4]], "sliding_window": 8, "mamba_d_state": 4"#,
    );
    let cache = audit.cache.unwrap();
    assert_eq!((cache.per_token, cache.window), (2 * 32, 2 * 8 * 32));
}

#[test]
fn layers_may_differ_in_heads() {
    let audit = audit_config(
        r#"{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 32, "head_dim": 4,
            "num_attention_heads": [4, 8], "num_key_value_heads": [1, 4]}"#,
    );
    assert_eq!(audit.cache.unwrap().per_token, (1 + 4) * 2 * 4 * 2);
    assert_eq!(audit.layers[1].plan_layers[0].mixers[0].number("heads"), Some(8));
}

#[test]
fn nested_models_are_found_beside_vision_towers() {
    let audit = audit_config(
        r#"{"model_type": "wrapper", "vision_config": {"num_hidden_layers": 99, "model_type": "siglip"},
            "text_config": {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2}}"#,
    );
    assert_eq!(audit.layer_letters(), "FF");
    assert_eq!(audit.layers[0].decided_by, "text_config.model_type");
}

#[test]
fn every_dialect_lists_fields_and_families() {
    for dialect in dialect::DIALECTS {
        assert!(!dialect.fields.is_empty() && !dialect.families.is_empty(), "{}", dialect.name);
    }
    assert!(dialect::DIALECTS.len() >= 30);
}

#[test]
fn layer_types_override_the_pattern_saved_by_transformers() {
    let types = r#""layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention", "full_attention", "full_attention"]"#;
    let audit = audit_with(&format!(r#"{types}, "_sliding_window_pattern": 6, "sliding_window": 8"#));
    assert_eq!(audit.layer_letters(), "WFFFFF");
    // Without the underscore the field counts and contradicts the list.
    let text = format!(
        r#"{{"num_hidden_layers": 6, "hidden_size": 32, "num_attention_heads": 8, "sliding_window_pattern": 6, "sliding_window": 8, {types}}}"#
    );
    assert!(audit_text(&text, "test", &AuditOptions::default()).is_err());
}

#[test]
fn olmo_hybrid_allows_negative_eigenvalues_by_default() {
    let sizes = r#""linear_num_key_heads": 4, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8"#;
    let types = r#""layer_types": ["linear_attention", "linear_attention", "linear_attention", "linear_attention", "linear_attention", "full_attention"]"#;
    let allows_negative = |fields: &str| {
        let audit = audit_with(&format!("{sizes}, {types}{fields}"));
        audit.layers[0].plan_layers[0].mixers[0].flag("negative")
    };
    assert_eq!(allows_negative(""), Some(false));
    assert_eq!(allows_negative(r#", "model_type": "olmo_hybrid""#), Some(true));
    assert_eq!(allows_negative(r#", "model_type": "olmo_hybrid", "linear_allow_neg_eigval": false"#), Some(false));
    assert_eq!(allows_negative(r#", "linear_allow_neg_eigval": true"#), Some(true));
}
