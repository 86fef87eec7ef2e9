//! `sliding_window_layers`: the indices (from 0) of layers with a window.
//!
//! # Families
//! Baichuan-M1.
//!
//! # Pitfalls
//! Window layers have their own head counts (`num_swa_*`) and so their own head width. Every layer also convolves its
//! keys and values over `conv_window` tokens: state in parallel with attention, which adds no hop.

use super::{Dialect, layer_mask};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{AttentionScope, LayerSpec, Layout, MixerOrder, RecurrenceSpec};

pub(super) static DIALECT: Dialect = Dialect {
    name: "sliding_window_layers",
    fields: &["sliding_window_layers", "conv_window"],
    families: "Baichuan-M1",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(is_window) = layer_mask(config, "sliding_window_layers", num_layers, 0)? else { return Ok(None) };
    let full_layer_conv = convolution(config, AttentionScope::Full)?;
    let window_layer_conv = convolution(config, AttentionScope::Window)?;
    let field = config.path_of("sliding_window_layers");
    Ok(Some(Layout::from_fn(num_layers, |index| {
        let (spec, conv) = if is_window[index] {
            (LayerSpec::window(), &window_layer_conv)
        } else {
            (LayerSpec::full(), &full_layer_conv)
        };
        let spec = match conv {
            Some(conv) => spec.with_recurrence(conv.clone(), MixerOrder::Parallel),
            None => spec,
        };
        spec.decided_by(&*field)
    })))
}

/// The convolution over keys and values of window layers or of full layers.
fn convolution(config: &Config, layers: AttentionScope) -> Result<Option<RecurrenceSpec>, AuditError> {
    let Some(kernel_size) = config.size("conv_window")?.filter(|&kernel_size| kernel_size > 1) else { return Ok(None) };
    let size = |window_name: &str, name: &str| {
        Ok::<_, AuditError>(
            if layers == AttentionScope::Window { config.size(window_name)? } else { None }.or(config.size(name)?),
        )
    };
    let (heads, kv_heads) = (
        size("num_swa_attention_heads", "num_attention_heads")?,
        size("num_swa_key_value_heads", "num_key_value_heads")?,
    );
    let (Some(heads), Some(kv_heads), Some(width)) = (heads, kv_heads, config.width()?) else { return Ok(None) };
    let channels = 2 * kv_heads * (width / heads);
    // `gated` is a flag: there are no gates and projections as in LFM2's convolution.
    Ok(Some(RecurrenceSpec::WithSizes(
        "conv",
        vec![("taps", kernel_size), ("channels", channels.max(1)), ("gated", 0)],
    )))
}
