//! Rotary positions as configs describe them.
//!
//! Older configs have `rope_theta` and `rope_scaling`; those of transformers 5 have both under `rope_parameters`, some for each
//! kind of layer. The variants change the frequencies `theta^(-2 i / width)`:
//!
//! - `linear`: all divided by a factor;
//! - `llama3`: slow ones divided by a factor, fast ones kept, those between blended (Llama 3.1);
//! - `yarn`: the same by the number of turns in the original context, and cosines and sines are scaled (2309.00071).

use std::f64::consts::TAU;

use super::{FamilyError, Fields};
use crate::position::Rotation;

/// The rotation of heads of a width, for layers of a kind (`full_attention`, `sliding_attention`), with the base that the family has if
/// the config names none.
///
/// # Errors
/// A field is missing or malformed, or the variant is not known.
pub fn rotation(fields: &Fields, head: usize, kind: &str, base: f64) -> Result<Rotation, FamilyError> {
    let parameters = fields.object("rope_parameters")?;
    let own = match &parameters {
        Some(parameters) => parameters.object(kind)?,
        None => None,
    };
    let rope = own.or(parameters).or(fields.object("rope_scaling")?);
    let theta = match rope.as_ref().map(|rope| rope.positive("rope_theta")).transpose()?.flatten() {
        Some(theta) => theta,
        None => fields.positive("rope_theta")?.unwrap_or(base),
    };
    scaled(fields, rope.as_ref(), head, theta)
}

/// The same where half of the channels turn unless the config names another fraction.
///
/// # Errors
/// As [`rotation`].
pub fn half_by_default(fields: &Fields, head: usize, kind: &str, base: f64) -> Result<Rotation, FamilyError> {
    let named = fields.object("rope_parameters")?.is_some_and(|rope| rope.has("partial_rotary_factor"));
    let named = named || fields.has("partial_rotary_factor");
    rotation(fields, if named { head } else { head / 2 }, kind, base)
}

/// The rotation with a base of its own.
///
/// # Errors
/// A field is missing or malformed, or the variant is not known.
pub fn scaled(fields: &Fields, rope: Option<&Fields>, head: usize, theta: f64) -> Result<Rotation, FamilyError> {
    let partial = match rope.map(|rope| rope.positive("partial_rotary_factor")).transpose()?.flatten() {
        Some(factor) => factor,
        None => fields.positive("partial_rotary_factor")?.unwrap_or(1.0),
    };
    let width = (head as f64 * partial) as usize;
    if width == 0 || width > head || !width.is_multiple_of(2) {
        let expected = format!("an even number of channels, up to {head}");
        return Err(fields.wrong("partial_rotary_factor", format!("{width} channels that turn"), expected));
    }
    let plain: Vec<f64> = (0..width / 2).map(|index| theta.powf(-2.0 * index as f64 / width as f64)).collect();
    let Some(rope) = rope else { return Ok(Rotation::given(plain, 1.0)) };
    let kind = match rope.text("rope_type")? {
        Some(kind) => kind,
        None => rope.text("type")?.unwrap_or("default"),
    };
    let number = |name: &str| rope.positive(name).and_then(|found| rope.require(name, found));
    match kind {
        "default" | "none" => Ok(Rotation::given(plain, 1.0)),
        "linear" => {
            let factor = number("factor")?;
            Ok(Rotation::given(plain.iter().map(|frequency| frequency / factor).collect(), 1.0))
        }
        "llama3" => {
            let (factor, context) = (number("factor")?, number("original_max_position_embeddings")?);
            let (low, high) = (number("low_freq_factor")?, number("high_freq_factor")?);
            let blended = |frequency: &f64| {
                let turns = context * frequency / TAU;
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                kept * frequency + (1.0 - kept) * frequency / factor
            };
            Ok(Rotation::given(plain.iter().map(blended).collect(), 1.0))
        }
        "yarn" => yarn(fields, rope, &plain, theta),
        other => Err(rope.wrong("rope_type", format!("`{other}`"), "default, linear, llama3 or yarn")),
    }
}

/// How much `DeepSeek`'s models scale scores besides: the square of YaRN's factor by `mscale_all_dim`, where they have one.
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

/// How much YaRN lengthens queries and keys.
fn yarn_scale(factor: f64, scale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 }
}

fn yarn(fields: &Fields, rope: &Fields, plain: &[f64], theta: f64) -> Result<Rotation, FamilyError> {
    let context = match rope.positive("original_max_position_embeddings")? {
        Some(context) => context,
        None => fields
            .positive("max_position_embeddings")
            .and_then(|found| rope.require("original_max_position_embeddings", found))?,
    };
    let factor = if let Some(factor) = rope.positive("factor")? {
        factor
    } else {
        let most = fields.positive("max_position_embeddings")?;
        fields.require("max_position_embeddings", most)? / context
    };
    // Zero means "not set" in these files.
    let set = |name: &str| Ok::<_, FamilyError>(rope.number(name)?.filter(|number| *number != 0.0));
    let length = match (rope.positive("attention_factor")?, set("mscale")?, set("mscale_all_dim")?) {
        (Some(length), ..) => length,
        (None, Some(scale), Some(all)) => yarn_scale(factor, scale) / yarn_scale(factor, all),
        _ => yarn_scale(factor, 1.0),
    };
    let width = 2.0 * plain.len() as f64;
    let pair_that_turns = |turns: f64| width * (context / (turns * TAU)).ln() / (2.0 * theta.ln());
    let fast = set("beta_fast")?.unwrap_or(32.0);
    let slow = set("beta_slow")?.unwrap_or(1.0);
    let (mut low, mut high) = (pair_that_turns(fast), pair_that_turns(slow));
    if rope.flag("truncate", true)? {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(width - 1.0));
    if low.to_bits() == high.to_bits() {
        high += 0.001;
    }
    let blended = |(index, frequency): (usize, &f64)| {
        let slowed = ((index as f64 - low) / (high - low)).clamp(0.0, 1.0);
        frequency / factor * slowed + frequency * (1.0 - slowed)
    };
    Ok(Rotation::given(plain.iter().enumerate().map(blended).collect(), length))
}
