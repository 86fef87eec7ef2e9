//! Numbers of weights against published counts.

use rung_audit::{Options, audit_text};
use serde_json::Value;

#[test]
fn weights_equal_the_published_counts() {
    let data: Value = serde_json::from_str(include_str!("data/parameter_counts.json")).unwrap();
    let models = data["models"].as_array().unwrap();
    assert!(models.len() >= 10);
    for model in models {
        let audit = audit_text(&model["config"].to_string(), "test", &Options::default()).unwrap();
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
    let found = audit_text(config, "test", &Options::default()).unwrap().parameters.unwrap();
    assert!(!found.exact);
    assert_eq!(found.total, 10 * 8 + 8 + 2 * (4 * 8 * 8 + 3 * 8 * 16 + 2 * 8));
}

#[test]
fn without_a_vocabulary_nothing_is_counted() {
    let config = r#"{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2}"#;
    assert_eq!(audit_text(config, "test", &Options::default()).unwrap().parameters, None);
}
