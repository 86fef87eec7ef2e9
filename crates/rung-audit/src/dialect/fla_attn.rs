//! `attn`: an object (or a list of them, or `null`) that names the attention layers of a recurrent model.
//!
//! # Families
//! Models of flash-linear-attention: RWKV-7, GLA, `RetNet`, `DeltaNet`, Gated `DeltaNet`, Samba, ..
//!
//! # Pitfalls
//! `layers` counts from 0 and `null` means none. Each object has heads and a window of its own; without a window it is
//! full. The recurrence of the other layers follows from the architecture: there is no field.

use super::{Dialect, layer_mask};
use crate::AuditError;
use crate::config::Config;
use crate::json::JsonValue;
use crate::layout::{AttentionKind, LayerOverrides, LayerSpec, Layout, RecurrenceSpec};

/// More `attn` objects than this are an error.
const MAX_ITEMS: usize = 64;

pub(super) static DIALECT: Dialect = Dialect {
    name: "attn",
    fields: &["attn"],
    families: "flash-linear-attention (RWKV-7, GLA, RetNet, DeltaNet, ..)",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    if !config.has_key("attn") {
        return Ok(None);
    }
    let Some(model) = config.model_type()? else { return Ok(None) };
    let Some(recurrent) = recurrence(config, model)? else { return Ok(None) };
    let mut layout =
        Layout::from_fn(num_layers, |_| LayerSpec::recurrent(recurrent.clone()).decided_by(config.path_of("attn")));
    match config.get("attn") {
        None => {}
        Some(value @ JsonValue::List(items)) => {
            // Every item costs a pass over all layers, so their number is limited.
            if items.len() > MAX_ITEMS {
                return Err(config.field_error("attn", value, &format!("at most {MAX_ITEMS} items")));
            }
            for (position, item) in items.iter().enumerate() {
                let path = config.path_of(&format!("attn[{position}]"));
                set_attention(&Config::new(item, item, &path, false), &mut layout)?;
            }
        }
        Some(item @ JsonValue::Object(_)) => {
            set_attention(&Config::new(item, item, &config.path_of("attn"), false), &mut layout)?;
        }
        Some(other) => return Err(config.field_error("attn", other, "an object, a list of objects, or null")),
    }
    Ok(Some(layout))
}

/// Turns the layers listed in one `attn` object into attention layers.
fn set_attention(config: &Config, layout: &mut Layout) -> Result<(), AuditError> {
    let Some(is_attention) = layer_mask(config, "layers", layout.layers.len(), 0)? else { return Ok(()) };
    let window = config.size("window_size")?;
    let heads = config.size("num_heads")?;
    let overrides =
        LayerOverrides { heads, kv_heads: config.size("num_kv_heads")?.or(heads), ..LayerOverrides::default() };
    for (spec, _) in layout.layers.iter_mut().zip(is_attention).filter(|(_, is_attention)| *is_attention) {
        let kind = window.map_or(AttentionKind::Full, |size| AttentionKind::Window(Some(size)));
        *spec = LayerSpec { overrides, ..LayerSpec::new(kind).decided_by(config.path_of("layers")) };
    }
    Ok(())
}

/// The recurrence of each architecture, with its sizes and the library's defaults.
fn recurrence(config: &Config, model: &str) -> Result<Option<RecurrenceSpec>, AuditError> {
    let Some(width) = config.width()? else { return Ok(None) };
    let heads = config.size("num_heads")?;
    let head_dim = config.size("head_dim")?;
    let conv_kernel =
        if config.flag("use_short_conv")? == Some(false) { 0 } else { config.count("conv_size")?.unwrap_or(4) };
    // Widths of a key head and a value head, which these configs give as factors of the model's width.
    let head_dims = |heads: u64, expand_k: f64, expand_v: f64| -> Result<(u64, u64), AuditError> {
        let (key_dim, value_dim) =
            (config.scaled_size("expand_k", width, expand_k)?, config.scaled_size("expand_v", width, expand_v)?);
        Ok(((key_dim / heads).max(1), (value_dim / heads).max(1)))
    };
    Ok(Some(match model {
        "rwkv7" | "rwkv6" => {
            let head_dim = head_dim.unwrap_or(64);
            let heads = heads.unwrap_or((width / head_dim).max(1));
            // `channel` is a flag: the layer has RWKV's channel mixing, with a second token shift.
            RecurrenceSpec::WithSizes(
                if model == "rwkv7" { "rwkv7" } else { "rwkv6" },
                vec![("heads", heads), ("head", head_dim), ("channel", 1)],
            )
        }
        "gla" => {
            let heads = heads.unwrap_or(4);
            let (key_dim, value_dim) = head_dims(heads, 0.5, 1.0)?;
            RecurrenceSpec::WithSizes("gla", vec![("heads", heads), ("value", value_dim), ("key", key_dim)])
        }
        "retnet" | "linear_attn" | "delta_net" => {
            let (name, heads, expand_v, conv_option) = match model {
                "retnet" => ("retnet", heads.unwrap_or(8), 2.0, None),
                "delta_net" => ("deltanet", heads.unwrap_or(16), 1.0, Some(("conv", conv_kernel))),
                _ => ("linear", heads.unwrap_or(4), 1.0, None),
            };
            let (key_dim, value_dim) = head_dims(heads, 1.0, expand_v)?;
            RecurrenceSpec::WithSizes(
                name,
                [("heads", heads), ("key", key_dim), ("value", value_dim)].into_iter().chain(conv_option).collect(),
            )
        }
        "gated_deltanet" | "gated_deltaproduct" | "kda" => {
            let name = match model {
                "gated_deltanet" => "gdn",
                "kda" => "kda",
                _ => "deltaproduct",
            };
            let (heads, head_dim) = (heads.unwrap_or(6), head_dim.unwrap_or(if model == "kda" { 128 } else { 256 }));
            let value_heads = config.size("num_v_heads")?.unwrap_or(heads);
            let value_dim = config.scaled_size("expand_v", head_dim, if model == "kda" { 1.0 } else { 2.0 })?;
            let mut sizes = vec![
                ("heads", heads),
                ("value-heads", value_heads),
                ("key", head_dim),
                ("value", value_dim),
                ("conv", conv_kernel),
            ];
            if name == "deltaproduct" {
                sizes.push(("steps", config.size("num_householder")?.unwrap_or(2)));
            }
            RecurrenceSpec::WithSizes(name, sizes)
        }
        "hgrn2" => RecurrenceSpec::WithSizes("hgrn2", vec![("expand", config.size("expand_ratio")?.unwrap_or(128))]),
        "mamba" | "samba" => RecurrenceSpec::SizesFromConfig(&["mamba1"]),
        "mamba2" => RecurrenceSpec::SizesFromConfig(&["mamba2"]),
        _ => return Ok(None),
    }))
}
