//! `mb_per_layer`, `full_per_layer`, `local_window`: Samba's three numbers.
//!
//! # Families
//! Microsoft Samba.
//!
//! # Pitfalls
//! Layers 0, n, 2n, .. with n = `mb_per_layer` are Mamba; the others are attention, with a local window except for every
//! `full_per_layer`-th layer. Its default is a million, so by default no layer is full. The Mamba sizes are the package's
//! own defaults where the file does not give them.

use super::{Dialect, period, recurrence_sizes};
use crate::AuditError;
use crate::attention_sizes::MixerSizes;
use crate::config::Config;
use crate::layout::{LayerSpec, Layout, RecurrenceSpec};

pub(super) static DIALECT: Dialect = Dialect {
    name: "mb_per_layer",
    fields: &["mb_per_layer", "full_per_layer", "local_window"],
    families: "Microsoft Samba",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(mamba_period) = period(config, "mb_per_layer")? else { return Ok(None) };
    let full_period = config.size("full_per_layer")?.unwrap_or(1_000_000) as usize;
    let has_window = config.has("local_window");
    let mamba = mamba_sizes(config)?;
    Ok(Some(Layout::from_fn(num_layers, |index| {
        let is_full = index % full_period == full_period - 1;
        let (name, spec) = match index % mamba_period {
            0 => ("mb_per_layer", LayerSpec::recurrent(mamba.clone())),
            _ if has_window && !is_full => ("local_window", LayerSpec::window()),
            _ => ("full_per_layer", LayerSpec::full()),
        };
        spec.decided_by(config.path_of(name))
    })))
}

fn mamba_sizes(config: &Config) -> Result<RecurrenceSpec, AuditError> {
    let sizes = recurrence_sizes::find(config, &RecurrenceSpec::SizesFromConfig(&["mamba1"]))?;
    let (MixerSizes::Missing(_), Some(width)) = (&sizes, config.width()?) else {
        return Ok(recurrence_sizes::known_or_candidates(sizes, &["mamba1"]));
    };
    Ok(RecurrenceSpec::WithSizes(
        "mamba1",
        vec![("inner", 2 * width), ("state", 16), ("conv", 4), ("rank", width.div_ceil(16))],
    ))
}
