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
use crate::layout::{AttentionKind, Layout, LayerOverrides, LayerSpec, Recurrent};

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
    let mut layout = Layout::from_fn(num_layers, |_| LayerSpec::recurrent(recurrent.clone()).decided_by(config.path_of("attn")));
    match config.get("attn") {
        None => {}
        Some(JsonValue::List(items)) => {
            for (position, item) in items.iter().enumerate() {
                let path = config.path_of(&format!("attn[{position}]"));
                set_attention(&Config::new(item, item, &path, false), &mut layout)?;
            }
        }
        Some(item @ JsonValue::Object(_)) => set_attention(&Config::new(item, item, &config.path_of("attn"), false), &mut layout)?,
        Some(other) => return Err(config.field_error("attn", other, "an object, a list of objects, or null")),
    }
    Ok(Some(layout))
}

/// Makes the layers that one object lists attention layers.
fn set_attention(config: &Config, layout: &mut Layout) -> Result<(), AuditError> {
    let Some(listed) = layer_mask(config, "layers", layout.layers.len(), 0)? else { return Ok(()) };
    let window = config.size("window_size")?;
    let heads = config.size("num_heads")?;
    let overrides = LayerOverrides { heads, kv: config.size("num_kv_heads")?.or(heads), ..LayerOverrides::default() };
    for (spec, _) in layout.layers.iter_mut().zip(listed).filter(|(_, listed)| *listed) {
        let kind = window.map_or(AttentionKind::Full, |size| AttentionKind::Window(Some(size)));
        *spec = LayerSpec { overrides, ..LayerSpec::new(kind).decided_by(config.path_of("layers")) };
    }
    Ok(())
}

/// The recurrence of each architecture, with its sizes and the library's defaults.
fn recurrence(config: &Config, model: &str) -> Result<Option<Recurrent>, AuditError> {
    let Some(width) = config.width()? else { return Ok(None) };
    let heads = config.size("num_heads")?;
    let head = config.size("head_dim")?;
    let conv = if config.flag("use_short_conv")? == Some(false) { 0 } else { config.count("conv_size")?.unwrap_or(4) };
    // Widths of a key and a value head where they are given as factors of the model's width.
    let split = |heads: u64, expand_k: f64, expand_v: f64| -> Result<(u64, u64), AuditError> {
        let (key, value) = (config.scaled("expand_k", width, expand_k)?, config.scaled("expand_v", width, expand_v)?);
        Ok(((key / heads).max(1), (value / heads).max(1)))
    };
    Ok(Some(match model {
        "rwkv7" | "rwkv6" => {
            let head = head.unwrap_or(64);
            let heads = heads.unwrap_or((width / head).max(1));
            Recurrent::Known(
                if model == "rwkv7" { "rwkv7" } else { "rwkv6" },
                vec![("heads", heads), ("head", head), ("channel", 1)],
            )
        }
        "gla" => {
            let heads = heads.unwrap_or(4);
            let (key, value) = split(heads, 0.5, 1.0)?;
            Recurrent::Known("gla", vec![("heads", heads), ("value", value), ("key", key)])
        }
        "retnet" | "linear_attn" | "delta_net" => {
            let (name, heads, expand_v, extra) = match model {
                "retnet" => ("retnet", heads.unwrap_or(8), 2.0, None),
                "delta_net" => ("deltanet", heads.unwrap_or(16), 1.0, Some(("conv", conv))),
                _ => ("linear", heads.unwrap_or(4), 1.0, None),
            };
            let (key, value) = split(heads, 1.0, expand_v)?;
            Recurrent::Known(name, [("heads", heads), ("key", key), ("value", value)].into_iter().chain(extra).collect())
        }
        "gated_deltanet" | "gated_deltaproduct" | "kda" => {
            let name = match model {
                "gated_deltanet" => "gdn",
                "kda" => "kda",
                _ => "deltaproduct",
            };
            let (heads, head) = (heads.unwrap_or(6), head.unwrap_or(if model == "kda" { 128 } else { 256 }));
            let values = config.size("num_v_heads")?.unwrap_or(heads);
            let value = config.scaled("expand_v", head, if model == "kda" { 1.0 } else { 2.0 })?;
            let mut numbers =
                vec![("heads", heads), ("value-heads", values), ("key", head), ("value", value), ("conv", conv)];
            if name == "deltaproduct" {
                numbers.push(("steps", config.size("num_householder")?.unwrap_or(2)));
            }
            Recurrent::Known(name, numbers)
        }
        "hgrn2" => Recurrent::Known("hgrn2", vec![("expand", config.size("expand_ratio")?.unwrap_or(128))]),
        "mamba" | "samba" => Recurrent::OneOf(&["mamba1"]),
        "mamba2" => Recurrent::OneOf(&["mamba2"]),
        _ => return Ok(None),
    }))
}
