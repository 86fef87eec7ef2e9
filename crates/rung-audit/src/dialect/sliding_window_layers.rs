//! `sliding_window_layers`: the layers (from 0) that have a window.
//!
//! # Families
//! Baichuan-M1.
//!
//! # Trap
//! Windows have their own head counts (`num_swa_*`) and thereby their own head width. Every layer also convolves its
//! keys and values over `conv_window` tokens: state beside attention, which earns no hop.

use super::{Dialect, each, indices};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Join, Layout, Reading, Recurrent};

pub(super) static DIALECT: Dialect = Dialect {
    name: "sliding_window_layers",
    fields: &["sliding_window_layers", "conv_window"],
    families: "Baichuan-M1",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let Some(windows) = indices(config, "sliding_window_layers", depth, 0)? else { return Ok(None) };
    let conv = [convolution(config, false)?, convolution(config, true)?];
    let by = config.path_of("sliding_window_layers");
    Ok(Some(each(depth, |index| {
        let reading = if windows[index] { Reading::window() } else { Reading::full() };
        let reading = match &conv[usize::from(windows[index])] {
            Some(conv) => reading.with(conv.clone(), Join::Beside),
            None => reading,
        };
        reading.by(&*by)
    })))
}

/// The convolution over keys and values of one kind of layer.
fn convolution(config: &Config, window: bool) -> Result<Option<Recurrent>, AuditError> {
    let Some(taps) = config.size("conv_window")?.filter(|&taps| taps > 1) else { return Ok(None) };
    let own = |name: &str, other: &str| Ok::<_, AuditError>(if window { config.size(name)? } else { None }.or(config.size(other)?));
    let (heads, kv) = (
        own("num_swa_attention_heads", "num_attention_heads")?,
        own("num_swa_key_value_heads", "num_key_value_heads")?,
    );
    let (Some(heads), Some(kv), Some(width)) = (heads, kv, config.width()?) else { return Ok(None) };
    let channels = 2 * kv * (width / heads);
    Ok(Some(Recurrent::Known("conv", vec![("taps", taps), ("channels", channels.max(1)), ("gated", 1)])))
}
