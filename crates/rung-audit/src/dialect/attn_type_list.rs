//! `attn_type_list`: 1 is softmax, 0 is lightning attention.
//!
//! # Families
//! MiniMax-Text-01 and M1; M2, with ones only.
//!
//! # Trap
//! The opposite of lists in which 1 marks the cheaper layer.

use super::{Dialect, bits, each};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Layout, Reading, Recurrent};

pub(super) static DIALECT: Dialect = Dialect {
    name: "attn_type_list",
    fields: &["attn_type_list"],
    families: "MiniMax-Text-01, MiniMax-M1, MiniMax-M2",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let Some(softmax) = bits(config, "attn_type_list", depth)? else { return Ok(None) };
    Ok(Some(each(depth, |index| {
        let lightning = || Reading::recurrent(Recurrent::OneOf(&["lightning"]));
        let reading = if softmax[index] { Reading::full() } else { lightning() };
        reading.by(config.path_of(&format!("attn_type_list[{index}]")))
    })))
}
