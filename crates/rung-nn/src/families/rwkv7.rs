//! RWKV-7: a general delta rule after a token shift, and a feed-forward network with another token shift.
//!
//! # Classes
//! `RWKV7ForCausalLM` of flash-linear-attention; transformers has none.
//!
//! # Unusual options
//! `norm_first` (a norm of the embeddings, applied to their table on loading), `norm_bias`, `fuse_norm` (the kernel adds 1e-6 to the squared length of keys),
//! ranks that are not in the config, tied embeddings. Attention layers (`attn`) and values wider than keys are rejected.
//!
//! # GGUF
//! `rwkv7`, in which the six token-shift weights are one tensor, the norm of a head's output has an epsilon of 64e-5 whatever its width, and
//! layer 0 stores tensors v0, v1 and v2 that are not used.

use rung_audit::json::JsonValue;
use rung_engine::{Parameter, Role, Scalar};

use super::{FamilyError, Loader};
use crate::mixer::Builtin;
use crate::mixer::rwkv7::{Epsilons, Rwkv7Config, Rwkv7Weights};
use crate::model::{Activation, Embedding, FeedForward, LoadedLayer, LoadedModel, Mlp, Norm, ResidualBranch};
use crate::submodules::Linear;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["rwkv7"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["rwkv7"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[
    ("model.embeddings", "token_embd"),
    ("model.layers.0.pre_norm", "token_embd_norm"),
    ("attn_norm", "attn_norm"),
    ("ffn_norm", "attn_norm_2"),
    ("attn.mu", "time_mix_lerp_fused"),
    ("attn.r_proj", "time_mix_receptance"),
    ("attn.k_proj", "time_mix_key"),
    ("attn.v_proj", "time_mix_value"),
    ("attn.o_proj", "time_mix_output"),
    ("attn.g_norm", "time_mix_ln"),
    ("attn.k_k", "time_mix_k_k"),
    ("attn.k_a", "time_mix_k_a"),
    ("attn.r_k", "time_mix_r_k"),
    ("attn.w_lora.offset", "time_mix_w0"),
    ("attn.w_lora.lora.0", "time_mix_w1"),
    ("attn.w_lora.lora.2", "time_mix_w2"),
    ("attn.a_lora.offset", "time_mix_a0"),
    ("attn.a_lora.lora.0", "time_mix_a1"),
    ("attn.a_lora.lora.2", "time_mix_a2"),
    ("attn.v_lora.offset", "time_mix_v0"),
    ("attn.v_lora.lora.0", "time_mix_v1"),
    ("attn.v_lora.lora.2", "time_mix_v2"),
    ("attn.g_lora.lora.0", "time_mix_g1"),
    ("attn.g_lora.lora.2", "time_mix_g2"),
    ("ffn.x_k", "channel_mix_lerp_k"),
    ("ffn.key", "channel_mix_key"),
    ("ffn.value", "channel_mix_value"),
];

/// Sizes and options that are the same in all layers.
#[derive(Clone, Copy)]
struct Sizes {
    heads: usize,
    head_dim: usize,
    width: usize,
    intermediate_size: usize,
    epsilon: f64,
    norm_bias: bool,
}

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    fields.reject("attn", "null: no layers of attention")?;
    if let Some(name) = fields.text("hidden_act")?.filter(|name| *name != "sqrelu") {
        return Err(fields.error("hidden_act", format!("`{name}`"), "sqrelu"));
    }
    let sizes = sizes(loader)?;
    let layer_count = loader.layers.len();
    let mut layers = Vec::with_capacity(layer_count);
    for index in 0..layer_count {
        layers.push(loader.with_prefix(&format!("model.layers.{index}"), |loader| {
            let branch = ResidualBranch::with_norm(read_norm(loader, "attn_norm", sizes)?);
            let mixer = loader.with_prefix("attn", |loader| read_time_mixing(loader, sizes, index == 0))?;
            let feed_forward_branch = ResidualBranch::with_norm(read_norm(loader, "ffn_norm", sizes)?);
            let feed_forward = loader.with_prefix("ffn", |loader| read_feed_forward(loader, sizes))?;
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch: branch,
                mixers: vec![mixer],
                feed_forward: Some((feed_forward_branch, feed_forward)),
            })
        })?);
    }
    let (table, unembedding) = read_embedding_and_head(loader, sizes)?;
    let vocabulary = fields.required_size("vocab_size")?;
    Ok(LoadedModel {
        width: sizes.width,
        classes: vocabulary,
        embedding: Embedding::from_table(table, vocabulary, None),
        layers,
        // Later layers mix in layer 0's values (`v_first` in RWKV-LM).
        shared_tensor_sources: (0..layer_count).map(|index| vec![(index > 0).then_some(0)]).collect(),
        norm: loader.with_prefix("model", |loader| read_norm(loader, "norm", sizes))?,
        unembedding,
        logit_cap: None,
    })
}

fn sizes<S: Scalar>(loader: &Loader<'_, S>) -> Result<Sizes, FamilyError> {
    let fields = loader.fields;
    let width = fields.required_size("hidden_size")?;
    let mixer = loader.layers.first().and_then(|layer| layer.mixers.first());
    let size = |name: &str| mixer.and_then(|mixer| mixer.number(name)).unwrap_or(1) as usize;
    let (heads, head_dim) = (size("heads"), size("head"));
    if heads.checked_mul(head_dim) != Some(width) {
        let expected = format!("as many channels as the width, {width}");
        return Err(fields.error("head_dim", format!("{heads} heads of {head_dim}"), expected));
    }
    let is_width = |value: &JsonValue| matches!(value, JsonValue::Number(text) if text.parse() == Ok(width));
    let value_width_matches = match fields.get("value_dim") {
        None => true,
        Some(JsonValue::List(widths)) => widths.iter().all(is_width),
        Some(value) => is_width(value),
    };
    if !value_width_matches {
        return Err(fields.error("value_dim", "another size", format!("{width} in every layer, as many as keys")));
    }
    let intermediate_size = match fields.size("intermediate_size")? {
        Some(size) => size,
        None => fields.scaled_size("hidden_ratio", width)?.unwrap_or(4 * width).next_multiple_of(32),
    };
    let epsilon_field = if loader.is_gguf() { "layer_norm_eps" } else { "norm_eps" };
    let epsilon = fields.positive(epsilon_field)?.unwrap_or(1e-5);
    Ok(Sizes { heads, head_dim, width, intermediate_size, epsilon, norm_bias: fields.flag("norm_bias", true)? })
}

/// A layer norm; its bias is zero if the config has none.
fn read_norm<S: Scalar>(loader: &mut Loader<'_, S>, name: &str, sizes: Sizes) -> Result<Norm, FamilyError> {
    let Sizes { width, epsilon, norm_bias, .. } = sizes;
    let weight = loader.with_role(Role::ResidualNorm).tensor(&format!("{name}.weight"), &[width])?;
    let bias = format!("{name}.bias");
    let bias =
        if norm_bias { loader.tensor(&bias, &[width])? } else { loader.add(&bias, &[width], vec![S::ZERO; width]) };
    Ok(Norm::from_weights(weight, Some(bias), epsilon))
}

/// The embedding table, normalized if `norm_first`, and the unembedding.
fn read_embedding_and_head<S: Scalar>(
    loader: &mut Loader<'_, S>,
    sizes: Sizes,
) -> Result<(Parameter, Parameter), FamilyError> {
    let fields = loader.fields;
    let shape = [fields.required_size("vocab_size")?, sizes.width];
    let values = loader.values("model.embeddings.weight", &shape)?;
    let is_normed = fields.flag("norm_first", true)?;
    let is_tied = fields.flag("tie_word_embeddings", false)?;
    let rows = if is_normed { normed_rows(loader, values.clone(), sizes)? } else { values.clone() };
    let table = loader.with_role(Role::Embedding).add("model.embeddings.weight", &shape, rows);
    let unembedding = match (is_tied, is_normed) {
        (false, _) => loader.tensor("lm_head.weight", &shape)?,
        (true, false) => table,
        (true, true) => loader.add("lm_head.weight", &shape, values),
    };
    if is_tied {
        loader.ignore("lm_head.weight");
    }
    Ok((table, unembedding))
}

/// Applies the norm of the embeddings to every row of their table.
fn normed_rows<S: Scalar>(loader: &mut Loader<'_, S>, mut table: Vec<S>, sizes: Sizes) -> Result<Vec<S>, FamilyError> {
    let Sizes { width, epsilon, norm_bias, .. } = sizes;
    let gain = loader.values("model.layers.0.pre_norm.weight", &[width])?;
    let offset =
        if norm_bias { loader.values("model.layers.0.pre_norm.bias", &[width])? } else { vec![S::ZERO; width] };
    for row in table.chunks_mut(width) {
        let mean = row.iter().map(|x| x.to_f64()).sum::<f64>() / width as f64;
        let variance = row.iter().map(|x| (x.to_f64() - mean).powi(2)).sum::<f64>() / width as f64;
        for (channel, x) in row.iter_mut().enumerate() {
            let normed = (x.to_f64() - mean) / (variance + epsilon).sqrt();
            *x = S::from_f64(normed * gain[channel].to_f64() + offset[channel].to_f64());
        }
    }
    Ok(table)
}

fn read_time_mixing<S: Scalar>(
    loader: &mut Loader<'_, S>,
    sizes: Sizes,
    is_first_layer: bool,
) -> Result<Builtin, FamilyError> {
    let Sizes { heads, head_dim, width, epsilon, .. } = sizes;
    let mu = read_token_shift_weights(loader, width)?;
    let mut vector = |name: &str| loader.tensor(name, &[width]);
    let norm = [vector("g_norm.weight")?, vector("g_norm.bias")?];
    let [erase_scale, key_scale] = [vector("k_k")?, vector("k_a")?];
    let bonus_shape = if loader.is_gguf() { vec![width] } else { vec![heads, head_dim] };
    let bonus = loader.values("r_k", &bonus_shape)?;
    let bonus = loader.add("r_k", &[width], bonus);
    let receptance = loader.with_role(Role::Query).linear("r_proj", width, width, false)?;
    let key = loader.with_role(Role::Key).linear("k_proj", width, width, false)?;
    let value = loader.with_role(Role::Value).linear("v_proj", width, width, false)?;
    let output = loader.with_role(Role::Output).linear("o_proj", width, width, false)?;
    let decay = read_low_rank(loader, "w_lora", "decay_low_rank_dim", width, true)?;
    let in_context_learning_rate = read_low_rank(loader, "a_lora", "a_low_rank_dim", width, true)?;
    let gate = read_low_rank(loader, "g_lora", "gate_low_rank_dim", width, false)?;
    let value_mix =
        if is_first_layer { None } else { Some(read_low_rank(loader, "v_lora", "v_low_rank_dim", width, true)?) };
    let epsilons = if loader.is_gguf() {
        if is_first_layer {
            for part in ["offset", "lora.0.weight", "lora.2.weight"] {
                loader.ignore(&format!("v_lora.{part}"));
            }
        }
        Epsilons::RWKV_LM
    } else {
        let key = if loader.fields.flag("fuse_norm", true)? { 1e-6 } else { Epsilons::RWKV_LM.key };
        Epsilons { head: head_dim as f64 * epsilon, key }
    };
    // Ranks are only used to create weights, not to read them.
    let config = Rwkv7Config { heads, head_dim, rank: 0, value_rank: 0 };
    Ok(Builtin::Rwkv7(config.assemble(Rwkv7Weights {
        mu,
        receptance,
        key,
        value,
        output,
        value_mix,
        decay,
        in_context_learning_rate,
        gate,
        erase_scale,
        key_scale,
        bonus,
        norm,
        epsilons,
    })))
}

/// The token-shift weights: the fraction of the previous token per channel, for r, w, k, v, a and g.
fn read_token_shift_weights<S: Scalar>(
    loader: &mut Loader<'_, S>,
    width: usize,
) -> Result<[Parameter; 6], FamilyError> {
    let names = ["x_r", "x_w", "x_k", "x_v", "x_a", "x_g"];
    let weights = if loader.is_gguf() {
        loader.values("mu", &[names.len(), width])?
    } else {
        let tensors = names.iter().map(|name| loader.values(name, &[width]));
        tensors.collect::<Result<Vec<_>, _>>()?.concat()
    };
    Ok(std::array::from_fn(|index| {
        loader.add(names[index], &[width], weights[index * width..(index + 1) * width].to_vec())
    }))
}

/// A low-rank pair of projections; if the config does not give the rank, it is that of the stored tensor.
fn read_low_rank<S: Scalar>(
    loader: &mut Loader<'_, S>,
    name: &str,
    field: &str,
    width: usize,
    bias: bool,
) -> Result<[Linear; 2], FamilyError> {
    let (down, up) = (format!("{name}.lora.0"), format!("{name}.lora.2"));
    let stored_rank = loader.shape(&format!("{down}.weight")).and_then(|shape| shape.first().copied());
    let rank = loader.fields.size(field)?.or(stored_rank).unwrap_or(1);
    let down = loader.linear(&down, width, rank, false)?;
    let weight = loader.tensor(&format!("{up}.weight"), &[width, rank])?;
    let bias = if bias {
        let bias_name = format!("{up}.bias");
        let values =
            loader.values(&if loader.is_gguf() { format!("{name}.offset") } else { bias_name.clone() }, &[width])?;
        Some(loader.add(&bias_name, &[width], values))
    } else {
        None
    };
    Ok([down, Linear { weight, bias }])
}

fn read_feed_forward<S: Scalar>(loader: &mut Loader<'_, S>, sizes: Sizes) -> Result<FeedForward, FamilyError> {
    let Sizes { width, intermediate_size, .. } = sizes;
    let network = Mlp {
        gate: None,
        up: loader.linear("key", width, intermediate_size, false)?,
        down: loader.with_role(Role::Output).linear("value", intermediate_size, width, false)?,
        activation: Activation::ReluSquared,
    };
    Ok(FeedForward::TokenShift { mu: loader.tensor("x_k", &[width])?, network })
}
