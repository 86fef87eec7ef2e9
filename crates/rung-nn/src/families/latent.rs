//! Latent attention (MLA) of checkpoints, and the limit on groups of experts that is used with it.

use rung_engine::{Parameter, Role, Scalar};
use rung_theory::stack::Layer;

use super::loader::rows;
use super::{FamilyError, Loader};
use crate::mixer::mla::{LatentConfig, LatentWeights};
use crate::mixer::{Builtin, MixerConfig as _};
use crate::model::GroupLimit;
use crate::position::Rotation;
use crate::submodules::{Linear, NormGain};

/// The options of a family's latent attention.
pub struct LatentOptions {
    /// Biases on the down projections and on the output.
    pub bias: bool,
    /// Rotary positions of the shared key and of the queries for it.
    pub rotation: Option<Rotation>,
    /// Whether the two channels of each rotary pair are interleaved.
    pub interleaved_pairs: bool,
    /// A factor on scores, on top of one over the square root of the key width.
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
pub fn read_attention<S: Scalar>(
    loader: &mut Loader<'_, S>,
    sizes: LatentConfig,
    width: usize,
    options: LatentOptions,
) -> Result<Builtin, FamilyError> {
    let LatentConfig { heads, nope_dim, latent_dim, rope_dim, value_dim, query_rank } = sizes;
    let LatentOptions { bias, rotation, interleaved_pairs, factor } = options;
    let interleaved = if interleaved_pairs { rope_dim } else { 0 };
    let gain = |loader: &mut Loader<'_, S>, name: &str, width: usize| {
        Ok::<_, FamilyError>(NormGain { weight: loader.tensor(name, &[width])? })
    };
    let (down, name, inputs) = if query_rank == 0 {
        (None, "q_proj", width)
    } else {
        let down = loader.linear("q_a_proj", width, query_rank, bias)?;
        (Some((down, gain(loader, "q_a_layernorm.weight", query_rank)?)), "q_b_proj", query_rank)
    };
    let query = deinterleave_rotary_pairs(
        loader.with_role(Role::Query),
        name,
        [inputs, heads, nope_dim + rope_dim],
        interleaved,
        false,
    )?;
    let kv_down =
        deinterleave_rotary_pairs(loader, "kv_a_proj_with_mqa", [width, 1, latent_dim + rope_dim], interleaved, bias)?;
    let weights = LatentWeights {
        query_down: down,
        query,
        kv_down,
        norm: gain(loader, "kv_a_layernorm.weight", latent_dim)?,
        kv_up: read_kv_up_weight(loader, sizes)?,
        output: loader.with_role(Role::Output).linear("o_proj", heads * value_dim, width, bias)?,
        rotation,
        factor,
    };
    Ok(Builtin::Latent(sizes.assemble(weights)))
}

/// The projection from a latent vector to every head's key and value.
fn read_kv_up_weight<S: Scalar>(loader: &mut Loader<'_, S>, sizes: LatentConfig) -> Result<Parameter, FamilyError> {
    let LatentConfig { heads, nope_dim, latent_dim, value_dim, .. } = sizes;
    let (name, shape) = ("kv_b_proj.weight", [heads * (nope_dim + value_dim), latent_dim]);
    if !loader.is_gguf() || loader.has(name) {
        return loader.tensor(name, &shape);
    }
    let keys = loader.values("k_b_proj.weight", &[heads, latent_dim, nope_dim])?;
    let values = loader.values("v_b_proj.weight", &[heads, value_dim, latent_dim])?;
    let mut weight = Vec::with_capacity(keys.len() + values.len());
    for index in 0..heads {
        let keys = &keys[index * latent_dim * nope_dim..(index + 1) * latent_dim * nope_dim];
        weight.extend(
            (0..nope_dim).flat_map(|channel| (0..latent_dim).map(move |input| keys[input * nope_dim + channel])),
        );
        weight.extend_from_slice(&values[index * value_dim * latent_dim..(index + 1) * value_dim * latent_dim]);
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

/// The limit on groups of experts, from two fields: the number of groups and how many of them a token may use. The score of a group is the sum of
/// its `group_score_experts` best experts.
///
/// # Errors
/// The groups are not of equal size, or have too few experts.
pub fn group_limit<S: Scalar>(
    loader: &Loader<'_, S>,
    names: [&str; 2],
    [expert_count, top_k]: [usize; 2],
    group_score_experts: usize,
) -> Result<Option<GroupLimit>, FamilyError> {
    let fields = loader.fields;
    let groups = fields.size(names[0])?.unwrap_or(1);
    let limit = GroupLimit { groups, top_groups: fields.size(names[1])?.unwrap_or(groups), group_score_experts };
    if !expert_count.is_multiple_of(groups) {
        return Err(fields.error(names[0], groups.to_string(), format!("a divisor of {expert_count} experts")));
    }
    if limit.top_groups > groups || limit.top_groups * (expert_count / groups) < top_k {
        let expected = format!("up to {groups} groups, with at least {top_k} experts");
        return Err(fields.error(names[1], limit.top_groups.to_string(), expected));
    }
    Ok((limit.top_groups < groups).then_some(limit))
}
