//! `sliding_window_pattern`: every p-th layer is full, the others have a window.
//!
//! # Families
//! Gemma 3, Cohere 2, EXAONE 4.
//!
//! # Trap
//! The full layer is the last of each group, and what is left over at the end is all windows. EXAONE writes the pattern
//! as letters (`LLLG`) and makes the very last layer full whatever the pattern says. The field may carry a leading
//! underscore. Without a window the field means nothing.

use super::{Dialect, each, period};
use crate::AuditError;
use crate::config::Config;
use crate::geometry::window_size;
use crate::json::Value;
use crate::layout::{Kind, Layout, Reading};

pub(super) static DIALECT: Dialect = Dialect {
    name: "sliding_window_pattern",
    fields: &["sliding_window_pattern", "_sliding_window_pattern"],
    families: "Gemma 3, Cohere 2, EXAONE 4",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let Some(name) = DIALECT.fields.iter().copied().find(|name| config.has(name)) else { return Ok(None) };
    if window_size(config)?.is_none() {
        return Ok(None);
    }
    let by = config.path_of(name);
    if let Some(Value::Text(letters)) = config.get(name) {
        return by_letters(config, name, letters, depth).map(Some);
    }
    let Some(period) = period(config, name)? else { return Ok(None) };
    let layer = |index: usize| if (index + 1).is_multiple_of(period) { Reading::full() } else { Reading::window() };
    Ok(Some(each(depth, |index| layer(index).by(&*by))))
}

fn by_letters(config: &Config, name: &str, letters: &str, depth: usize) -> Result<Layout, AuditError> {
    let letters: Vec<char> = letters.chars().collect();
    if letters.is_empty() || letters.len() > depth {
        let found = format!("{} letters", letters.len());
        return Err(AuditError::field(config.path_of(name), found, format!("1 to {depth} letters L and G")));
    }
    Ok(each(depth, |index| {
        let place = index % letters.len();
        let reading = match letters[place] {
            _ if index + 1 == depth => Reading::full(),
            'G' => Reading::full(),
            'L' => Reading::window(),
            other => Reading::new(Kind::Unknown { word: other.to_string() }),
        };
        reading.by(config.path_of(&format!("{name}[{place}]")))
    }))
}
