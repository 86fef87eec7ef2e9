//! Rotary positions (`RoPE`) from a config.
//!
//! Older configs have `rope_theta` and `rope_scaling`; those of transformers 5 have both under `rope_parameters`, some separately for each kind of
//! layer. The variants change the frequencies `theta^(-2 i / width)`:
//!
//! - `linear`: all frequencies are divided by a factor;
//! - `llama3`: low frequencies are divided by a factor, high ones are not, and those between are interpolated (Llama 3.1);
//! - `yarn`: the same, by the number of rotations in the original context; cosines and sines are scaled too (2309.00071).

use std::f64::consts::TAU;

use super::{FamilyError, Fields};
use crate::position::Rotation;

/// The rotation of heads of a width, for a kind of layer (`full_attention`, `sliding_attention`). `base` is the default of `rope_theta`.
///
/// # Errors
/// A field is missing or malformed, or the variant is not known.
pub fn rotation(fields: &Fields, head_dim: usize, layer_type: &str, base: f64) -> Result<Rotation, FamilyError> {
    let parameters = fields.object("rope_parameters")?;
    let layer_parameters = match &parameters {
        Some(parameters) => parameters.object(layer_type)?,
        None => None,
    };
    let rope = layer_parameters.or(parameters).or(fields.object("rope_scaling")?);
    let theta = match rope.as_ref().map(|rope| rope.positive("rope_theta")).transpose()?.flatten() {
        Some(theta) => theta,
        None => fields.positive("rope_theta")?.unwrap_or(base),
    };
    scaled_rotation(fields, rope.as_ref(), head_dim, theta)
}

/// As [`rotation`], but half of the channels rotate unless the config gives `partial_rotary_factor`.
///
/// # Errors
/// As [`rotation`].
pub fn rotation_of_half_by_default(
    fields: &Fields,
    head_dim: usize,
    layer_type: &str,
    base: f64,
) -> Result<Rotation, FamilyError> {
    let in_rope = fields.object("rope_parameters")?.is_some_and(|rope| rope.has("partial_rotary_factor"));
    let is_given = in_rope || fields.has("partial_rotary_factor");
    rotation(fields, if is_given { head_dim } else { head_dim / 2 }, layer_type, base)
}

/// The rotation with the base `theta` and the scaling that `rope` describes.
///
/// # Errors
/// A field is missing or malformed, or the variant is not known.
pub fn scaled_rotation(
    fields: &Fields,
    rope: Option<&Fields>,
    head_dim: usize,
    theta: f64,
) -> Result<Rotation, FamilyError> {
    let partial = match rope.map(|rope| rope.positive("partial_rotary_factor")).transpose()?.flatten() {
        Some(factor) => factor,
        None => fields.positive("partial_rotary_factor")?.unwrap_or(1.0),
    };
    let width = (head_dim as f64 * partial) as usize;
    if width == 0 || width > head_dim || !width.is_multiple_of(2) {
        let expected = format!("an even number of channels, up to {head_dim}");
        return Err(fields.error("partial_rotary_factor", format!("{width} rotary channels"), expected));
    }
    let frequencies: Vec<f64> = (0..width / 2).map(|index| theta.powf(-2.0 * index as f64 / width as f64)).collect();
    let Some(rope) = rope else { return Ok(Rotation::from_frequencies(frequencies, 1.0)) };
    let kind = match rope.text("rope_type")? {
        Some(kind) => kind,
        None => rope.text("type")?.unwrap_or("default"),
    };
    let number = |name: &str| rope.positive(name).and_then(|found| rope.require(name, found));
    match kind {
        "default" | "none" => Ok(Rotation::from_frequencies(frequencies, 1.0)),
        "linear" => {
            let factor = number("factor")?;
            Ok(Rotation::from_frequencies(frequencies.iter().map(|frequency| frequency / factor).collect(), 1.0))
        }
        "llama3" => {
            let (factor, context) = (number("factor")?, number("original_max_position_embeddings")?);
            let (low, high) = (number("low_freq_factor")?, number("high_freq_factor")?);
            let interpolate = |frequency: &f64| {
                let rotations = context * frequency / TAU;
                let unscaled_fraction = ((rotations - low) / (high - low)).clamp(0.0, 1.0);
                unscaled_fraction * frequency + (1.0 - unscaled_fraction) * frequency / factor
            };
            Ok(Rotation::from_frequencies(frequencies.iter().map(interpolate).collect(), 1.0))
        }
        "yarn" => yarn(fields, rope, &frequencies, theta),
        other => Err(rope.error("rope_type", format!("`{other}`"), "default, linear, llama3 or yarn")),
    }
}

/// An additional factor on attention scores in `DeepSeek`'s models: the square of YaRN's scale for `mscale_all_dim`, or 1.
///
/// # Errors
/// A field is malformed.
pub fn score_factor(fields: &Fields) -> Result<f64, FamilyError> {
    let Some(rope) = fields.object("rope_parameters")?.or(fields.object("rope_scaling")?) else { return Ok(1.0) };
    let kind = match rope.text("rope_type")? {
        Some(kind) => kind,
        None => rope.text("type")?.unwrap_or("default"),
    };
    match (kind, rope.number("mscale_all_dim")?, rope.positive("factor")?) {
        ("default", ..) => Ok(1.0),
        (_, Some(scale), Some(factor)) if scale != 0.0 => Ok(yarn_scale(factor, scale).powi(2)),
        _ => Ok(1.0),
    }
}

/// YaRN's scale of queries and keys.
fn yarn_scale(factor: f64, scale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 }
}

fn yarn(fields: &Fields, rope: &Fields, frequencies: &[f64], theta: f64) -> Result<Rotation, FamilyError> {
    let context = match rope.positive("original_max_position_embeddings")? {
        Some(context) => context,
        None => fields
            .positive("max_position_embeddings")
            .and_then(|found| rope.require("original_max_position_embeddings", found))?,
    };
    let factor = if let Some(factor) = rope.positive("factor")? {
        factor
    } else {
        let max_positions = fields.positive("max_position_embeddings")?;
        fields.require("max_position_embeddings", max_positions)? / context
    };
    // Zero means that the field is not set.
    let nonzero = |name: &str| Ok::<_, FamilyError>(rope.number(name)?.filter(|number| *number != 0.0));
    let scale = match (rope.positive("attention_factor")?, nonzero("mscale")?, nonzero("mscale_all_dim")?) {
        (Some(scale), ..) => scale,
        (None, Some(mscale), Some(mscale_all)) => yarn_scale(factor, mscale) / yarn_scale(factor, mscale_all),
        _ => yarn_scale(factor, 1.0),
    };
    let width = 2.0 * frequencies.len() as f64;
    // The index of the channel pair that rotates `rotations` times within the original context.
    let pair_index = |rotations: f64| width * (context / (rotations * TAU)).ln() / (2.0 * theta.ln());
    let fast = nonzero("beta_fast")?.unwrap_or(32.0);
    let slow = nonzero("beta_slow")?.unwrap_or(1.0);
    let (mut low, mut high) = (pair_index(fast), pair_index(slow));
    if rope.flag("truncate", true)? {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(width - 1.0));
    if low.to_bits() == high.to_bits() {
        high += 0.001;
    }
    let interpolate = |(index, frequency): (usize, &f64)| {
        let divided_fraction = ((index as f64 - low) / (high - low)).clamp(0.0, 1.0);
        frequency / factor * divided_fraction + frequency * (1.0 - divided_fraction)
    };
    Ok(Rotation::from_frequencies(frequencies.iter().enumerate().map(interpolate).collect(), scale))
}
