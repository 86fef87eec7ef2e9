//! `mb_per_layer`, `full_per_layer`, `local_window`: Samba's three numbers.
//!
//! # Families
//! Microsoft Samba.
//!
//! # Trap
//! Every `mb_per_layer`-th layer, from the first, is Mamba; the others are attention, and local unless they are the
//! last of `full_per_layer`, whose default is a million: by default nothing is full. The Mamba sizes are the package's
//! own defaults where the file does not give them.

use super::{Dialect, each, period};
use crate::AuditError;
use crate::config::Config;
use crate::geometry::Sized;
use crate::layout::{Layout, Reading, Recurrent};
use crate::recurrent;

pub(super) static DIALECT: Dialect = Dialect {
    name: "mb_per_layer",
    fields: &["mb_per_layer", "full_per_layer", "local_window"],
    families: "Microsoft Samba",
    fallback: false,
    read,
};

fn read(config: &Config, depth: usize) -> Result<Option<Layout>, AuditError> {
    let Some(mamba) = period(config, "mb_per_layer")? else { return Ok(None) };
    let full = config.size("full_per_layer")?.unwrap_or(1_000_000) as usize;
    let windowed = config.has("local_window");
    let sizes = mamba_sizes(config)?;
    Ok(Some(each(depth, |index| {
        let last = index % full == full - 1;
        let (name, reading) = match index % mamba {
            0 => ("mb_per_layer", Reading::recurrent(sizes.clone())),
            _ if windowed && !last => ("local_window", Reading::window()),
            _ => ("full_per_layer", Reading::full()),
        };
        reading.by(config.path_of(name))
    })))
}

fn mamba_sizes(config: &Config) -> Result<Recurrent, AuditError> {
    let sized = recurrent::find(config, &Recurrent::OneOf(&["mamba1"]))?;
    let (Sized::Missing(_), Some(width)) = (&sized, config.width()?) else {
        return Ok(recurrent::known_or(sized, &["mamba1"]));
    };
    Ok(Recurrent::Known("mamba1", vec![("inner", 2 * width), ("state", 16), ("conv", 4), ("rank", width.div_ceil(16))]))
}
