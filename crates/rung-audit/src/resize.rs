//! What-if edits of sizes: `heads=16`, `kv-heads=4`, `head-dim=64` change every layer with grouped attention.
//!
//! Recurrences and latent attention have other sizes and do not change.

use rung_theory::spec::SpecValue;
use rung_theory::stack::{Defaults, Layer, Mixer};

use crate::{Audit, AuditError};

/// The mixer options that an edit sets; nothing if the key is not a size.
pub(crate) fn mixer_options(key: &str) -> Option<&'static [&'static str]> {
    match key {
        "heads" => Some(&["heads"]),
        "kv-heads" => Some(&["kv"]),
        "head-dim" => Some(&["head", "key", "value"]),
        _ => None,
    }
}

/// Sets the options in every layer with grouped attention and returns how many mixers changed.
pub(crate) fn resize(audit: &mut Audit, options: &[&str], number: u64) -> Result<usize, AuditError> {
    let width = Some(audit.width.unwrap_or(1));
    let mut changed = 0;
    let template = audit.full_template.iter_mut();
    for layer in audit.layers.iter_mut().flat_map(|layer| layer.plan_layers.iter_mut()).chain(template) {
        let mut mixers: Vec<Mixer> = layer.mixers.iter().cloned().collect();
        for mixer in mixers.iter_mut().filter(|mixer| mixer.number("kv").is_some()) {
            *mixer = set_options(mixer, options, number, width)?;
            changed += 1;
        }
        *layer = Layer { shares_cache: layer.shares_cache, ..Layer::parallel(mixers) };
    }
    Ok(changed)
}

fn set_options(mixer: &Mixer, options: &[&str], number: u64, width: Option<u64>) -> Result<Mixer, AuditError> {
    let mut spec = mixer.spec();
    for (name, value) in &mut spec.options {
        if options.contains(&name.as_str()) {
            *value = SpecValue::Number(number);
        }
    }
    let defaults = Defaults { model_width: width, ..Defaults::default() };
    Mixer::resolve(&spec, &defaults).map_err(|error| AuditError::InvalidArgument {
        text: format!("{}={number}", options[0]),
        why: error.to_string(),
    })
}
