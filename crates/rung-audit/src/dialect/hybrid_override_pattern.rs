//! `hybrid_override_pattern`: a letter per slot, such as `M-M*-ME`.
//!
//! # Families
//! Nemotron-H, Nemotron Nano 2, Nemotron 3.
//!
//! # Trap
//! Feed-forward parts take slots of their own: of 52 "layers" 23 may be Mamba, 6 attention and 23 experts. The pattern
//! of the layers that predict further tokens (`mtp_hybrid_override_pattern`) is extra and not part of the stack.

use super::Dialect;
use crate::AuditError;
use crate::config::{Config, MOST_LAYERS};
use crate::layout::{Channel, Kind, Layout, Reading, Recurrent};

pub(super) static DIALECT: Dialect = Dialect {
    name: "hybrid_override_pattern",
    fields: &["hybrid_override_pattern"],
    families: "Nemotron-H, Nemotron Nano 2, Nemotron 3",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    const NAME: &str = "hybrid_override_pattern";
    let Some(pattern) = config.text(NAME)? else { return Ok(None) };
    if pattern.len() as u64 > MOST_LAYERS {
        let found = format!("{} letters", pattern.len());
        return Err(AuditError::field(config.path_of(NAME), found, format!("at most {MOST_LAYERS}")));
    }
    config.require_length(NAME, pattern.chars().count(), depth)?;
    let letter = |(index, letter): (usize, char)| {
        let reading = match letter {
            'M' => Reading::recurrent(Recurrent::OneOf(&["mamba2"])).alone(),
            '*' => Reading::full().alone(),
            '-' => Reading::slot(Channel::Dense),
            'E' => Reading::slot(Channel::Experts),
            _ => Reading::new(Kind::Unknown { word: letter.to_string() }),
        };
        reading.by(config.path_of(&format!("{NAME}[{index}]")))
    };
    Ok(Some(Layout::new(pattern.chars().enumerate().map(letter).collect())))
}
