//! Kimi Linear: Kimi Delta Attention between layers of latent attention without positions, and experts.
//!
//! # Classes
//! `KimiLinearForCausalLM`.
//!
//! # Unusual options
//! `q_lora_rank`, `attention_bias` (on latent layers), groups of experts, `moe_renormalize`, dense layers anywhere (`mlp_layer_types`).
//!
//! # Names
//! Published files name a feed-forward network `mlp` if it is dense and `block_sparse_moe` if it has experts; transformers saves both under the
//! second name. The published config has the sizes of linear layers in `linear_attn_config`.
//!
//! # GGUF
//! `kimi-linear`. In linear layers, llama.cpp normalizes queries and keys with the epsilon of the other norms; this crate, like transformers, with 1e-6.

use rung_audit::json::JsonValue;
use rung_engine::{Role, Scalar};
use rung_theory::stack::Layer;

use super::decoder::{self, DecoderOptions};
use super::latent::{self, LatentOptions};
use super::{FamilyError, Loader, delta, experts, state_space};
use crate::mixer::kda::{KimiDeltaConfig, KimiDeltaWeights};
use crate::mixer::{Builtin, MixerConfig as _};
use crate::model::{Activation, Experts, FeedForward, Gating, LoadedLayer, LoadedModel, ResidualBranch, Routing};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["kimi_linear"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["kimi-linear"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[
    ("self_attn.q_conv1d", "ssm_conv1d_q"),
    ("self_attn.k_conv1d", "ssm_conv1d_k"),
    ("self_attn.v_conv1d", "ssm_conv1d_v"),
    ("self_attn.f_a_proj", "ssm_f_a"),
    ("self_attn.f_b_proj", "ssm_f_b"),
    ("self_attn.g_a_proj", "ssm_g_a"),
    ("self_attn.g_b_proj", "ssm_g_b"),
    ("self_attn.b_proj", "ssm_beta"),
    ("self_attn.o_norm", "ssm_norm"),
    ("self_attn.dt_bias", "ssm_dt"),
    ("self_attn.A_log", "ssm_a."),
];

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    let width = fields.required_size("hidden_size")?;
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-5);
    let activation = decoder::activation(loader, "silu")?;
    delta::require_silu(loader, activation)?;
    if !fields.flag("mla_use_nope", true)? {
        return Err(fields.error("mla_use_nope", "false", "true: latent layers without positions"));
    }
    if let Some(name) = fields.text("moe_router_activation_func")?.filter(|name| *name != "sigmoid") {
        return Err(fields.error("moe_router_activation_func", format!("`{name}`"), "sigmoid"));
    }
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.with_prefix(&format!("model.layers.{index}"), |loader| {
            let branch = ResidualBranch::with_norm(loader.rms_norm("input_layernorm", width, epsilon)?);
            let mixer = loader.with_prefix("self_attn", |loader| read_mixer(loader, layer, width, epsilon))?;
            let feed_forward_branch =
                ResidualBranch::with_norm(loader.rms_norm("post_attention_layernorm", width, epsilon)?);
            let feed_forward = read_feed_forward(loader, index, width, activation)?;
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch: branch,
                mixers: vec![mixer],
                feed_forward: Some((feed_forward_branch, feed_forward)),
            })
        })?);
    }
    DecoderOptions::new(epsilon).assemble_model(loader, layers)
}

fn read_mixer<S: Scalar>(
    loader: &mut Loader<'_, S>,
    layer: &Layer,
    width: usize,
    epsilon: f64,
) -> Result<Builtin, FamilyError> {
    if let Some(sizes) = latent::sizes_of(layer)? {
        let bias = loader.fields.flag("attention_bias", false)?;
        let options = LatentOptions { bias, rotation: None, interleaved_pairs: false, factor: 1.0 };
        return latent::read_attention(loader, sizes, width, options);
    }
    match &layer.mixers[..] {
        [mixer] if mixer.name() == KimiDeltaConfig::NAME => {
            read_kimi_delta(loader, KimiDeltaConfig::resolve(mixer)?, width, epsilon)
        }
        _ => Err(loader.fields.error("layer_types", "another mixer", "full and linear attention")),
    }
}

fn read_kimi_delta<S: Scalar>(
    loader: &mut Loader<'_, S>,
    sizes: KimiDeltaConfig,
    width: usize,
    epsilon: f64,
) -> Result<Builtin, FamilyError> {
    let KimiDeltaConfig { heads, value_heads, key_dim, value_dim, kernel_size } = sizes;
    let (key_rows, value_rows) = (heads * key_dim, value_heads * value_dim);
    let projections = [
        loader.with_role(Role::Query).linear("q_proj", width, key_rows, false)?,
        loader.with_role(Role::Key).linear("k_proj", width, key_rows, false)?,
        loader.with_role(Role::Value).linear("v_proj", width, value_rows, false)?,
    ];
    let mut filters = loader.values("q_conv1d.weight", &[key_rows, 1, kernel_size])?;
    filters.extend(loader.values("k_conv1d.weight", &[key_rows, 1, kernel_size])?);
    filters.extend(loader.values("v_conv1d.weight", &[value_rows, 1, kernel_size])?);
    Ok(Builtin::KimiDelta(sizes.assemble(&KimiDeltaWeights {
        projections,
        convolutions: delta::convolutions(loader, &filters, kernel_size, [key_rows, value_rows]),
        beta: loader.linear("b_proj", width, value_heads, false)?,
        dt_proj: [
            loader.linear("f_a_proj", width, value_dim, false)?,
            loader.linear("f_b_proj", value_dim, value_heads * key_dim, false)?,
        ],
        dt_bias: loader.tensor("dt_bias", &[value_heads * key_dim])?,
        a_log: state_space::read_a_log(loader, &[value_heads])?,
        gate: [
            loader.linear("g_a_proj", width, value_dim, false)?,
            loader.with_role(Role::Gate).linear("g_b_proj", value_dim, value_rows, false)?,
        ],
        norm: loader.tensor("o_norm.weight", &[value_dim])?,
        epsilon,
        output: loader.with_role(Role::Output).linear("o_proj", value_rows, width, false)?,
    })))
}

fn read_feed_forward<S: Scalar>(
    loader: &mut Loader<'_, S>,
    index: usize,
    width: usize,
    activation: Activation,
) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let is_dense = match fields.list("mlp_layer_types")? {
        Some(types) => matches!(types.get(index), Some(JsonValue::String(name)) if name == "dense"),
        None => (index as f64) < fields.number("first_k_dense_replace")?.unwrap_or(1.0),
    };
    if !is_dense {
        return loader.with_prefix("block_sparse_moe", |loader| read_mixture_of_experts(loader, width, activation));
    }
    let module = if loader.has("mlp.up_proj.weight") { "mlp" } else { "block_sparse_moe" };
    let sizes = [width, fields.required_size("intermediate_size")?];
    let mlp = loader.with_prefix(module, |loader| decoder::read_gated_mlp(loader, sizes, false, activation))?;
    Ok(FeedForward::Mlp(mlp))
}

fn read_mixture_of_experts<S: Scalar>(
    loader: &mut Loader<'_, S>,
    width: usize,
    activation: Activation,
) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let expert_count = fields.required_size("num_experts")?;
    let hidden = fields.required_size("moe_intermediate_size")?;
    let shared_expert_count = fields.required_size("num_shared_experts")?;
    let top_k = experts::top_k(loader, "num_experts_per_token", expert_count)?;
    let routing = Routing {
        top_k,
        gating: Gating::Sigmoid,
        normalized: fields.flag("moe_renormalize", true)?,
        scale: fields.number("routed_scaling_factor")?.unwrap_or(2.446),
        bias: Some(loader.tensor("gate.e_score_correction_bias", &[expert_count])?),
        group_limit: latent::group_limit(loader, ["num_expert_group", "topk_group"], [expert_count, top_k], 2)?,
    };
    let mlp = |loader: &mut Loader<'_, S>| {
        decoder::read_gated_mlp(loader, [width, shared_expert_count * hidden], false, activation)
    };
    let router = loader.linear("gate", width, expert_count, false)?;
    let experts = experts::read_experts(loader, expert_count, [width, hidden], experts::MIXTRAL_NAMES, activation)?;
    let experts =
        Experts { shared: Some(loader.with_prefix("shared_experts", mlp)?), ..Experts::new(router, routing, experts) };
    Ok(FeedForward::Experts(Box::new(experts)))
}
