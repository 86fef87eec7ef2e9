//! Edits of sizes: `heads=16`, `kv-heads=4`, `head-dim=64` change every layer with grouped attention.
//!
//! Recurrences and latent attention have sizes of other kinds and stay as they are.

use rung_theory::spec::SpecValue;
use rung_theory::stack::{Defaults, Layer, Mixer};

use crate::{Audit, AuditError};

/// The options of a mixer that an edit sets; nothing if the key is none of sizes.
pub(crate) fn options_of(key: &str) -> Option<&'static [&'static str]> {
    match key {
        "heads" => Some(&["heads"]),
        "kv-heads" => Some(&["kv"]),
        "head-dim" => Some(&["head", "key", "value"]),
        _ => None,
    }
}

/// Sets the options in every layer with grouped attention; says how many mixers changed.
pub(crate) fn resize(audit: &mut Audit, options: &[&str], number: u64) -> Result<usize, AuditError> {
    let width = Some(audit.width.unwrap_or(1));
    let mut changed = 0;
    let full = audit.full_template.iter_mut();
    for part in audit.layers.iter_mut().flat_map(|layer| layer.plan_layers.iter_mut()).chain(full) {
        let mut mixers: Vec<Mixer> = part.mixers.iter().cloned().collect();
        for mixer in mixers.iter_mut().filter(|mixer| mixer.number("kv").is_some()) {
            *mixer = set(mixer, options, number, width)?;
            changed += 1;
        }
        *part = Layer { shares_cache: part.shares_cache, ..Layer::parallel(mixers) };
    }
    Ok(changed)
}

fn set(mixer: &Mixer, options: &[&str], number: u64, width: Option<u64>) -> Result<Mixer, AuditError> {
    let mut spec = mixer.spec();
    for (name, value) in &mut spec.options {
        if options.contains(&name.as_str()) {
            *value = SpecValue::Number(number);
        }
    }
    let defaults = Defaults { model_width: width, ..Defaults::default() };
    Mixer::resolve(&spec, &defaults)
        .map_err(|error| AuditError::Request { text: format!("{}={number}", options[0]), why: error.to_string() })
}
