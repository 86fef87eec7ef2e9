//! Numbers of weights against published counts.

use rung_audit::{AuditOptions, audit_preset, audit_text};
use serde_json::Value;

#[test]
fn weights_equal_the_published_counts() {
    let data: Value = serde_json::from_str(include_str!("data/parameter_counts.json")).unwrap();
    let models = data["models"].as_array().unwrap();
    assert!(models.len() >= 10);
    for model in models {
        let audit = audit_text(&model["config"].to_string(), "test", &AuditOptions::default()).unwrap();
        let found = audit.parameters.unwrap_or_else(|| panic!("{}: {:?}", model["name"], audit.unknown));
        assert_eq!((found.total, found.exact), (model["total"].as_u64().unwrap(), true), "{}", model["name"]);
        if let Some(billions) = model["published_active_billions"].as_f64() {
            let number = |name: &str| model["config"][name].as_u64().unwrap();
            let left_out = if model["without_input_embeddings"] == true {
                number("vocab_size") * number("hidden_size")
            } else {
                0
            };
            let share = (found.active - left_out) as f64 / (billions * 1e9);
            assert!((0.9..1.1).contains(&share), "{}: {} active", model["name"], found.active);
        } else {
            assert_eq!(found.active, found.total, "{}", model["name"]);
        }
    }
}

#[test]
fn classes_whose_norms_are_not_known_are_marked() {
    let config = r#"{"model_type": "olmo", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2,
        "intermediate_size": 16, "vocab_size": 10, "tie_word_embeddings": true}"#;
    let found = audit_text(config, "test", &AuditOptions::default()).unwrap().parameters.unwrap();
    assert!(!found.exact);
    assert_eq!(found.total, 10 * 8 + 8 + 2 * (4 * 8 * 8 + 3 * 8 * 16 + 2 * 8));
}

#[test]
fn without_a_vocabulary_nothing_is_counted() {
    let config = r#"{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2}"#;
    assert_eq!(audit_text(config, "test", &AuditOptions::default()).unwrap().parameters, None);
}

/// Parameters of the class that transformers 5.23 builds on the meta device from a preset's config. Left out are presets whose config
/// leaves a size to the class's default that their checkpoint does not have.
const BUILT_BY_TRANSFORMERS: &[(&str, u64)] = &[
    ("bamba-9b", 9_780_235_392),
    ("deepseek-v3.2", 671_877_929_216),
    ("deepseek-v4-flash", 284_332_230_231),
    ("falcon-h1-1.5b", 1_554_789_760),
    ("falcon-h1-3b", 3_149_256_192),
    ("gemma-3-4b", 3_880_263_168),
    ("glm-5.2", 743_377_000_704),
    ("gpt-oss-20b", 20_914_757_184),
    ("granite-4.0-h-1b", 1_615_679_040),
    ("granite-4.0-h-350m", 417_402_560),
    ("granite-4.0-h-tiny", 7_093_177_920),
    ("jamba-1.5-mini", 51_570_323_328),
    ("jamba-v0.1", 51_570_323_328),
    ("kimi-linear-48b-a3b", 49_122_675_072),
    ("lfm2-1.2b", 1_170_340_608),
    ("llama-3.1-8b", 8_030_261_248),
    ("llama-4-scout", 107_769_861_120),
    ("mamba-130m", 129_135_360),
    ("mamba-codestral-7b", 7_285_403_648),
    ("minimax-m2.5", 228_689_748_992),
    ("minimax-m3", 426_174_565_632),
    ("ministral-3-8b", 8_489_553_920),
    ("mistral-7b-v0.1", 7_241_732_096),
    ("nemotron-h-4b", 4_489_223_040),
    ("nemotron-h-56b", 56_324_350_464),
    ("nemotron-h-8b", 8_100_852_736),
    ("nemotron-nano-9b-v2", 8_888_227_328),
    ("qwen3-8b", 8_190_735_360),
    ("qwen3-next-80b-a3b", 79_674_391_296),
    ("qwen3.5-122b-a10b", 121_885_034_496),
    ("qwen3.5-27b", 26_895_998_464),
    ("qwen3.5-35b-a3b", 34_660_610_688),
    ("qwen3.5-4b", 4_841_450_496),
    ("qwen3.5-9b", 8_953_803_264),
    ("qwen3.6-27b", 26_895_998_464),
    ("qwen3.6-35b-a3b", 34_660_610_688),
];

#[test]
fn presets_have_the_weights_that_transformers_builds() {
    let counts = BUILT_BY_TRANSFORMERS.iter().map(|&(name, built)| {
        let found = audit_preset(name, &AuditOptions::default()).unwrap().parameters.unwrap();
        // Small parts of some classes are left out, which `exact` says.
        let off = (found.total as f64 / built as f64 - 1.0).abs();
        let allowed = if found.exact { 0.0 } else { 0.01 };
        (name, found, built, off <= allowed)
    });
    let wrong: Vec<_> = counts.filter(|(.., right)| !right).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
