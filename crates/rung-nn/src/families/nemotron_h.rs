//! Nemotron-H, Nemotron Nano 2 and Nemotron 3: Mamba-2, attention without positions, MLPs and experts, each as a separate layer.
//!
//! # Classes
//! `NemotronHForCausalLM`. It ignores `attention_bias` and `time_step_limit`, and clamps dt to `time_step_min` only in the parallel forward pass; this
//! crate does so for every token.
//!
//! # Unusual options
//! `moe_latent_size`, `n_group`, `norm_topk_prob`, `routed_scaling_factor`, `use_bias`, `mlp_bias`, `use_conv_bias`, `mlp_hidden_act`.
//!
//! # GGUF
//! `nemotron_h`, and `nemotron_h_moe` with experts. llama.cpp does not clamp dt, so it is not clamped for GGUF files.

use rung_audit::json::JsonValue;
use rung_engine::{Role, Scalar};

use super::decoder::{self, AttentionOptions, DecoderOptions};
use super::state_space::{self, GatedNormOptions, Mamba2Options};
use super::{FamilyError, Fields, Loader, experts};
use crate::mixer::Builtin;
use crate::mixer::none::NoMixer;
use crate::model::{
    Activation, Experts, FeedForward, Gating, GroupLimit, LoadedLayer, LoadedModel, Mlp, Norm, ResidualBranch, Routing,
};
use crate::position::Rotation;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["nemotron_h"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["nemotron_h", "nemotron_h_moe"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[
    ("mixer.q_proj", "attn_q"),
    ("mixer.k_proj", "attn_k"),
    ("mixer.v_proj", "attn_v"),
    ("mixer.o_proj", "attn_output"),
];

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    fields.reject("num_nextn_predict_layers", "no layers for the prediction of several tokens")?;
    state_space::require_silu(fields, "mamba_hidden_act")?;
    let width = fields.required_size("hidden_size")?;
    let epsilon = match fields.positive("layer_norm_epsilon")? {
        Some(epsilon) => epsilon,
        None => fields.positive("rms_norm_eps")?.unwrap_or(1e-5),
    };
    let bias = fields.flag("use_bias", false)?;
    let min_dt = fields.number("time_step_min")?.unwrap_or(1e-3);
    let options = Mamba2Options {
        bias,
        output_bias: bias,
        convolution_bias: fields.flag("use_conv_bias", true)?,
        norm: Some(GatedNormOptions { epsilon, before_gate: false }),
        dt_limit: (!loader.is_gguf()).then_some([min_dt, f64::INFINITY]),
    };
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.with_prefix(&format!("backbone.layers.{index}"), |loader| {
            let norm = loader.rms_norm("norm", width, epsilon)?;
            let name = layer.mixers.first().map_or("none", |mixer| mixer.name());
            let mixer = match name {
                "none" => {
                    // transformers calls every block `mixer`; here a feed-forward network is `mlp`.
                    let feed_forward = loader.with_prefix("mixer", |loader| {
                        loader.with_mixer_name("mlp", |loader| read_feed_forward(loader, index, width))
                    })?;
                    return Ok(LoadedLayer {
                        mixer_branch: ResidualBranch::with_norm(Norm::identity()),
                        mixers: vec![Builtin::NoMixer(NoMixer)],
                        feed_forward: Some((ResidualBranch::with_norm(norm), feed_forward)),
                    });
                }
                "mamba2" => {
                    let mixer = state_space::only_mixer(loader, layer, "mamba2")?;
                    loader.with_prefix("mixer", |loader| state_space::read_mamba2(loader, mixer, width, options))?
                }
                _ => {
                    let mixer = decoder::attention_mixer(loader, layer)?;
                    let attention_options = AttentionOptions::new(None::<Rotation>);
                    loader.with_prefix("mixer", |loader| {
                        decoder::read_attention(loader, mixer, width, attention_options)
                    })?
                }
            };
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch: ResidualBranch::with_norm(norm),
                mixers: vec![mixer],
                feed_forward: None,
            })
        })?);
    }
    let decoder_options =
        DecoderOptions { prefix: "backbone", embedding: "embeddings", norm: "norm_f", ..DecoderOptions::new(epsilon) };
    decoder_options.assemble_model(loader, layers)
}

/// Whether a layer without a token mixer has experts: older files name the kinds of layers by letters.
fn is_expert_layer(fields: &Fields, index: usize) -> Result<bool, FamilyError> {
    let layer_types = match fields.list("layers_block_type")? {
        Some(types) => Some(types),
        None => fields.list("layer_types")?,
    };
    Ok(match layer_types {
        Some(types) => types.get(index) == Some(&JsonValue::String("moe".to_owned())),
        None => fields.text("hybrid_override_pattern")?.is_some_and(|letters| letters.chars().nth(index) == Some('E')),
    })
}

/// The hidden width of an MLP; GGUF files have a list with one number for every layer.
fn intermediate_size(fields: &Fields, index: usize) -> Result<usize, FamilyError> {
    let Some(JsonValue::List(sizes)) = fields.get("intermediate_size") else {
        return fields.required_size("intermediate_size");
    };
    let size = match sizes.get(index) {
        Some(JsonValue::Number(text)) => text.parse().ok().filter(|size| (1..1 << 24).contains(size)),
        _ => None,
    };
    size.ok_or_else(|| fields.error("intermediate_size", format!("none for layer {index}"), "a whole number from 1"))
}

/// An MLP, or experts beside a shared one. None of them has a gate.
fn read_feed_forward<S: Scalar>(
    loader: &mut Loader<'_, S>,
    index: usize,
    width: usize,
) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let bias = fields.flag("mlp_bias", false)?;
    let activation = match fields.text("mlp_hidden_act")? {
        None | Some("relu2") => Activation::ReluSquared,
        Some("silu") => Activation::Silu,
        Some("relu") => Activation::Relu,
        Some("gelu") => Activation::GeluExact,
        Some(other) => return Err(fields.error("mlp_hidden_act", format!("`{other}`"), "relu2, silu, relu or gelu")),
    };
    let mlp = |loader: &mut Loader<'_, S>, [width, hidden]: [usize; 2], bias: bool| {
        Ok::<_, FamilyError>(Mlp {
            gate: None,
            up: loader.linear("up_proj", width, hidden, bias)?,
            down: loader.with_role(Role::Output).linear("down_proj", hidden, width, bias)?,
            activation,
        })
    };
    let has_experts = if loader.is_gguf() { loader.has("gate.weight") } else { is_expert_layer(fields, index)? };
    if !has_experts {
        let hidden = intermediate_size(fields, index)?;
        return Ok(FeedForward::Mlp(mlp(loader, [width, hidden], bias)?));
    }
    let (expert_count, hidden) =
        (fields.required_size("n_routed_experts")?, fields.required_size("moe_intermediate_size")?);
    let shared_hidden = fields.required_size("moe_shared_expert_intermediate_size")?;
    let router = loader.linear("gate", width, expert_count, false)?;
    let router_bias = loader.tensor("gate.e_score_correction_bias", &[expert_count])?;
    let latent_width = fields.size("moe_latent_size")?;
    let latent_projections = match latent_width {
        Some(latent) => Some((
            loader.linear("fc1_latent_proj", width, latent, bias)?,
            loader.linear("fc2_latent_proj", latent, width, bias)?,
        )),
        None => None,
    };
    let expert_input_width = latent_width.unwrap_or(width);
    let experts = if loader.is_gguf() {
        loader.with_prefix("experts", |loader| {
            experts::read_stacked_experts_without_gates(loader, expert_count, [expert_input_width, hidden], activation)
        })?
    } else {
        let expert = |index: usize| {
            loader.with_prefix(&format!("experts.{index}"), |loader| mlp(loader, [expert_input_width, hidden], false))
        };
        (0..expert_count).map(expert).collect::<Result<_, _>>()?
    };
    let shared = loader.with_prefix("shared_experts", |loader| mlp(loader, [width, shared_hidden], bias))?;
    Ok(FeedForward::Experts(Box::new(Experts {
        router,
        routing: Routing { bias: Some(router_bias), ..routing(fields, expert_count)? },
        experts,
        latent: latent_projections,
        shared: Some(shared),
        shared_gate: None,
    })))
}

/// The routing: sigmoid of the router logits, limited to the best groups of experts.
fn routing(fields: &Fields, expert_count: usize) -> Result<Routing, FamilyError> {
    let groups = fields.size("n_group")?.unwrap_or(1);
    let top_groups = fields.size("topk_group")?.unwrap_or(1);
    let top_k = fields.required_size("num_experts_per_tok")?;
    if !expert_count.is_multiple_of(groups) || top_groups > groups || top_k > top_groups * (expert_count / groups) {
        let found = format!("{top_groups} of {groups} groups, {top_k} of {expert_count} experts");
        return Err(fields.error("n_group", found, "groups of equal size with enough experts in the eligible ones"));
    }
    Ok(Routing {
        top_k,
        gating: Gating::Sigmoid,
        normalized: fields.flag("norm_topk_prob", true)?,
        scale: fields.number("routed_scaling_factor")?.unwrap_or(1.0),
        bias: None,
        group_limit: (groups > 1).then_some(GroupLimit { groups, top_groups, group_score_experts: 2 }),
    })
}
