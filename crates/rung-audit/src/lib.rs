//! Reads a model's `config.json` or GGUF header and reports what its layers are and what they cost.
//!
//! An audit says which layers are full attention, how the KV cache grows, how many rungs the stack has (hops: dependent
//! look-ups that one forward pass can compose), and what an edit would change. Well-known calculators count a KV cache for
//! every layer of a hybrid and are off by a factor of 4 to 14; an audit reads the field that decides a layer's kind, names
//! it, and answers *unknown* where there is none.
//!
//! ```text
//! bytes --> json / gguf --> dialect ----> LayerSpecs ----> rung_theory's Plan --> Audit --> report
//!           bounded         one file      attention and    all sizes            rungs,
//!           parser          per format    recurrence       resolved             bytes
//! ```
//!
//! ```
//! use rung_audit::{AuditOptions, audit_text};
//!
//! let config = r#"{
//!     "model_type": "qwen3_next", "num_hidden_layers": 48, "full_attention_interval": 4,
//!     "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
//!     "linear_num_key_heads": 16, "linear_num_value_heads": 32,
//!     "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4
//! }"#;
//! let audit = audit_text(config, "my model", &AuditOptions::default())?;
//! assert!(audit.unknown_reasons.is_empty());
//! assert_eq!(audit.capacity.unwrap().rungs, 12);
//! assert_eq!(audit.cache.unwrap().per_token, 24_576);
//! assert_eq!(audit.layers[3].decided_by, "full_attention_interval");
//! # Ok::<(), rung_audit::AuditError>(())
//! ```

mod attention_sizes;
mod audit;
mod certify;
mod config;
mod cost;
pub mod dialect;
pub mod engine;
mod error;
mod feed_forward;
pub mod gguf;
mod input;
pub mod json;
pub mod layer_ratio;
mod layout;
pub mod lint;
mod non_decoder;
pub mod placement;
mod presets;
pub mod report;
mod resize;
mod size;
mod stack;
mod unread_fields;
mod weights;
pub mod what_if;

pub use audit::parameters::ParameterCount;
pub use audit::{
    AllFullStack, Audit, AuditLayer, AuditOptions, BlockSparse, BoundSearchResult, BoundSearcher, DEFAULT_CONTEXT,
    MAX_CONTEXT, NextHopBound,
};
pub use certify::{DEFAULT_CERTIFIED_HOPS, MAX_CERTIFIED_HOPS, certify};
pub use cost::{BF16, CacheBytes, Dtype, FP32, MixerCost};
pub use error::AuditError;
pub use input::{audit_bytes, audit_named, audit_path, audit_reader, find_configs};
pub use layout::{AttentionScope, FeedForwardKind};
pub use presets::{audit_preset, preset_config, preset_text, presets};
pub use size::{parse_bytes, parse_tokens};
pub use stack::audit_stack;
pub use weights::{WeightSize, find_weights};

use config::{Config, find_language_model};

/// Audits the text of a `config.json`.
///
/// # Errors
/// The text is malformed or contradicts itself. A layout that the file does not give is no error: see [`Audit::unknown_reasons`].
pub fn audit_text(text: &str, model: &str, options: &AuditOptions) -> Result<Audit, AuditError> {
    audit_value(&json::parse(text)?, model, "config.json", options)
}

fn audit_value(root: &json::JsonValue, model: &str, source: &str, options: &AuditOptions) -> Result<Audit, AuditError> {
    let (value, path) = find_language_model(root)?;
    audit::audit(&Config::new(root, value, &path, false), model, source, options)
}

/// Replaces control characters except newlines and tabs by U+FFFD: reports in colour show names from files on a terminal.
fn without_control(text: String) -> String {
    let is_allowed = |character: char| !character.is_control() || matches!(character, '\n' | '\t');
    if text.chars().all(is_allowed) {
        return text;
    }
    text.chars().map(|character| if is_allowed(character) { character } else { char::REPLACEMENT_CHARACTER }).collect()
}
