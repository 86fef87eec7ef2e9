//! What-if edits: the audit of a model with some of its layers changed.
//!
//! ```text
//! 7=full           layer 7 (counted from 0, as in the config) becomes full
//! 3-5=window       layers 3 to 5 get a window
//! every=4          every 4th layer with a mixer is full (the last of each group), the others are not
//! ratio=5:1        groups of 5 layers that are not full and then 1 that is
//! first=full       the first layer with a mixer; also last, all
//! kv-heads=4       sizes of layers with grouped attention; also heads, head-dim
//! ```
//!
//! Several edits are separated by commas and applied from left to right. Kinds are `full`, `recurrent` (or `linear`),
//! `window` and `none`. A changed layer gets the sizes of the model's layers of that kind; where the model has none, the
//! sizes are derived from its full layers and listed as an assumption.

use rung_theory::stack::mixer::DEFAULT_RECURRENCE;
use rung_theory::stack::{Layer, Mixer, MixerReach};

use crate::audit::AuditOptions;
use crate::layout::AttentionScope;
use crate::{Audit, AuditError, AuditLayer, attention_sizes, resize};

/// The kind of layer that an edit asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayerKind {
    Full,
    Recurrent,
    Window,
    None,
}

impl LayerKind {
    fn parse(word: &str, edit: &str) -> Result<Self, AuditError> {
        match word {
            "full" => Ok(Self::Full),
            "recurrent" | "linear" => Ok(Self::Recurrent),
            "window" => Ok(Self::Window),
            "none" => Ok(Self::None),
            _ => Err(AuditError::invalid_argument(edit, "expected full, recurrent, window or none after `=`")),
        }
    }

    fn matches(self, layer: &AuditLayer) -> bool {
        match self {
            Self::Full => layer.is_full(),
            Self::Recurrent => layer.attention == Some(AttentionScope::NoAttention) && layer.recurrent.is_some(),
            Self::Window => layer.attention == Some(AttentionScope::Window),
            Self::None => !layer.has_mixer(),
        }
    }
}

/// The audit of the edited stack.
///
/// # Errors
/// The edit is not understood, names a layer that is not there, or the model's own layers are not all known.
pub fn apply(audit: &Audit, edits: &str, options: &AuditOptions) -> Result<Audit, AuditError> {
    if audit.capacity.is_none() || !audit.unknown_reasons.is_empty() {
        return Err(AuditError::invalid_argument(
            edits,
            "the model's own layers are not all known, so nothing can be changed in them",
        ));
    }
    let mut edited = audit.clone();
    for edit in edits.split(',').map(str::trim) {
        if let Some((key, value)) = edit.split_once('=')
            && let Some(options) = resize::mixer_options(key.trim())
        {
            let number = value
                .trim()
                .parse()
                .map_err(|_| AuditError::invalid_argument(edit, "expected a whole number after `=`"))?;
            if resize::resize(&mut edited, options, number)? == 0 {
                return Err(AuditError::invalid_argument(edit, "the model has no layer with grouped attention"));
            }
            continue;
        }
        for (index, kind) in layers_to_change(&edited, edit)? {
            if !kind.matches(&edited.layers[index]) {
                let layer = layer_template(&mut edited, kind, edit)?;
                let decided_by = format!("what-if {edit}");
                let feed_forward = edited.layers[index].feed_forward;
                edited.layers[index] = AuditLayer { feed_forward, decided_by, ..layer };
            }
        }
    }
    edited.model = format!("{} with {edits}", audit.model);
    edited.compute_costs_and_bounds(options)?;
    Ok(edited)
}

/// The layers that one edit changes, each with its new kind.
fn layers_to_change(audit: &Audit, edit: &str) -> Result<Vec<(usize, LayerKind)>, AuditError> {
    const SYNTAX: &str = "expected an edit such as `7=full`, `3-5=window`, `every=4`, `ratio=5:1` or `first=full`";
    let (key, value) = edit.split_once('=').ok_or_else(|| AuditError::invalid_argument(edit, SYNTAX))?;
    let (key, value) = (key.trim(), value.trim());
    let mixing_indices: Vec<usize> = (0..audit.layers.len()).filter(|&index| audit.layers[index].has_mixer()).collect();
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let count = |text: &str| number(text).filter(|&count| count > 0 && count <= audit.layers.len());
    let periodic = |others: usize, full: usize| {
        let other_kind = other_layer_kind(audit);
        let kind = |position: usize| if position % (others + full) < others { other_kind } else { LayerKind::Full };
        mixing_indices.iter().enumerate().map(|(position, &index)| (index, kind(position))).collect()
    };
    match key {
        "every" => {
            let period = count(value).ok_or_else(|| {
                AuditError::invalid_argument(edit, format!("expected 1 to {} after `every=`", audit.layers.len()))
            })?;
            Ok(periodic(period - 1, 1))
        }
        "ratio" => {
            let (others, full) = value
                .split_once(':')
                .and_then(|(others, full)| Some((number(others)?, count(full)?)))
                .ok_or_else(|| {
                    AuditError::invalid_argument(
                        edit,
                        "expected two sizes such as `5:1`, layers that are not full to layers that are",
                    )
                })?;
            if others > audit.layers.len() {
                return Err(AuditError::invalid_argument(edit, format!("the model has {} layers", audit.layers.len())));
            }
            Ok(periodic(others, full))
        }
        "first" | "last" => {
            let kind = LayerKind::parse(value, edit)?;
            let index = if key == "first" { mixing_indices.first() } else { mixing_indices.last() };
            Ok(index.map(|&index| (index, kind)).into_iter().collect())
        }
        "all" => {
            let kind = LayerKind::parse(value, edit)?;
            Ok(mixing_indices.into_iter().map(|index| (index, kind)).collect())
        }
        _ => {
            let (from, to) = key.split_once('-').unwrap_or((key, key));
            let (Some(from), Some(to)) = (number(from), number(to)) else {
                return Err(AuditError::invalid_argument(edit, SYNTAX));
            };
            if from > to || to >= audit.layers.len() {
                return Err(AuditError::invalid_argument(
                    edit,
                    format!("the model has layers 0 to {}", audit.layers.len() - 1),
                ));
            }
            let kind = LayerKind::parse(value, edit)?;
            Ok((from..=to).map(|index| (index, kind)).collect())
        }
    }
}

/// The kind of the model's layers that are not full.
pub(crate) fn other_layer_kind(audit: &Audit) -> LayerKind {
    let has = |kind: LayerKind| audit.layers.iter().any(|layer| kind.matches(layer));
    match (has(LayerKind::Recurrent), has(LayerKind::Window)) {
        (false, true) => LayerKind::Window,
        _ => LayerKind::Recurrent,
    }
}

/// A layer of the given kind with the sizes of the model's layers of that kind, or with default sizes.
pub(crate) fn layer_template(audit: &mut Audit, kind: LayerKind, edit: &str) -> Result<AuditLayer, AuditError> {
    let is_usable = |layer: &&AuditLayer| kind.matches(layer) && !layer.shares_cache && !layer.shares_parameters;
    if let Some(layer) = audit.layers.iter().find(is_usable) {
        return Ok(layer.clone());
    }
    let (attention, recurrent, plan_layer) = match kind {
        LayerKind::Full => {
            let layer = audit
                .full_template
                .clone()
                .ok_or_else(|| AuditError::invalid_argument(edit, "the sizes of a full layer are not known"))?;
            (AttentionScope::Full, None, layer)
        }
        LayerKind::Recurrent => {
            let existing = audit.layers.iter().find(|layer| layer.recurrent.is_some()).and_then(|layer| {
                let mixers: Vec<Mixer> = layer
                    .plan_layers
                    .iter()
                    .flat_map(|layer| layer.mixers.iter())
                    .filter(|mixer| is_recurrent(mixer))
                    .cloned()
                    .collect();
                (!mixers.is_empty()).then(|| (layer.recurrent, Layer::parallel(mixers)))
            });
            let (name, layer) = match existing {
                Some(name_and_layer) => name_and_layer,
                None => (Some(DEFAULT_RECURRENCE), default_recurrent_layer(audit, edit)?),
            };
            (AttentionScope::NoAttention, name, layer)
        }
        LayerKind::Window => (AttentionScope::Window, None, default_window_layer(audit, edit)?),
        LayerKind::None => (AttentionScope::NoAttention, None, Layer::new(build(audit, "none", &[], 16)?)),
    };
    Ok(AuditLayer {
        attention: Some(attention),
        recurrent,
        feed_forward: crate::FeedForwardKind::Dense,
        decided_by: String::new(),
        shares_cache: false,
        shares_parameters: false,
        plan_layers: vec![plan_layer],
    })
}

fn is_recurrent(mixer: &Mixer) -> bool {
    let facts = mixer.facts();
    !matches!(facts.reach, MixerReach::Full(_)) && facts.window_elements_per_token == 0 && facts.state_size() > 0
}

fn build(audit: &Audit, name: &str, sizes: &[(&'static str, u64)], bits: u64) -> Result<Mixer, AuditError> {
    let width = audit.width.unwrap_or(1);
    let defaults =
        rung_theory::stack::Defaults { heads: 1, head_dim: 1, kv_heads: None, model_width: Some(width), bits: 16 };
    attention_sizes::build_mixer(name, sizes, bits, &defaults)
}

/// Query heads, key/value heads and head width of the model's full layers.
fn full_layer_heads(audit: &Audit, edit: &str) -> Result<(u64, u64, u64), AuditError> {
    let mixer = audit.full_template.as_ref().and_then(|layer| layer.mixers.first().cloned());
    let mixer = mixer.ok_or_else(|| AuditError::invalid_argument(edit, "the sizes of a full layer are not known"))?;
    let heads = mixer.number("heads").unwrap_or(1);
    Ok((heads, mixer.number("kv").unwrap_or(heads), mixer.number("value").or(mixer.number("head")).unwrap_or(1)))
}

fn default_recurrent_layer(audit: &mut Audit, edit: &str) -> Result<Layer, AuditError> {
    let (heads, _, head_dim) = full_layer_heads(audit, edit)?;
    let sizes = [("heads", heads), ("key", head_dim), ("value", head_dim), ("conv", 4)];
    let layer = Layer::new(build(audit, DEFAULT_RECURRENCE, &sizes, audit.state_dtype.bits)?);
    add_assumption(
        audit,
        format!(
            "The model has no recurrent layers of its own: new ones are Gated DeltaNet with {heads} heads of {head_dim}."
        ),
    );
    Ok(layer)
}

fn default_window_layer(audit: &mut Audit, edit: &str) -> Result<Layer, AuditError> {
    let (heads, kv_heads, head_dim) = full_layer_heads(audit, edit)?;
    let sizes = [("heads", heads), ("kv", kv_heads), ("head", head_dim), ("size", 1024)];
    let layer = Layer::new(build(audit, "window", &sizes, 16)?);
    add_assumption(audit, "The model has no window layers of its own: new ones hold 1,024 tokens.".to_owned());
    Ok(layer)
}

fn add_assumption(audit: &mut Audit, assumption: String) {
    if !audit.assumptions.contains(&assumption) {
        audit.assumptions.push(assumption);
    }
}
