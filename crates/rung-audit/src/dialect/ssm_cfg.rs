//! `ssm_cfg`, `attn_layer_idx`, `attn_cfg`: checkpoints of the Mamba authors.
//!
//! # Families
//! state-spaces/mamba and mamba2.
//!
//! # Pitfalls
//! `ssm_cfg` may be empty (then it is Mamba-1), and sizes that are not given are the package's defaults: 16 or 128 state
//! elements per channel, convolution kernels of 4, expansion 2, heads of width 64. `attn_layer_idx` counts from 0.

use super::{Dialect, layer_mask};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{LayerSpec, Layout, RecurrenceSpec};

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
    let is_attention = layer_mask(config, "attn_layer_idx", num_layers, 0)?.unwrap_or_else(|| vec![false; num_layers]);
    let recurrent = recurrence(config)?;
    Ok(Some(Layout::from_fn(num_layers, |index| {
        if is_attention[index] {
            LayerSpec::full().decided_by(config.path_of("attn_layer_idx"))
        } else {
            LayerSpec::recurrent(recurrent.clone()).decided_by(config.path_of("ssm_cfg"))
        }
    })))
}

/// The recurrence of all layers without attention, with the package's defaults.
fn recurrence(config: &Config) -> Result<RecurrenceSpec, AuditError> {
    let get = |name: &str| Ok::<_, AuditError>(config.size(&format!("ssm_cfg.{name}"))?.or(config.size(name)?));
    let is_mamba2 = match config.string("ssm_cfg.layer")? {
        None | Some("Mamba1") => false,
        Some("Mamba2") => true,
        Some(other) => {
            let found = format!("the string \"{}\"", other.escape_debug());
            return Err(AuditError::field(config.path_of("ssm_cfg.layer"), found, "Mamba1 or Mamba2"));
        }
    };
    let Some(width) = config.width()? else {
        return Ok(RecurrenceSpec::SizesFromConfig(if is_mamba2 { &["mamba2"] } else { &["mamba1"] }));
    };
    let inner_dim = match get("expand")? {
        Some(expand) => expand.saturating_mul(width),
        None => 2 * width,
    };
    let conv_kernel = get("d_conv")?.unwrap_or(4);
    if !is_mamba2 {
        let dt_rank = get("dt_rank")?.unwrap_or(width.div_ceil(16));
        let state_size = get("d_state")?.unwrap_or(16);
        return Ok(RecurrenceSpec::WithSizes(
            "mamba1",
            vec![("inner", inner_dim), ("state", state_size), ("conv", conv_kernel), ("rank", dt_rank)],
        ));
    }
    let head_dim = get("headdim")?.unwrap_or(64);
    let heads = get("nheads")?.unwrap_or((inner_dim / head_dim).max(1));
    let (state_size, groups) = (get("d_state")?.unwrap_or(128), get("ngroups")?.unwrap_or(1));
    let sizes =
        vec![("heads", heads), ("head", head_dim), ("state", state_size), ("groups", groups), ("conv", conv_kernel)];
    Ok(RecurrenceSpec::WithSizes("mamba2", sizes))
}
