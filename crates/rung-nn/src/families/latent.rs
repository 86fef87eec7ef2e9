//! Latent attention (MLA) of checkpoints, and the limit on groups of experts that is used with it.

use rung_engine::{Parameter, Role, Scalar};
use rung_theory::stack::Layer;

use super::loader::rows;
use super::{FamilyError, Loader};
use crate::mixer::mla::{LatentConfig, LatentParts};
use crate::mixer::{Builtin, MixerConfig as _};
use crate::model::GroupLimit;
use crate::parts::{Linear, NormGain};
use crate::position::Rotation;

/// The options of a family's latent attention.
pub struct LatentOptions {
    /// Biases on the down projections and on the output.
    pub bias: bool,
    /// Rotary positions of the shared key and of the queries for it.
    pub rotation: Option<Rotation>,
    /// Whether the two channels of each rotary pair are interleaved.
    pub interleaved_pairs: bool,
    /// A factor on scores, in addition to one over the square root of the key width.
    pub factor: f64,
}

/// The sizes of a layer of the plan, if it is latent attention.
///
/// # Errors
/// The sizes are inconsistent.
pub fn sizes_of(layer: &Layer) -> Result<Option<LatentConfig>, FamilyError> {
    match &layer.mixers[..] {
        [mixer] if mixer.name() == LatentConfig::NAME => Ok(Some(LatentConfig::resolve(mixer)?)),
        _ => Ok(None),
    }
}

/// Reads `q_proj` or `q_a_proj`, `q_a_layernorm` and `q_b_proj`; `kv_a_proj_with_mqa`, `kv_a_layernorm`, `kv_b_proj` and `o_proj`. A GGUF file may
/// have `k_b_proj`, transposed, and `v_b_proj` instead of `kv_b_proj`.
///
/// # Errors
/// A tensor is missing or has another shape.
pub fn attention<S: Scalar>(
    loader: &mut Loader<'_, S>,
    sizes: LatentConfig,
    width: usize,
    options: LatentOptions,
) -> Result<Builtin, FamilyError> {
    let LatentConfig { heads, nope_dim: head, latent_dim: latent, rope_dim: rope, value_dim: value, query_rank: rank } =
        sizes;
    let LatentOptions { bias, rotation, interleaved_pairs, factor } = options;
    let interleaved = if interleaved_pairs { rope } else { 0 };
    let gain = |loader: &mut Loader<'_, S>, name: &str, width: usize| {
        Ok::<_, FamilyError>(NormGain { weight: loader.tensor(name, &[width])? })
    };
    let (down, name, inputs) = if rank == 0 {
        (None, "q_proj", width)
    } else {
        let down = loader.linear("q_a_proj", width, rank, bias)?;
        (Some((down, gain(loader, "q_a_layernorm.weight", rank)?)), "q_b_proj", rank)
    };
    let query =
        deinterleave_rotary_pairs(loader.role(Role::Query), name, [inputs, heads, head + rope], interleaved, false)?;
    let kv_down =
        deinterleave_rotary_pairs(loader, "kv_a_proj_with_mqa", [width, 1, latent + rope], interleaved, bias)?;
    let parts = LatentParts {
        query_down: down,
        query,
        kv_down,
        norm: gain(loader, "kv_a_layernorm.weight", latent)?,
        kv_up: kv_up_weight(loader, sizes)?,
        output: loader.role(Role::Output).linear("o_proj", heads * value, width, bias)?,
        rotation,
        factor,
    };
    Ok(Builtin::Latent(sizes.assemble(parts)))
}

/// The projection from a latent to every head's key and value.
fn kv_up_weight<S: Scalar>(loader: &mut Loader<'_, S>, sizes: LatentConfig) -> Result<Parameter, FamilyError> {
    let LatentConfig { heads, nope_dim: head, latent_dim: latent, value_dim: value, .. } = sizes;
    let (name, shape) = ("kv_b_proj.weight", [heads * (head + value), latent]);
    if !loader.is_gguf() || loader.has(name) {
        return loader.tensor(name, &shape);
    }
    let keys = loader.values("k_b_proj.weight", &[heads, latent, head])?;
    let values = loader.values("v_b_proj.weight", &[heads, value, latent])?;
    let mut weight = Vec::with_capacity(keys.len() + values.len());
    for number in 0..heads {
        let keys = &keys[number * latent * head..(number + 1) * latent * head];
        weight.extend((0..head).flat_map(|channel| (0..latent).map(move |input| keys[input * head + channel])));
        weight.extend_from_slice(&values[number * value * latent..(number + 1) * value * latent]);
    }
    Ok(loader.add(name, &shape, weight))
}

/// A projection to heads whose last `interleaved` channels are interleaved rotary pairs. They are reordered so that channel i is paired with
/// channel i + interleaved/2.
fn deinterleave_rotary_pairs<S: Scalar>(
    loader: &mut Loader<'_, S>,
    name: &str,
    [inputs, heads, head]: [usize; 3],
    interleaved: usize,
    bias: bool,
) -> Result<Linear, FamilyError> {
    if interleaved == 0 {
        return loader.linear(name, inputs, heads * head, bias);
    }
    let source = |row: usize| match (row % head).checked_sub(head - interleaved) {
        Some(channel) => row - channel + 2 * (channel % (interleaved / 2)) + channel / (interleaved / 2),
        None => row,
    };
    let selected = || (0..heads * head).map(source);
    let weight = loader.values(&format!("{name}.weight"), &[heads * head, inputs])?;
    let linear = loader.add_linear(name, inputs, rows(&weight, inputs, selected()));
    if !bias {
        return Ok(linear);
    }
    let name = format!("{name}.bias");
    let bias = loader.values(&name, &[heads * head])?;
    Ok(Linear { bias: Some(loader.add(&name, &[heads * head], rows(&bias, 1, selected()))), ..linear })
}

/// The limit on groups of experts, from two fields: the number of groups and how many of them a token may use. `best` is how many experts rank
/// a group.
///
/// # Errors
/// The groups are not of equal size, or have too few experts.
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
        return Err(fields.error(names[0], groups.to_string(), format!("a divisor of {count} experts")));
    }
    if limit.chosen > groups || limit.chosen * (count / groups) < chosen {
        let expected = format!("up to {groups} groups, with at least {chosen} experts");
        return Err(fields.error(names[1], limit.chosen.to_string(), expected));
    }
    Ok((limit.chosen < groups).then_some(limit))
}
