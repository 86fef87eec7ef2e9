//! Regression tests: layouts and sizes that were once unknown, rejected or counted too low, one small config each.

use rung_audit::{Audit, AuditOptions, audit_text};

fn read(fields: &str) -> Result<Audit, String> {
    let config = format!(
        r#"{{"num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 4, {fields}}}"#
    );
    audit_text(&config, "test", &AuditOptions::default()).map_err(|error| error.to_string())
}

fn audit_without_unknowns(fields: &str) -> Audit {
    let audit = read(fields).unwrap();
    assert!(audit.unknown_reasons.is_empty(), "{:?}", audit.unknown_reasons);
    audit
}

/// Latents of 8 and a rotary key of 2.
const LATENT: &str = r#""kv_lora_rank": 8, "qk_rope_head_dim": 2, "qk_nope_head_dim": 4, "v_head_dim": 4"#;
const INDEX: &str = r#""index_topk": 4, "index_n_heads": 2, "index_head_dim": 6"#;

#[test]
fn indexed_attention_is_token_sparse_over_latents() {
    let words =
        r#""layer_types": ["indexed_attention", "indexed_attention", "indexed_attention", "indexed_attention"]"#;
    let audit = audit_without_unknowns(&format!("{words}, {LATENT}, {INDEX}"));
    assert_eq!((audit.layer_letters().as_str(), audit.cache.unwrap().per_token), ("SSSS", 4 * (8 + 2 + 6) * 2));
    let shared = format!(r#"{words}, {LATENT}, {INDEX}, "indexer_types": ["full", "shared", "shared", "full"]"#);
    assert_eq!(audit_without_unknowns(&shared).cache.unwrap().per_token, (4 * (8 + 2) + 2 * 6) * 2);
}

#[test]
fn pooled_index_keys_cache_keys_gates_and_a_flag() {
    let words = r#""layer_types": ["indexed_attention", "full_attention", "full_attention", "full_attention"]"#;
    let audit = audit_without_unknowns(&format!(r#"{words}, {LATENT}, {INDEX}, "index_kpool": 2"#));
    assert_eq!(audit.cache.unwrap().per_token, (4 * (8 + 2) + 2 * 6 + 1) * 2);
}

#[test]
fn query_sparse_attention_caches_index_keys_beside_keys_and_values() {
    let sizes = r#""indexer_head_dim": 6, "indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_compress_ratio": 4, "indexer_budget": 16"#;
    for word in ["qwen_sparse_attention", "indexed_attention", "full_attention"] {
        let audit =
            audit_without_unknowns(&format!(r#""layer_types": ["{word}", "{word}", "{word}", "{word}"], {sizes}"#));
        assert_eq!(
            (audit.layer_letters().as_str(), audit.cache.unwrap().per_token),
            ("SSSS", 4 * (2 * 2 * 4 + 6) * 2),
            "{word}"
        );
    }
    let without_sizes =
        read(r#""layer_types": ["qwen_sparse_attention", "full_attention", "full_attention", "full_attention"]"#);
    assert!(without_sizes.unwrap().unknown_reasons[0].contains("indexer_head_dim"));
}

#[test]
fn kda_sizes_are_read_from_flat_names() {
    let fields = r#""layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        "linear_num_heads": 2, "linear_head_dim": 6, "linear_conv_kernel_dim": 4"#;
    let audit = audit_without_unknowns(fields);
    assert_eq!(audit.layers[0].recurrent, Some("kda"));
    assert_eq!(audit.cache.unwrap().state, 3 * (2 * 6 * 6 * 4 + 3 * 3 * 2 * 6 * 2));
}

#[test]
fn rope_head_dim_of_zero_is_accepted() {
    let fields = r#""model_type": "deepseek_v3", "kv_lora_rank": 8, "qk_rope_head_dim": 0, "qk_nope_head_dim": 4, "v_head_dim": 4"#;
    assert_eq!(audit_without_unknowns(fields).cache.unwrap().per_token, 4 * 8 * 2);
}

#[test]
fn layers_without_rotary_positions_cache_no_rotary_key() {
    let fields = format!(r#""model_type": "deepseek_v3", {LATENT}, "no_rope_layers": [1, 1, 0, 1]"#);
    assert_eq!(audit_without_unknowns(&fields).cache.unwrap().per_token, (3 * 10 + 8) * 2);
}

#[test]
fn kv_source_layers_share_caches() {
    let audit = audit_without_unknowns(r#""model_type": "llama", "kv_source_layers": [0, 0, 2, 2]"#);
    assert_eq!(audit.cache.unwrap().per_token, 2 * 2 * 2 * 4 * 2);
    assert!(audit.layers[1].shares_cache && !audit.layers[2].shares_cache);
    for list in ["[1, 1, 2, 3]", "[0, 0, 1, 3]"] {
        let error = read(&format!(r#""model_type": "llama", "kv_source_layers": {list}"#)).unwrap_err();
        assert!(error.contains("an earlier one that has a cache"), "{error}");
    }
}

#[test]
fn per_layer_config_overrides_fields() {
    let words = r#""layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"], "sliding_window": 16"#;
    let audit = audit_without_unknowns(&format!(
        r#"{words}, "per_layer_config": {{"1": {{"head_dim": 8}}, "03": {{"head_dim": 8}}}}"#
    ));
    // Twice the head width: ignoring the override would halve the cache.
    assert_eq!(audit.cache.unwrap().per_token, 2 * 2 * 2 * 8 * 2);
    let unread = read(&format!(r#"{words}, "per_layer_config": {{"1": {{"kv_planes": 2}}}}"#)).unwrap();
    assert!(unread.unknown_reasons[0].contains("kv_planes") && unread.cache.is_none(), "{:?}", unread.unknown_reasons);
    for wrong in [r#"{"4": {}}"#, r#"{"x": {}}"#, r#"{"1": 3}"#, "[]"] {
        assert!(read(&format!(r#"{words}, "per_layer_config": {wrong}"#)).is_err(), "{wrong}");
    }
}

#[test]
fn windows_over_latents_cache_latents() {
    let words = r#""layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"], "sliding_window": 16"#;
    let cache = audit_without_unknowns(&format!("{words}, {LATENT}")).cache.unwrap();
    assert_eq!((cache.per_token, cache.window), (2 * 10 * 2, 2 * 16 * 10 * 2));
}

#[test]
fn mimo_doubles_window_kv_heads_and_ignores_its_chunk_size() {
    let fields = r#""model_type": "mimo_v2_flash", "hybrid_layer_pattern": [0, 1, 1, 1], "sliding_window": 16, "attention_chunk_size": 16"#;
    let cache = audit_without_unknowns(fields).cache.unwrap();
    assert_eq!((cache.per_token, cache.window), (2 * 2 * 4 * 2, 3 * 16 * 4 * 2 * 4 * 2));
}

#[test]
fn convolution_states_in_attention_layers_are_counted() {
    let fields = r#""layer_types": ["hybrid", "hybrid_sliding", "hybrid", "hybrid_sliding"], "sliding_window": 16,
        "conv_kernel_size": 4, "number_of_conv_states": 4, "swa_num_key_value_heads": 1, "swa_head_dim": 8"#;
    // In both kinds of layers keys and values have 16 channels; the residual stream has 32, convolved twice.
    assert_eq!(audit_without_unknowns(fields).cache.unwrap().state, 4 * 3 * (16 + 2 * 32) * 2);
}

#[test]
fn first_zamba_layers_are_mamba1() {
    let fields = r#""model_type": "zamba", "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"], "attn_layer_period": 3,
        "attn_layer_offset": 0, "n_mamba_heads": 2, "mamba_d_state": 4, "mamba_d_conv": 4, "mamba_expand": 2"#;
    let audit = audit_without_unknowns(fields);
    assert_eq!(audit.layers[0].recurrent, Some("mamba1"));
    assert_eq!(audit.cache.unwrap().state, 4 * (64 * 4 * 4 + 3 * 64 * 2));
}

#[test]
fn architectures_without_layout_fields_are_full() {
    for name in ["hy_v3", "solar_open", "jais2", "nanochat", "hrm_text"] {
        assert_eq!(audit_without_unknowns(&format!(r#""model_type": "{name}""#)).layer_letters(), "FFFF", "{name}");
    }
    for name in ["axk1", "glm4_moe_lite", "youtu", "minicpm3"] {
        let audit = audit_without_unknowns(&format!(r#""model_type": "{name}", {LATENT}"#));
        assert_eq!(audit.cache.unwrap().per_token, 4 * 10 * 2, "{name}");
    }
    // Two attention blocks in every layer.
    assert_eq!(
        audit_without_unknowns(&format!(r#""model_type": "longcat_flash", {LATENT}"#)).cache.unwrap().per_token,
        8 * 10 * 2
    );
}

#[test]
fn encoders_are_unknown_with_a_reason() {
    for (name, reason) in [("bert", "an encoder"), ("bart", "an encoder-decoder")] {
        let audit = read(&format!(r#""model_type": "{name}""#)).unwrap();
        assert!(audit.unknown_reasons[0].contains(reason) && audit.layers.is_empty(), "{:?}", audit.unknown_reasons);
    }
}

#[test]
fn unread_per_layer_lists_make_the_model_unknown() {
    for field in
        [r#""kv_planes_per_layer": [1, 1, 2, 2]"#, r#""attention_modes": ["a", "b", "a", "b"]"#, r#""index_planes": 3"#]
    {
        let audit = read(&format!(r#""model_type": "llama", {field}"#)).unwrap();
        assert!(audit.cache.is_none(), "{field}");
        assert!(audit.unknown_reasons[0].contains("is not read"), "{:?}", audit.unknown_reasons);
    }
    audit_without_unknowns(
        r#""model_type": "llama", "mlp_layer_types": ["dense", "dense", "sparse", "sparse"], "layer_scales": [0.5, 0.5, 0.5, 0.5]"#,
    );
}

#[test]
fn bamba_without_a_list_has_no_attention() {
    let sizes = r#""mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 4"#;
    assert_eq!(
        audit_without_unknowns(&format!(r#""model_type": "bamba", "attn_layer_indices": null, {sizes}"#))
            .layer_letters(),
        "rrrr"
    );
    assert!(
        !read(&format!(r#""model_type": "other", "attn_layer_indices": null, {sizes}"#))
            .unwrap()
            .unknown_reasons
            .is_empty()
    );
}

#[test]
fn draft_that_shares_every_cache_has_none() {
    let inner = r#""model_type": "gemma4_text", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 8, "head_dim": 4,
        "layer_types": ["full_attention", "full_attention"], "num_kv_shared_layers": 2"#;
    let wrapped = |name: &str| {
        let text = format!(r#"{{"model_type": "{name}", "text_config": {{{inner}}}}}"#);
        audit_text(&text, "test", &AuditOptions::default())
    };
    assert_eq!(wrapped("gemma4_assistant").unwrap().cache.unwrap().total, 0);
    assert!(wrapped("gemma4").unwrap_err().to_string().contains("fewer than 2 layers"));
}
