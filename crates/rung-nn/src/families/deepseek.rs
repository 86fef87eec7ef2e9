//! DeepSeek-V2 and V3: latent attention, and experts of which some groups are eligible.
//!
//! # Classes
//! `DeepseekV2ForCausalLM`, `DeepseekV3ForCausalLM`. The published files of V3 are in F8, which is not read; files in BF16 are.
//!
//! # Unusual options
//! `rope_type` yarn with `mscale` and `mscale_all_dim`, `attention_bias`, `q_lora_rank` null, `topk_method` `greedy` and `group_limited_greedy` (V2),
//! `norm_topk_prob` and `rope_interleave` (V3). The layer of V3 that predicts a further token is not read.
//!
//! # GGUF
//! Not read.

use rung_engine::Scalar;

use super::decoder::{self, OuterParts};
use super::latent::{self, LatentOptions};
use super::{FamilyError, Fields, Loader, experts, rotary};
use crate::mixer::Builtin;
use crate::model::{Activation, Branch, FeedForward, Experts, Gating, LayerParts, ModelParts, Routing};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["deepseek_v2", "deepseek_v3"];

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
    let third = fields.text("model_type")? == Some("deepseek_v3");
    check_words(fields, third)?;
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-6);
    let activation = decoder::activation(loader, "silu")?;
    let dense = fields.number("first_k_dense_replace")?.unwrap_or(if third { 3.0 } else { 0.0 }) as usize;
    let further = fields.number("num_nextn_predict_layers")?.unwrap_or(0.0) as usize;
    for index in loader.layers.len()..loader.layers.len() + further.min(16) {
        loader.ignore_under(&format!("model.layers.{index}."));
    }
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        let Some(sizes) = latent::sizes_of(layer)? else {
            return Err(fields.wrong("kv_lora_rank", "a layer of another kind", "latent attention in every layer"));
        };
        let turns = sizes.rope > 0;
        let options = LatentOptions {
            bias: fields.flag("attention_bias", false)?,
            rotation: if turns { Some(rotary::rotation(fields, sizes.rope, "full_attention", 10_000.0)?) } else { None },
            pairs_side_by_side: !third || fields.flag("rope_interleave", true)?,
            factor: rotary::score_factor(fields)?,
        };
        layers.push(loader.within(&format!("model.layers.{index}"), |loader| {
            let branch = Branch::of(loader.rms_norm("input_layernorm", width, epsilon)?);
            let mixer = loader.within("self_attn", |loader| latent::attention(loader, sizes, width, options))?;
            let channel_branch = Branch::of(loader.rms_norm("post_attention_layernorm", width, epsilon)?);
            let channel = loader.within("mlp", |loader| {
                if index < dense {
                    let bias = !third && fields.flag("mlp_bias", false)?;
                    Ok(FeedForward::Dense(decoder::gated_network(loader, [width, hidden], bias, activation)?))
                } else {
                    mixture(loader, width, activation, third)
                }
            })?;
            Ok::<_, FamilyError>(LayerParts { mixers: (branch, vec![mixer]), channel: Some((channel_branch, channel)) })
        })?);
    }
    OuterParts::plain(epsilon).assemble_model(loader, layers)
}

/// Refuses words that name another rule than the classes follow.
fn check_words(fields: &Fields, third: bool) -> Result<(), FamilyError> {
    let known: [(&str, &[&str]); 2] = if third {
        [("topk_method", &["noaux_tc"]), ("scoring_func", &["sigmoid"])]
    } else {
        fields.refuse("norm_topk_prob", "false in this family")?;
        [("topk_method", &["greedy", "group_limited_greedy"]), ("scoring_func", &["softmax"])]
    };
    for (name, known) in known {
        if let Some(word) = fields.text(name)?.filter(|word| !known.contains(word)) {
            return Err(fields.wrong(name, format!("`{word}`"), known.join(" or ")));
        }
    }
    match fields.size("moe_layer_freq")? {
        None | Some(1) => Ok(()),
        Some(step) => Err(fields.wrong("moe_layer_freq", step.to_string(), "1")),
    }
}

fn mixture<S: Scalar>(
    loader: &mut Loader<'_, S>,
    width: usize,
    activation: Activation,
    third: bool,
) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let count = fields.required_size("n_routed_experts")?;
    let hidden = fields.required_size("moe_intermediate_size")?;
    let shared = fields.size("n_shared_experts")?.unwrap_or(if third { 1 } else { 2 });
    let chosen = experts::chosen(loader, "num_experts_per_tok", count)?;
    let limited = third || fields.text("topk_method")? == Some("group_limited_greedy");
    let best = if third { 2 } else { 1 };
    let limit = if limited { latent::group_limit(loader, ["n_group", "topk_group"], [count, chosen], best)? } else { None };
    let mlp_bias = !third && fields.flag("mlp_bias", false)?;
    let routing = Routing {
        chosen,
        gating: if third { Gating::Sigmoid } else { Gating::Softmax },
        normed: third && fields.flag("norm_topk_prob", true)?,
        scale: fields.number("routed_scaling_factor")?.unwrap_or(if third { 2.5 } else { 1.0 }),
        bias: if third { Some(loader.tensor("gate.e_score_correction_bias", &[count])?) } else { None },
        limit,
    };
    let network = |loader: &mut Loader<'_, S>| {
        decoder::gated_network(loader, [width, shared * hidden], mlp_bias, activation)
    };
    Ok(FeedForward::Experts(Box::new(Experts {
        router: loader.linear("gate", width, count, false)?,
        routing,
        experts: experts::experts(loader, count, [width, hidden], experts::NAMES, activation)?,
        latent: None,
        shared: Some(loader.within("shared_experts", network)?),
        shared_gate: None,
    })))
}
