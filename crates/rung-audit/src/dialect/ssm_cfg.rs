//! `ssm_cfg`, `attn_layer_idx`, `attn_cfg`: checkpoints of the Mamba authors.
//!
//! # Families
//! state-spaces/mamba and mamba2.
//!
//! # Pitfalls
//! `ssm_cfg` may be empty (then it is Mamba-1), and sizes that are not given are the package's defaults: 16 or 128 state
//! indices, convolutions of width 4, expansion 2, heads of 64. `attn_layer_idx` counts from 0.

use super::{Dialect, layer_mask};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{Layout, LayerSpec, Recurrent};

pub(super) static DIALECT: Dialect = Dialect {
    name: "ssm_cfg",
    fields: &["ssm_cfg", "attn_layer_idx"],
    families: "state-spaces/mamba, mamba2",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    if !config.has_key("ssm_cfg") && !config.has_key("attn_layer_idx") {
        return Ok(None);
    }
    let attention = layer_mask(config, "attn_layer_idx", num_layers, 0)?.unwrap_or_else(|| vec![false; num_layers]);
    let recurrent = sizes(config)?;
    Ok(Some(Layout::from_fn(num_layers, |index| {
        if attention[index] {
            LayerSpec::full().decided_by(config.path_of("attn_layer_idx"))
        } else {
            LayerSpec::recurrent(recurrent.clone()).decided_by(config.path_of("ssm_cfg"))
        }
    })))
}

fn sizes(config: &Config) -> Result<Recurrent, AuditError> {
    let get = |name: &str| Ok::<_, AuditError>(config.size(&format!("ssm_cfg.{name}"))?.or(config.size(name)?));
    let is_mamba2 = match config.text("ssm_cfg.layer")? {
        None | Some("Mamba1") => false,
        Some("Mamba2") => true,
        Some(other) => {
            let found = format!("the text \"{}\"", other.escape_debug());
            return Err(AuditError::field(config.path_of("ssm_cfg.layer"), found, "Mamba1 or Mamba2"));
        }
    };
    let Some(width) = config.width()? else { return Ok(Recurrent::OneOf(if is_mamba2 { &["mamba2"] } else { &["mamba1"] })) };
    let inner = match get("expand")? {
        Some(expand) => expand.saturating_mul(width),
        None => 2 * width,
    };
    let conv = get("d_conv")?.unwrap_or(4);
    if !is_mamba2 {
        let rank = get("dt_rank")?.unwrap_or(width.div_ceil(16));
        let state = get("d_state")?.unwrap_or(16);
        return Ok(Recurrent::Known("mamba1", vec![("inner", inner), ("state", state), ("conv", conv), ("rank", rank)]));
    }
    let head = get("headdim")?.unwrap_or(64);
    let heads = get("nheads")?.unwrap_or((inner / head).max(1));
    let (state, groups) = (get("d_state")?.unwrap_or(128), get("ngroups")?.unwrap_or(1));
    let numbers = vec![("heads", heads), ("head", head), ("state", state), ("groups", groups), ("conv", conv)];
    Ok(Recurrent::Known("mamba2", numbers))
}
