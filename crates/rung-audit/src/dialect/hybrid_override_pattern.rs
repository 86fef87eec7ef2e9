//! `hybrid_override_pattern`: a letter per layer, such as `M-M*-ME`.
//!
//! # Families
//! Nemotron-H, Nemotron Nano 2, Nemotron 3.
//!
//! # Pitfalls
//! Feed-forward networks count as layers of their own: of 52 "layers" 23 may be Mamba, 6 attention and 23 experts. The pattern
//! of the multi-token-prediction layers (`mtp_hybrid_override_pattern`) is extra and not part of the stack.

use super::Dialect;
use crate::AuditError;
use crate::config::{Config, MAX_LAYERS};
use crate::layout::{AttentionKind, FeedForwardKind, LayerSpec, Layout, RecurrenceSpec};

pub(super) static DIALECT: Dialect = Dialect {
    name: "hybrid_override_pattern",
    fields: &["hybrid_override_pattern"],
    families: "Nemotron-H, Nemotron Nano 2, Nemotron 3",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    const NAME: &str = "hybrid_override_pattern";
    let Some(pattern) = config.string(NAME)? else { return Ok(None) };
    if pattern.len() as u64 > MAX_LAYERS {
        let found = format!("{} letters", pattern.len());
        return Err(AuditError::field(config.path_of(NAME), found, format!("at most {MAX_LAYERS}")));
    }
    config.require_length(NAME, pattern.chars().count(), num_layers)?;
    let layer = |(index, letter): (usize, char)| {
        let spec = match letter {
            'M' => LayerSpec::recurrent(RecurrenceSpec::SizesFromConfig(&["mamba2"])).without_feed_forward(),
            '*' => LayerSpec::full().without_feed_forward(),
            '-' => LayerSpec::without_mixer(FeedForwardKind::Dense),
            'E' => LayerSpec::without_mixer(FeedForwardKind::Experts),
            _ => LayerSpec::new(AttentionKind::Unknown { value: letter.to_string() }),
        };
        spec.decided_by(config.path_of(&format!("{NAME}[{index}]")))
    };
    Ok(Some(Layout::new(pattern.chars().enumerate().map(layer).collect())))
}
