//! Latent attention as checkpoints store it, and the experts that come with it.

use rung_engine::{Role, Scalar};
use rung_theory::stack::Layer;

use super::loader::rows;
use super::{FamilyError, Loader};
use crate::mixer::mla::{LatentConfig, LatentParts};
use crate::mixer::{Builtin, MixerConfig as _};
use crate::model::GroupLimit;
use crate::parts::{Linear, NormGain};
use crate::position::Rotation;

/// What a family's latent attention has besides its sizes.
pub struct LatentOptions {
    /// Biases on the ways down and on the output.
    pub bias: bool,
    /// How shared keys and their queries turn.
    pub rotation: Option<Rotation>,
    /// Whether the two channels of a pair are stored side by side.
    pub pairs_side_by_side: bool,
    /// Beside the root of the key width, a factor on scores.
    pub factor: f64,
}

/// The sizes of a layer of the plan, if it is latent attention.
///
/// # Errors
/// They do not fit each other.
pub fn sizes_of(layer: &Layer) -> Result<Option<LatentConfig>, FamilyError> {
    match &layer.mixers[..] {
        [mixer] if mixer.name() == LatentConfig::NAME => Ok(Some(LatentConfig::resolve(mixer)?)),
        _ => Ok(None),
    }
}

/// Reads `q_proj` or `q_a_proj`, `q_a_layernorm` and `q_b_proj`; `kv_a_proj_with_mqa`, `kv_a_layernorm`, `kv_b_proj` and `o_proj`.
///
/// # Errors
/// A tensor is missing or of another shape.
pub fn attention<S: Scalar>(
    loader: &mut Loader<'_, S>,
    sizes: LatentConfig,
    width: usize,
    options: LatentOptions,
) -> Result<Builtin, FamilyError> {
    let LatentConfig { heads, head, latent, rope, value, rank } = sizes;
    let LatentOptions { bias, rotation, pairs_side_by_side, factor } = options;
    let turned = if pairs_side_by_side { rope } else { 0 };
    let gain = |loader: &mut Loader<'_, S>, name: &str, width: usize| {
        Ok::<_, FamilyError>(NormGain { weight: loader.tensor(name, &[width])? })
    };
    let (down, name, inputs) = if rank == 0 {
        (None, "q_proj", width)
    } else {
        let down = loader.linear("q_a_proj", width, rank, bias)?;
        (Some((down, gain(loader, "q_a_layernorm.weight", rank)?)), "q_b_proj", rank)
    };
    let query = split_rotary_pairs(loader.role(Role::Query), name, [inputs, heads, head + rope], turned, false)?;
    let compress = split_rotary_pairs(loader, "kv_a_proj_with_mqa", [width, 1, latent + rope], turned, bias)?;
    let parts = LatentParts {
        down,
        query,
        compress,
        norm: gain(loader, "kv_a_layernorm.weight", latent)?,
        expand: loader.tensor("kv_b_proj.weight", &[heads * (head + value), latent])?,
        output: loader.role(Role::Output).linear("o_proj", heads * value, width, bias)?,
        rotation,
        factor,
    };
    Ok(Builtin::Latent(sizes.assemble(parts)))
}

/// A projection to heads whose last channels are pairs side by side; here the first half of them turns with the second.
fn split_rotary_pairs<S: Scalar>(
    loader: &mut Loader<'_, S>,
    name: &str,
    [inputs, heads, head]: [usize; 3],
    turned: usize,
    bias: bool,
) -> Result<Linear, FamilyError> {
    if turned == 0 {
        return loader.linear(name, inputs, heads * head, bias);
    }
    let source = |row: usize| match (row % head).checked_sub(head - turned) {
        Some(channel) => row - channel + 2 * (channel % (turned / 2)) + channel / (turned / 2),
        None => row,
    };
    let wanted = || (0..heads * head).map(source);
    let weight = loader.values(&format!("{name}.weight"), &[heads * head, inputs])?;
    let linear = loader.add_linear(name, inputs, rows(&weight, inputs, wanted()));
    if !bias {
        return Ok(linear);
    }
    let name = format!("{name}.bias");
    let bias = loader.values(&name, &[heads * head])?;
    Ok(Linear { bias: Some(loader.add(&name, &[heads * head], rows(&bias, 1, wanted()))), ..linear })
}

/// Which groups of experts are eligible: a number of groups and of the chosen among them, under two names.
///
/// # Errors
/// Groups cannot be shared out evenly, or those chosen have too few experts.
pub fn group_limit<S: Scalar>(
    loader: &Loader<'_, S>,
    names: [&str; 2],
    [count, chosen]: [usize; 2],
    best: usize,
) -> Result<Option<GroupLimit>, FamilyError> {
    let fields = loader.fields;
    let groups = fields.size(names[0])?.unwrap_or(1);
    let limit = GroupLimit { groups, chosen: fields.size(names[1])?.unwrap_or(groups), best };
    if !count.is_multiple_of(groups) {
        return Err(fields.wrong(names[0], groups.to_string(), format!("a divisor of {count} experts")));
    }
    if limit.chosen > groups || limit.chosen * (count / groups) < chosen {
        let expected = format!("up to {groups} groups, with at least {chosen} experts");
        return Err(fields.wrong(names[1], limit.chosen.to_string(), expected));
    }
    Ok((limit.chosen < groups).then_some(limit))
}
