//! Public models that ship inside the binary: only the fields that decide the layers and the sizes, each with its source.
//!
//! Adding one: put `presets/NAME.json` beside the others and its name into the list below.

use crate::json::{self, JsonValue};
use crate::{Audit, AuditError, AuditOptions};

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        /// Every preset: its name and its text.
        static PRESETS: &[(&str, &str)] = &[$(($name, include_str!(concat!("../presets/", $name, ".json")))),*];
    };
}

presets! {
    "bamba-9b",
    "deepseek-v3.2",
    "deepseek-v4-flash",
    "falcon-h1-0.5b",
    "falcon-h1-1.5b",
    "falcon-h1-3b",
    "falcon-mamba-7b",
    "gemma-3-27b",
    "gemma-3-4b",
    "gemma-3n-e2b",
    "gemma-4-26b-a4b",
    "glm-5.2",
    "gpt-oss-20b",
    "granite-4.0-h-1b",
    "granite-4.0-h-350m",
    "granite-4.0-h-tiny",
    "jamba-1.5-mini",
    "jamba-v0.1",
    "kimi-linear-48b-a3b",
    "lfm2-1.2b",
    "lfm2-2.6b",
    "ling-3-tiny",
    "llama-3.1-8b",
    "llama-4-scout",
    "mamba-130m",
    "mamba-codestral-7b",
    "mamba2-2.7b",
    "minimax-m2.5",
    "minimax-m3",
    "minimax-text-01",
    "ministral-3-8b",
    "mistral-7b-v0.1",
    "nemotron-3-nano-30b-a3b",
    "nemotron-3.5-lightning-30b-a3b",
    "nemotron-h-4b",
    "nemotron-h-56b",
    "nemotron-h-8b",
    "nemotron-nano-9b-v2",
    "qwen3-8b",
    "qwen3-next-80b-a3b",
    "qwen3.5-122b-a10b",
    "qwen3.5-27b",
    "qwen3.5-35b-a3b",
    "qwen3.5-4b",
    "qwen3.5-9b",
    "qwen3.6-27b",
    "qwen3.6-35b-a3b",
    "recurrentgemma-2b",
    "rwkv7-world-0.1b",
    "rwkv7-world-0.4b",
    "rwkv7-world-1.5b",
    "samba-421m",
}

/// The names of all presets, in alphabetical order.
pub fn presets() -> impl ExactSizeIterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// The text of a preset: name, source and config fields, as JSON.
pub fn preset_text(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, text)| *text)
}

/// The config fields of a preset, as the text of a `config.json`.
pub fn preset_config(name: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(preset_text(name)?).ok()?;
    Some(format!("{:#}", value["config"]))
}

/// Audits a preset.
///
/// # Errors
/// There is no preset of that name. A test checks that every preset can be audited.
pub fn audit_preset(name: &str, options: &AuditOptions) -> Result<Audit, AuditError> {
    let Some(text) = preset_text(name) else {
        let hint = match rung_theory::spec::nearest(name, presets()) {
            Some(nearest) => format!("; did you mean the preset `{nearest}`?"),
            None => "; `rung audit --list` shows the presets".to_owned(),
        };
        return Err(AuditError::NotFound { name: name.to_owned(), hint });
    };
    let value = json::parse(text)?;
    let text_of = |key: &str| match value.get(key) {
        Some(JsonValue::String(text)) => text.clone(),
        _ => String::new(),
    };
    let (model, source) = (text_of("name"), format!("{}: {}", text_of("model"), text_of("source")));
    let config = value.get("config").unwrap_or(&JsonValue::Null);
    let mut audit = crate::audit_value(config, &model, &source, options)?;
    if let Some(JsonValue::List(fields)) = value.get("unverified") {
        let names: Vec<&str> = fields
            .iter()
            .filter_map(|field| if let JsonValue::String(name) = field { Some(name.as_str()) } else { None })
            .collect();
        audit.assumptions.push(format!("Not seen in the original file: {}.", names.join(", ")));
    }
    Ok(audit)
}
