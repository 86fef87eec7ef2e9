//! Kimi Linear: Kimi Delta Attention between layers of latent attention without positions, and experts.
//!
//! # Classes
//! `KimiLinearForCausalLM`.
//!
//! # Unusual options
//! `q_lora_rank`, `attention_bias` (on latent layers), groups of experts, `moe_renormalize`, dense layers anywhere (`mlp_layer_types`).
//!
//! # Names
//! Published files name a layer's network `mlp` if it is dense and `block_sparse_moe` if it has experts; transformers saves both under the
//! second name. The published config keeps the sizes of linear layers in `linear_attn_config`.
//!
//! # GGUF
//! Not read.

use rung_audit::json::JsonValue;
use rung_engine::{Role, Scalar};
use rung_theory::stack::Layer;

use super::decoder::{self, OuterParts};
use super::latent::{self, LatentOptions};
use super::{FamilyError, Loader, delta, experts};
use crate::mixer::kda::{KimiDeltaConfig, KimiDeltaParts};
use crate::mixer::{Builtin, MixerConfig as _};
use crate::model::{Activation, Branch, FeedForward, Experts, Gating, LayerParts, ModelParts, Routing};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["kimi_linear"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &[];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[];

/// Reads a network.
///
/// # Errors
/// A field or a tensor is not what it should be.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<ModelParts<Builtin>, FamilyError> {
    let fields = loader.fields;
    let width = fields.required_size("hidden_size")?;
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-5);
    let activation = decoder::activation(loader, "silu")?;
    delta::require_silu(loader, activation)?;
    if !fields.flag("mla_use_nope", true)? {
        return Err(fields.wrong("mla_use_nope", "false", "true: latent layers without positions"));
    }
    if let Some(word) = fields.text("moe_router_activation_func")?.filter(|word| *word != "sigmoid") {
        return Err(fields.wrong("moe_router_activation_func", format!("`{word}`"), "sigmoid"));
    }
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.within(&format!("model.layers.{index}"), |loader| {
            let branch = Branch::of(loader.rms_norm("input_layernorm", width, epsilon)?);
            let mixer = loader.within("self_attn", |loader| mixer(loader, layer, width, epsilon))?;
            let channel_branch = Branch::of(loader.rms_norm("post_attention_layernorm", width, epsilon)?);
            let channel = channel(loader, index, width, activation)?;
            Ok::<_, FamilyError>(LayerParts { mixers: (branch, vec![mixer]), channel: Some((channel_branch, channel)) })
        })?);
    }
    OuterParts::plain(epsilon).assemble_model(loader, layers)
}

fn mixer<S: Scalar>(
    loader: &mut Loader<'_, S>,
    layer: &Layer,
    width: usize,
    epsilon: f64,
) -> Result<Builtin, FamilyError> {
    if let Some(sizes) = latent::sizes_of(layer)? {
        let bias = loader.fields.flag("attention_bias", false)?;
        let options = LatentOptions { bias, rotation: None, pairs_side_by_side: false, factor: 1.0 };
        return latent::attention(loader, sizes, width, options);
    }
    match &layer.mixers[..] {
        [mixer] if mixer.name() == KimiDeltaConfig::NAME => {
            kimi_delta(loader, KimiDeltaConfig::resolve(mixer)?, width, epsilon)
        }
        _ => Err(loader.fields.wrong("layer_types", "a layer of another kind", "full and linear attention")),
    }
}

fn kimi_delta<S: Scalar>(
    loader: &mut Loader<'_, S>,
    sizes: KimiDeltaConfig,
    width: usize,
    epsilon: f64,
) -> Result<Builtin, FamilyError> {
    let KimiDeltaConfig { heads, value_heads, key, value, taps } = sizes;
    let (key_rows, value_rows) = (heads * key, value_heads * value);
    let projections = [
        loader.role(Role::Query).linear("q_proj", width, key_rows, false)?,
        loader.role(Role::Key).linear("k_proj", width, key_rows, false)?,
        loader.role(Role::Value).linear("v_proj", width, value_rows, false)?,
    ];
    let mut filters = loader.values("q_conv1d.weight", &[key_rows, 1, taps])?;
    filters.extend(loader.values("k_conv1d.weight", &[key_rows, 1, taps])?);
    filters.extend(loader.values("v_conv1d.weight", &[value_rows, 1, taps])?);
    Ok(Builtin::KimiDelta(sizes.assemble(&KimiDeltaParts {
        projections,
        convolutions: delta::convolutions(loader, &filters, taps, [key_rows, value_rows]),
        beta: loader.linear("b_proj", width, value_heads, false)?,
        step: [
            loader.linear("f_a_proj", width, value, false)?,
            loader.linear("f_b_proj", value, value_heads * key, false)?,
        ],
        step_bias: loader.tensor("dt_bias", &[value_heads * key])?,
        log_rate: loader.tensor("A_log", &[value_heads])?,
        gate: [
            loader.linear("g_a_proj", width, value, false)?,
            loader.role(Role::Gate).linear("g_b_proj", value, value_rows, false)?,
        ],
        norm: loader.tensor("o_norm.weight", &[value])?,
        epsilon,
        output: loader.role(Role::Output).linear("o_proj", value_rows, width, false)?,
    })))
}

fn channel<S: Scalar>(
    loader: &mut Loader<'_, S>,
    index: usize,
    width: usize,
    activation: Activation,
) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let dense = match fields.list("mlp_layer_types")? {
        Some(words) => matches!(words.get(index), Some(JsonValue::Text(word)) if word == "dense"),
        None => (index as f64) < fields.number("first_k_dense_replace")?.unwrap_or(1.0),
    };
    if !dense {
        return loader.within("block_sparse_moe", |loader| mixture(loader, width, activation));
    }
    let place = if loader.has("mlp.up_proj.weight") { "mlp" } else { "block_sparse_moe" };
    let sizes = [width, fields.required_size("intermediate_size")?];
    let network = loader.within(place, |loader| decoder::gated_network(loader, sizes, false, activation))?;
    Ok(FeedForward::Dense(network))
}

fn mixture<S: Scalar>(
    loader: &mut Loader<'_, S>,
    width: usize,
    activation: Activation,
) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let count = fields.required_size("num_experts")?;
    let hidden = fields.required_size("moe_intermediate_size")?;
    let shared = fields.required_size("num_shared_experts")?;
    let chosen = experts::chosen(loader, "num_experts_per_token", count)?;
    let routing = Routing {
        chosen,
        gating: Gating::Sigmoid,
        normed: fields.flag("moe_renormalize", true)?,
        scale: fields.number("routed_scaling_factor")?.unwrap_or(2.446),
        bias: Some(loader.tensor("gate.e_score_correction_bias", &[count])?),
        limit: latent::group_limit(loader, ["num_expert_group", "topk_group"], [count, chosen], 2)?,
    };
    let network = |loader: &mut Loader<'_, S>| {
        decoder::gated_network(loader, [width, shared * hidden], false, activation)
    };
    Ok(FeedForward::Experts(Box::new(Experts {
        router: loader.linear("gate", width, count, false)?,
        routing,
        experts: experts::experts(loader, count, [width, hidden], experts::MIXTRAL_NAMES, activation)?,
        latent: None,
        shared: Some(loader.within("shared_experts", network)?),
        shared_gate: None,
    })))
}
