//! Nemotron-H, Nemotron Nano 2 and Nemotron 3: Mamba-2, attention without positions, networks and experts, each in a slot of its own.
//!
//! # Classes
//! `NemotronHForCausalLM`. It ignores `attention_bias` and `time_step_limit`, and keeps steps above `time_step_min` for whole prompts only; here
//! that holds for every token.
//!
//! # Unusual options
//! `moe_latent_size`, `n_group`, `norm_topk_prob`, `routed_scaling_factor`, `use_bias`, `mlp_bias`, `use_conv_bias`, `mlp_hidden_act`.
//!
//! # GGUF
//! `nemotron_h`, without experts. llama.cpp does not limit steps, so they are not limited in its files.

use rung_audit::json::JsonValue;
use rung_engine::{Role, Scalar};

use super::decoder::{self, AttentionParts, OuterParts};
use super::state_space::{self, Mamba2Options};
use super::{FamilyError, Fields, Loader};
use crate::mixer::Builtin;
use crate::mixer::none::NoMixer;
use crate::model::{
    Activation, Branch, FeedForward, Dense, Experts, Gating, GroupLimit, LayerParts, ModelParts, Norm, Routing,
};
use crate::position::Rotation;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["nemotron_h"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["nemotron_h"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[
    ("mixer.q_proj", "attn_q"),
    ("mixer.k_proj", "attn_k"),
    ("mixer.v_proj", "attn_v"),
    ("mixer.o_proj", "attn_output"),
    ("mixer.up_proj", "ffn_up"),
    ("mixer.down_proj", "ffn_down"),
];

/// Reads a network.
///
/// # Errors
/// A field or a tensor is not what it should be.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<ModelParts<Builtin>, FamilyError> {
    let fields = loader.fields;
    fields.refuse("num_nextn_predict_layers", "no layers for the prediction of several tokens")?;
    state_space::only_silu(fields, "mamba_hidden_act")?;
    let width = fields.required_size("hidden_size")?;
    let epsilon = match fields.positive("layer_norm_epsilon")? {
        Some(epsilon) => epsilon,
        None => fields.positive("rms_norm_eps")?.unwrap_or(1e-5),
    };
    let bias = fields.flag("use_bias", false)?;
    let shortest = fields.number("time_step_min")?.unwrap_or(1e-3);
    let options = Mamba2Options {
        bias,
        output_bias: bias,
        convolution_bias: fields.flag("use_conv_bias", true)?,
        norm: Some((epsilon, false)),
        step_range: (!loader.is_gguf()).then_some([shortest, f64::INFINITY]),
    };
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.within(&format!("backbone.layers.{index}"), |loader| {
            let norm = loader.rms_norm("norm", width, epsilon)?;
            let name = layer.mixers.first().map_or("none", |mixer| mixer.name());
            let mixer = match name {
                "none" => {
                    let channel = loader.within("mixer", |loader| {
                        loader.own_part("mlp", |loader| channel(loader, index, width))
                    })?;
                    let nothing = (Branch::of(Norm::of(None, None, 0.0)), vec![Builtin::NoMixer(NoMixer)]);
                    return Ok(LayerParts { mixers: nothing, channel: Some((Branch::of(norm), channel)) });
                }
                "mamba2" => {
                    let mixer = state_space::mixer_of(loader, layer, "mamba2")?;
                    loader.within("mixer", |loader| state_space::mamba2(loader, mixer, width, options))?
                }
                _ => {
                    let mixer = decoder::attention_of(loader, layer)?;
                    let parts = AttentionParts::plain(None::<Rotation>);
                    loader.within("mixer", |loader| decoder::attention(loader, mixer, width, parts))?
                }
            };
            Ok::<_, FamilyError>(LayerParts { mixers: (Branch::of(norm), vec![mixer]), channel: None })
        })?);
    }
    let frame = OuterParts { prefix: "backbone", embedding: "embeddings", norm: "norm_f", ..OuterParts::plain(epsilon) };
    frame.assemble_model(loader, layers)
}

/// Whether a slot without a token mixer holds experts: older files spell slots as letters.
fn holds_experts(fields: &Fields, index: usize) -> Result<bool, FamilyError> {
    let words = match fields.list("layers_block_type")? {
        Some(words) => Some(words),
        None => fields.list("layer_types")?,
    };
    Ok(match words {
        Some(words) => words.get(index) == Some(&JsonValue::Text("moe".to_owned())),
        None => fields.text("hybrid_override_pattern")?.is_some_and(|letters| letters.chars().nth(index) == Some('E')),
    })
}

/// The width of a network's hidden channels; GGUF files list one for every slot.
fn hidden_size(fields: &Fields, index: usize) -> Result<usize, FamilyError> {
    let Some(JsonValue::List(sizes)) = fields.get("intermediate_size") else {
        return fields.required_size("intermediate_size");
    };
    let size = match sizes.get(index) {
        Some(JsonValue::Number(text)) => text.parse().ok().filter(|size| (1..1 << 24).contains(size)),
        _ => None,
    };
    size.ok_or_else(|| fields.wrong("intermediate_size", format!("none for slot {index}"), "a whole number from 1"))
}

/// A network, or experts beside a shared one. None has a gate.
fn channel<S: Scalar>(loader: &mut Loader<'_, S>, index: usize, width: usize) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let bias = fields.flag("mlp_bias", false)?;
    let activation = match fields.text("mlp_hidden_act")? {
        None | Some("relu2") => Activation::ReluSquared,
        Some("silu") => Activation::Silu,
        Some("relu") => Activation::Relu,
        Some("gelu") => Activation::GeluExact,
        Some(other) => return Err(fields.wrong("mlp_hidden_act", format!("`{other}`"), "relu2, silu, relu or gelu")),
    };
    let network = |loader: &mut Loader<'_, S>, [width, hidden]: [usize; 2], bias: bool| {
        Ok::<_, FamilyError>(Dense {
            gate: None,
            up: loader.linear("up_proj", width, hidden, bias)?,
            down: loader.role(Role::Output).linear("down_proj", hidden, width, bias)?,
            activation,
        })
    };
    if !holds_experts(fields, index)? {
        let hidden = hidden_size(fields, index)?;
        return Ok(FeedForward::Dense(network(loader, [width, hidden], bias)?));
    }
    let (count, hidden) = (fields.required_size("n_routed_experts")?, fields.required_size("moe_intermediate_size")?);
    let shared_hidden = fields.required_size("moe_shared_expert_intermediate_size")?;
    let router = loader.linear("gate", width, count, false)?;
    let choice_bias = loader.tensor("gate.e_score_correction_bias", &[count])?;
    let latent_width = fields.size("moe_latent_size")?;
    let latent = match latent_width {
        Some(latent) => Some((
            loader.linear("fc1_latent_proj", width, latent, bias)?,
            loader.linear("fc2_latent_proj", latent, width, bias)?,
        )),
        None => None,
    };
    let inputs = latent_width.unwrap_or(width);
    let experts = (0..count)
        .map(|expert| {
            loader.within(&format!("experts.{expert}"), |loader| network(loader, [inputs, hidden], false))
        })
        .collect::<Result<_, _>>()?;
    let shared = loader.within("shared_experts", |loader| network(loader, [width, shared_hidden], bias))?;
    Ok(FeedForward::Experts(Box::new(Experts {
        router,
        routing: Routing { bias: Some(choice_bias), ..routing(fields, count)? },
        experts,
        latent,
        shared: Some(shared),
        shared_gate: None,
    })))
}

/// How experts are picked: by logistic scores, from the best groups.
fn routing(fields: &Fields, count: usize) -> Result<Routing, FamilyError> {
    let groups = fields.size("n_group")?.unwrap_or(1);
    let eligible = fields.size("topk_group")?.unwrap_or(1);
    let chosen = fields.required_size("num_experts_per_tok")?;
    if !count.is_multiple_of(groups) || eligible > groups || chosen > eligible * (count / groups) {
        let found = format!("{eligible} of {groups} groups, {chosen} of {count} experts");
        return Err(fields.wrong("n_group", found, "groups of equal size with enough experts in those that are eligible"));
    }
    Ok(Routing {
        chosen,
        gating: Gating::Sigmoid,
        normed: fields.flag("norm_topk_prob", true)?,
        scale: fields.number("routed_scaling_factor")?.unwrap_or(1.0),
        bias: None,
        limit: (groups > 1).then_some(GroupLimit { groups, chosen: eligible, best: 2 }),
    })
}
