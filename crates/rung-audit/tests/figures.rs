//! Every preset's cache size, full layers, rungs and layer letters against known values.

use rung_audit::{AuditOptions, audit_preset, presets};

const KIB: u64 = 1024;

/// Published bytes per token, state bytes and window bytes; bf16 keys and values, fp32 state, bf16 convolutions.
const CACHE_BYTES: [(&str, u64, u64, u64); 11] = [
    ("qwen3.5-9b", 32_768, 51_511_296, 0),
    ("lfm2-1.2b", 12_288, 81_920, 0),
    ("jamba-v0.1", 16_384, 16_056_320, 0),
    ("gemma-3-27b", 81_920, 0, 436_207_616),
    ("gpt-oss-20b", 24_576, 0, 3_145_728),
    ("kimi-linear-48b-a3b", 8_064, 42_400 * KIB, 0),
    ("qwen3-next-80b-a3b", 24_576, 75_456 * KIB, 0),
    ("minimax-text-01", 40_960, 286_720 * KIB, 0),
    ("nemotron-3-nano-30b-a3b", 6_144, 47_932 * KIB, 0),
    ("granite-4.0-h-tiny", 8_192, 55_998 * KIB, 0),
    ("mamba2-2.7b", 0, 165_856 * KIB, 0),
];

/// Full layers, rungs, and layer letters: F full, S sparse, P full in parallel with a recurrence, W window, r recurrent, . no mixer.
#[rustfmt::skip]
const LAYERS: &[(&str, usize, usize, &str)] = &[
    ("bamba-9b", 3, 3, "rrrrrrrrrFrrrrrrrrFrrrrrrrrFrrrr"),
    ("deepseek-v3.2", 61, 60, "SSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSS"),
    ("deepseek-v4-flash", 41, 41, "WWSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSS"),
    ("falcon-h1-0.5b", 36, 35, "PPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPP"),
    ("falcon-h1-1.5b", 24, 23, "PPPPPPPPPPPPPPPPPPPPPPPP"),
    ("falcon-h1-3b", 32, 31, "PPPPPPPPPPPPPPPPPPPPPPPPPPPPPPPP"),
    ("falcon-mamba-7b", 0, 0, "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"),
    ("gemma-3-27b", 10, 10, "WWWWWFWWWWWFWWWWWFWWWWWFWWWWWFWWWWWFWWWWWFWWWWWFWWWWWFWWWWWFWW"),
    ("gemma-3-4b", 5, 5, "WWWWWFWWWWWFWWWWWFWWWWWFWWWWWFWWWW"),
    ("gemma-3n-e2b", 6, 6, "WWWWFWWWWFWWWWFWWWWFWWWWFWWWWF"),
    ("gemma-4-26b-a4b", 5, 5, "WWWWWFWWWWWFWWWWWFWWWWWFWWWWWF"),
    ("glm-5.2", 78, 77, "SSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSS"),
    ("gpt-oss-20b", 12, 12, "WFWFWFWFWFWFWFWFWFWFWFWF"),
    ("granite-4.0-h-1b", 4, 4, "rrrrrFrrrrrrrrrFrrrrrrrrrFrrrrrrrrrFrrrr"),
    ("granite-4.0-h-350m", 4, 4, "rrrrrrrrrrFrrFrrrFrrrrrrrrrFrrrr"),
    ("granite-4.0-h-tiny", 4, 4, "rrrrrFrrrrrrrrrFrrrrrrrrrFrrrrrrrrrFrrrr"),
    ("jamba-1.5-mini", 4, 4, "rrrrFrrrrrrrFrrrrrrrFrrrrrrrFrrr"),
    ("jamba-v0.1", 4, 4, "rrrrFrrrrrrrFrrrrrrrFrrrrrrrFrrr"),
    ("kimi-linear-48b-a3b", 7, 7, "rrrFrrrFrrrFrrrFrrrFrrrFrrF"),
    ("lfm2-1.2b", 6, 6, "rrFrrFrrFrFrFrFr"),
    ("lfm2-2.6b", 8, 8, "rrFrrFrrrFrrrFrrrFrrrFrrFrrFrr"),
    ("ling-3-tiny", 6, 6, "rrrFrrrFrrrFrrrFrrrFrrrF"),
    ("llama-3.1-8b", 32, 31, "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"),
    ("llama-4-scout", 12, 12, "WWWFWWWFWWWFWWWFWWWFWWWFWWWFWWWFWWWFWWWFWWWFWWWF"),
    ("mamba-130m", 0, 0, "rrrrrrrrrrrrrrrrrrrrrrrr"),
    ("mamba-codestral-7b", 0, 0, "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"),
    ("mamba2-2.7b", 0, 0, "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr"),
    ("minimax-m2.5", 62, 61, "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"),
    ("minimax-m3", 60, 59, "FFFSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSSS"),
    ("minimax-text-01", 10, 10, "rrrrrrrFrrrrrrrFrrrrrrrFrrrrrrrFrrrrrrrFrrrrrrrFrrrrrrrFrrrrrrrFrrrrrrrFrrrrrrrF"),
    ("ministral-3-8b", 34, 33, "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"),
    ("mistral-7b-v0.1", 0, 0, "WWWWWWWWWWWWWWWWWWWWWWWWWWWWWWWW"),
    ("nemotron-3-nano-30b-a3b", 6, 6, "r.r.rF.r.r.rF.r.r.rF.r.r.rF.r.r.rF.r.r.r.rF.r.r.r.r."),
    ("nemotron-3.5-lightning-30b-a3b", 6, 6, "r.r.rF.r.r.rF.r.r.rF.r.r.rF.r.r.rF.r.r.r.rF.r.r.r.r."),
    ("nemotron-h-4b", 4, 4, "r.r.r.rF.r.r.r.r.rF.r.r.r.r.rF.r.r.r.r.rF.r.r.r.r.r."),
    ("nemotron-h-56b", 10, 10, "r.r.r.rF.r.r.r.r.rF.r.r.r.r.rF.r.r.r.r.rF.r.r.r.r.rF.r.r.r.r.rF.r.r.r.r.rF.r.r.r.r.rF.r.r.r.r.rF.r.r.r.r.rF.r.r.r.r.r."),
    ("nemotron-h-8b", 4, 4, "r.r.r.rF.r.r.r.r.rF.r.r.r.r.rF.r.r.r.r.rF.r.r.r.r.r."),
    ("nemotron-nano-9b-v2", 4, 4, "r.r.r.rr.r.r.rF.r.r.rF.r.r.r.rF.r.r.r.rF.r.rr.r.r.r.r.r."),
    ("qwen3-8b", 36, 35, "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"),
    ("qwen3-next-80b-a3b", 12, 12, "rrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrF"),
    ("qwen3.5-122b-a10b", 12, 12, "rrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrF"),
    ("qwen3.5-27b", 16, 16, "rrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrF"),
    ("qwen3.5-35b-a3b", 10, 10, "rrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrF"),
    ("qwen3.5-4b", 8, 8, "rrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrF"),
    ("qwen3.5-9b", 8, 8, "rrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrF"),
    ("qwen3.6-27b", 16, 16, "rrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrF"),
    ("qwen3.6-35b-a3b", 10, 10, "rrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrFrrrF"),
    ("recurrentgemma-2b", 0, 0, "rrWrrWrrWrrWrrWrrWrrWrrWrr"),
    ("rwkv7-world-0.1b", 0, 0, "rrrrrrrrrrrr"),
    ("rwkv7-world-0.4b", 0, 0, "rrrrrrrrrrrrrrrrrrrrrrrr"),
    ("rwkv7-world-1.5b", 0, 0, "rrrrrrrrrrrrrrrrrrrrrrrr"),
    ("samba-421m", 0, 0, "rWrWrWrWrWrW"),
];

#[test]
fn cache_sizes_equal_the_published_ones() {
    for (name, per_token, state, window) in CACHE_BYTES {
        let cache = audit_preset(name, &AuditOptions::default()).unwrap().cache.unwrap();
        assert_eq!((cache.per_token, cache.state, cache.window), (per_token, state, window), "{name}");
    }
}

#[test]
fn every_preset_has_the_expected_layers_and_rungs() {
    assert_eq!(presets().len(), LAYERS.len());
    for &(name, full, rungs, letters) in LAYERS {
        let audit = audit_preset(name, &AuditOptions::default()).unwrap();
        assert_eq!(audit.unknown_reasons, Vec::<String>::new(), "{name}");
        assert_eq!(audit.layer_letters(), letters, "{name}");
        let capacity = audit.capacity.unwrap();
        assert_eq!((capacity.full_layers, capacity.rungs), (full, rungs), "{name}");
    }
}

#[test]
fn cache_size_depends_on_context_and_dtype() {
    let cache = |name: &str, options: AuditOptions| audit_preset(name, &options).unwrap().cache.unwrap();
    // A window holds no more tokens than the context has.
    let short_context = cache("gpt-oss-20b", AuditOptions { context: 100, ..AuditOptions::default() });
    assert_eq!(short_context.window, 12 * 100 * 2048);
    assert_eq!(short_context.total, 100 * 24_576 + short_context.window);
    let low_precision = cache(
        "qwen3.5-9b",
        AuditOptions {
            kv_dtype: "fp8".parse().unwrap(),
            state_dtype: Some(rung_audit::BF16),
            ..AuditOptions::default()
        },
    );
    assert_eq!(low_precision.per_token, 16_384);
    // 24 layers: half the state, the convolutions as before.
    assert_eq!(low_precision.state, 24 * (32 * 128 * 128 * 2 + 3 * 8192 * 2));
}

#[test]
fn shared_latent_and_compressed_caches_have_the_expected_size() {
    let preset = |name: &str| audit_preset(name, &AuditOptions::default()).unwrap();
    // The last ten layers read earlier caches: four full layers and sixteen windows have one.
    let shared = preset("gemma-3n-e2b").cache.unwrap();
    assert_eq!((shared.per_token, shared.window), (4 * 2048, 16 * 512 * 2048));
    // Full layers have their own heads: 2 of 512 against 8 of 256.
    let two_head_sizes = preset("gemma-4-26b-a4b").cache.unwrap();
    assert_eq!((two_head_sizes.per_token, two_head_sizes.window), (5 * 2 * 2 * 512 * 2, 25 * 1024 * 2 * 8 * 256 * 2));
    // Latent and rotary key; index keys only in layers with their own indexer.
    assert_eq!(preset("deepseek-v3.2").cache.unwrap().per_token, 61 * (512 + 64 + 128) * 2);
    assert_eq!(preset("glm-5.2").cache.unwrap().per_token, 78 * (512 + 64) * 2 + 21 * 128 * 2);
    // One entry of 512 for 4 tokens with its index key, or for 128 tokens; and a window of single tokens everywhere.
    let compressed = preset("deepseek-v4-flash").cache.unwrap();
    assert_eq!(compressed.per_token, 21 * (512 + 128) / 4 * 2 + 20 * 512 / 128 * 2);
    assert_eq!(compressed.window, 43 * 128 * 512 * 2);
}

#[test]
fn mamba_state_uses_the_real_inner_width() {
    // `expand` says 16, the inner width is 8192.
    let falcon = audit_preset("falcon-mamba-7b", &AuditOptions::default()).unwrap().cache.unwrap();
    assert_eq!(falcon.state, 64 * (8192 * 16 * 4 + 3 * 8192 * 2));
    // `mamba_expand` says 2, the heads say 1536 channels.
    let small = audit_preset("falcon-h1-0.5b", &AuditOptions::default()).unwrap().cache.unwrap();
    assert_eq!(small.state, 36 * (24 * 64 * 128 * 4 + 3 * (24 * 64 + 2 * 128) * 2));
}
