//! `global_attn_every_n_layers`: every n-th layer is full, the others have a window.
//!
//! # Families
//! `AFMoE` (Trinity).
//!
//! # Pitfalls
//! The full layer is the last of each group. Newer files spell the same out in `layer_types`.

use super::{Dialect, period};
use crate::AuditError;
use crate::config::Config;
use crate::layout::{LayerSpec, Layout};

pub(super) static DIALECT: Dialect = Dialect {
    name: "global_attn_every_n_layers",
    fields: &["global_attn_every_n_layers"],
    families: "AFMoE (Trinity)",
    fallback: false,
    read,
};

fn read(config: &Config, num_layers: usize) -> Result<Option<Layout>, AuditError> {
    let Some(period) = period(config, "global_attn_every_n_layers")? else { return Ok(None) };
    let field = config.path_of("global_attn_every_n_layers");
    let layer = |index: usize| if (index + 1).is_multiple_of(period) { LayerSpec::full() } else { LayerSpec::window() };
    Ok(Some(Layout::from_fn(num_layers, |index| layer(index).decided_by(&*field))))
}
