//! DeepSeek-V2 and V3: latent attention, and experts of which some groups are eligible.
//!
//! # Classes
//! `DeepseekV2ForCausalLM`, `DeepseekV3ForCausalLM`. The published files of V3 are in F8, which is not supported; files in BF16 are.
//!
//! # Unusual options
//! `rope_type` yarn with `mscale` and `mscale_all_dim`, `attention_bias`, `q_lora_rank` null, `topk_method` `greedy` and `group_limited_greedy` (V2),
//! `norm_topk_prob` and `rope_interleave` (V3). The layer of V3 that predicts a further token is ignored.
//!
//! # GGUF
//! `deepseek2`, both generations: V3 has sigmoid gates (`expert_gating_func`). llama.cpp ranks groups of experts by the sum of their best two in both; this crate,
//! as transformers, ranks those of V2 by the best one.

use rung_engine::Scalar;

use super::decoder::{self, DecoderOptions};
use super::latent::{self, LatentOptions};
use super::{FamilyError, Fields, Loader, experts, rotary};
use crate::mixer::Builtin;
use crate::model::{Activation, Experts, FeedForward, Gating, LoadedLayer, LoadedModel, ResidualBranch, Routing};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["deepseek_v2", "deepseek_v3"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["deepseek2"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[];

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    let is_v3 = if loader.is_gguf() {
        fields.number("expert_gating_func")? == Some(GGUF_SIGMOID)
    } else {
        fields.text("model_type")? == Some("deepseek_v3")
    };
    check_routing_methods(fields, is_v3)?;
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-6);
    let activation = decoder::activation(loader, "silu")?;
    let default = if is_v3 && !loader.is_gguf() { 3.0 } else { 0.0 };
    let dense_layer_count = fields.number("first_k_dense_replace")?.unwrap_or(default) as usize;
    loader.ignore_mtp_layers()?;
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        let Some(sizes) = latent::sizes_of(layer)? else {
            return Err(fields.error("kv_lora_rank", "another mixer", "latent attention in every layer"));
        };
        let is_rotary = sizes.rope_dim > 0;
        let options = LatentOptions {
            bias: fields.flag("attention_bias", false)?,
            rotation: if is_rotary {
                Some(rotary::rotation(fields, sizes.rope_dim, "full_attention", 10_000.0)?)
            } else {
                None
            },
            interleaved_pairs: !is_v3 || fields.flag("rope_interleave", true)?,
            factor: rotary::score_factor(fields)?,
        };
        layers.push(loader.with_prefix(&format!("model.layers.{index}"), |loader| {
            let branch = ResidualBranch::with_norm(loader.rms_norm("input_layernorm", width, epsilon)?);
            let mixer =
                loader.with_prefix("self_attn", |loader| latent::read_attention(loader, sizes, width, options))?;
            let feed_forward_branch =
                ResidualBranch::with_norm(loader.rms_norm("post_attention_layernorm", width, epsilon)?);
            let feed_forward = loader.with_prefix("mlp", |loader| {
                if index < dense_layer_count {
                    let bias = !is_v3 && fields.flag("mlp_bias", false)?;
                    Ok(FeedForward::Mlp(decoder::read_gated_mlp(loader, [width, hidden], bias, activation)?))
                } else {
                    read_mixture_of_experts(loader, width, activation, is_v3)
                }
            })?;
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch: branch,
                mixers: vec![mixer],
                feed_forward: Some((feed_forward_branch, feed_forward)),
            })
        })?);
    }
    DecoderOptions::new(epsilon).assemble_model(loader, layers)
}

/// The value of `expert_gating_func` for sigmoid gates in GGUF files.
const GGUF_SIGMOID: f64 = 2.0;

/// Rejects routing methods that the model classes do not have.
fn check_routing_methods(fields: &Fields, is_v3: bool) -> Result<(), FamilyError> {
    let known: [(&str, &[&str]); 2] = if is_v3 {
        [("topk_method", &["noaux_tc"]), ("scoring_func", &["sigmoid"])]
    } else {
        fields.reject("norm_topk_prob", "false in this family")?;
        [("topk_method", &["greedy", "group_limited_greedy"]), ("scoring_func", &["softmax"])]
    };
    for (name, known) in known {
        if let Some(method) = fields.text(name)?.filter(|method| !known.contains(method)) {
            return Err(fields.error(name, format!("`{method}`"), known.join(" or ")));
        }
    }
    match fields.size("moe_layer_freq")? {
        None | Some(1) => Ok(()),
        Some(step) => Err(fields.error("moe_layer_freq", step.to_string(), "1")),
    }
}

fn read_mixture_of_experts<S: Scalar>(
    loader: &mut Loader<'_, S>,
    width: usize,
    activation: Activation,
    is_v3: bool,
) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let expert_count = fields.required_size("n_routed_experts")?;
    let hidden = fields.required_size("moe_intermediate_size")?;
    let shared_expert_count = fields.size("n_shared_experts")?.unwrap_or(if is_v3 { 1 } else { 2 });
    let top_k = experts::top_k(loader, "num_experts_per_tok", expert_count)?;
    let is_group_limited = is_v3 || loader.is_gguf() || fields.text("topk_method")? == Some("group_limited_greedy");
    let group_score_experts = if is_v3 { 2 } else { 1 };
    let group_limit = if is_group_limited {
        latent::group_limit(loader, ["n_group", "topk_group"], [expert_count, top_k], group_score_experts)?
    } else {
        None
    };
    let mlp_bias = !is_v3 && fields.flag("mlp_bias", false)?;
    let routing = Routing {
        top_k,
        gating: if is_v3 { Gating::Sigmoid } else { Gating::Softmax },
        normalized: is_v3 && fields.flag("norm_topk_prob", !loader.is_gguf())?,
        scale: fields.number("routed_scaling_factor")?.unwrap_or(if is_v3 && !loader.is_gguf() { 2.5 } else { 1.0 }),
        bias: if is_v3 { Some(loader.tensor("gate.e_score_correction_bias", &[expert_count])?) } else { None },
        group_limit,
    };
    let mlp = |loader: &mut Loader<'_, S>| {
        decoder::read_gated_mlp(loader, [width, shared_expert_count * hidden], mlp_bias, activation)
    };
    let router = loader.linear("gate", width, expert_count, false)?;
    let experts = experts::read_experts(loader, expert_count, [width, hidden], experts::NAMES, activation)?;
    let experts =
        Experts { shared: Some(loader.with_prefix("shared_experts", mlp)?), ..Experts::new(router, routing, experts) };
    Ok(FeedForward::Experts(Box::new(experts)))
}
