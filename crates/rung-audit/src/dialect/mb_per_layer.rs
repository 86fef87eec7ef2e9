//! `mb_per_layer`, `full_per_layer`, `local_window`: Samba's three numbers.
//!
//! # Families
//! Microsoft Samba.
//!
//! # Pitfalls
//! Every `mb_per_layer`-th layer, from the first, is Mamba; the others are attention, and local unless they are the
//! last of `full_per_layer`, whose default is a million: by default nothing is full. The Mamba sizes are the package's
//! own defaults where the file does not give them.

use super::{Dialect, period};
use crate::AuditError;
use crate::config::Config;
use crate::geometry::MixerSizes;
use crate::layout::{Layout, LayerSpec, Recurrent};
use crate::recurrent;

pub(super) static DIALECT: Dialect = Dialect {
    name: "mb_per_layer",
    fields: &["mb_per_layer", "full_per_layer", "local_window"],
    families: "Microsoft Samba",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(mamba) = period(config, "mb_per_layer")? else { return Ok(None) };
    let full = config.size("full_per_layer")?.unwrap_or(1_000_000) as usize;
    let windowed = config.has("local_window");
    let sizes = mamba_sizes(config)?;
    Ok(Some(Layout::from_fn(num_layers, |index| {
        let last = index % full == full - 1;
        let (name, spec) = match index % mamba {
            0 => ("mb_per_layer", LayerSpec::recurrent(sizes.clone())),
            _ if windowed && !last => ("local_window", LayerSpec::window()),
            _ => ("full_per_layer", LayerSpec::full()),
        };
        spec.decided_by(config.path_of(name))
    })))
}

fn mamba_sizes(config: &Config) -> Result<Recurrent, AuditError> {
    let sized = recurrent::find(config, &Recurrent::OneOf(&["mamba1"]))?;
    let (MixerSizes::Missing(_), Some(width)) = (&sized, config.width()?) else {
        return Ok(recurrent::known_or_one_of(sized, &["mamba1"]));
    };
    Ok(Recurrent::Known("mamba1", vec![("inner", 2 * width), ("state", 16), ("conv", 4), ("rank", width.div_ceil(16))]))
}
