//! `sliding_window_layout`: 1 is a window, 0 is full.
//!
//! # Families
//! `SmallThinker`.
//!
//! # Trap
//! A second list, `rope_layout`, often has the same bits and means something else.

use super::{Dialect, bits, each};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Layout, Reading};

pub(super) static DIALECT: Dialect = Dialect {
    name: "sliding_window_layout",
    fields: &["sliding_window_layout"],
    families: "SmallThinker",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let Some(windows) = bits(config, "sliding_window_layout", depth)? else { return Ok(None) };
    Ok(Some(each(depth, |index| {
        let reading = if windows[index] { Reading::window() } else { Reading::full() };
        reading.by(config.path_of(&format!("sliding_window_layout[{index}]")))
    })))
}
