//! Granite 4 hybrid: Mamba-2 with attention in a few layers, experts beside a shared network, and factors in many places.
//!
//! # Classes
//! `GraniteMoeHybridForCausalLM` (Granite-4.0-H; without experts the shared network is the whole feed-forward part).
//!
//! # Unusual options
//! `position_embedding_type` rope, `attention_multiplier`, `residual_multiplier`, `embedding_multiplier`, `logits_scaling` (a divisor),
//! biases, `time_step_limit`.
//!
//! # GGUF
//! Not read.

use rung_engine::{Role, Scalar};

use super::decoder::{self, AttentionParts, Frame};
use super::{FamilyError, Loader, bamba, state_space};
use crate::mixer::Builtin;
use crate::model::{Activation, Branch, FeedForward, Dense, Experts, Gating, LayerParts, ModelParts, Norm, Routing};
use crate::parts::Linear;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["granitemoehybrid"];

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
    state_space::only_silu(fields, "hidden_act")?;
    let width = fields.required_size("hidden_size")?;
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-6);
    let bias = fields.flag("attention_bias", false)?;
    let options = bamba::mamba2_options(loader, epsilon)?;
    let turns = match fields.text("position_embedding_type")? {
        None | Some("nope") => false,
        Some("rope") => true,
        Some(other) => return Err(fields.wrong("position_embedding_type", format!("`{other}`"), "rope or none")),
    };
    let scale = Some(fields.number("attention_multiplier")?.unwrap_or(1.0));
    let residual = fields.number("residual_multiplier")?;
    let branch = |norm: Norm| Branch { scale: residual, ..Branch::of(norm) };
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.within(&format!("model.layers.{index}"), |loader| {
            let norm = loader.rms_norm("input_layernorm", width, epsilon)?;
            let mixer = if layer.mixers.iter().any(|mixer| mixer.name() == "mamba2") {
                let mixer = state_space::mixer_of(loader, layer, "mamba2")?;
                loader.within("mamba", |loader| state_space::mamba2(loader, mixer, width, options))?
            } else {
                let mixer = decoder::attention_of(loader, layer)?;
                let rotation = if turns { Some(loader.rotation(mixer, 10_000.0)?) } else { None };
                let parts = AttentionParts { bias, output_bias: bias, scale, ..AttentionParts::plain(rotation) };
                loader.within("self_attn", |loader| decoder::attention(loader, mixer, width, parts))?
            };
            let channel_norm = loader.rms_norm("post_attention_layernorm", width, epsilon)?;
            Ok::<_, FamilyError>(LayerParts {
                mixers: (branch(norm), vec![mixer]),
                channel: Some((branch(channel_norm), channel(loader, width)?)),
            })
        })?);
    }
    let frame = Frame {
        embedding_scale: fields.number("embedding_multiplier")?,
        logit_scale: 1.0 / fields.positive("logits_scaling")?.unwrap_or(1.0),
        ..Frame::plain(epsilon)
    };
    frame.around(loader, layers)
}

/// The shared network, beside experts if there are any.
fn channel<S: Scalar>(loader: &mut Loader<'_, S>, width: usize) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let hidden = fields.required_size("shared_intermediate_size")?;
    let shared = loader.within("shared_mlp", |loader| {
        let both = loader.values("input_linear.weight", &[2 * hidden, width])?;
        let down = loader.values("output_linear.weight", &[width, hidden])?;
        Ok::<_, FamilyError>(network(loader, "", [width, hidden], &both, &down))
    })?;
    // Zero experts are legal.
    let count = fields.number("num_local_experts")?.unwrap_or(8.0);
    if count == 0.0 {
        return Ok(FeedForward::Dense(shared));
    }
    let (count, hidden) = (fields.size("num_local_experts")?.unwrap_or(8), fields.required_size("intermediate_size")?);
    loader.within("block_sparse_moe", |loader| {
        let router = loader.linear("router.layer", width, count, false)?;
        let both = loader.values("input_linear.weight", &[count, 2 * hidden, width])?;
        let down = loader.values("output_linear.weight", &[count, width, hidden])?;
        let sizes = both.chunks(2 * hidden * width).zip(down.chunks(hidden * width)).enumerate();
        let experts = sizes
            .map(|(expert, (both, down))| network(loader, &format!("experts.{expert}."), [width, hidden], both, down))
            .collect();
        let routing = Routing {
            chosen: fields.size("num_experts_per_tok")?.unwrap_or(2).min(count),
            gating: Gating::SoftmaxOfChosen,
            normed: false,
            scale: 1.0,
            bias: None,
            limit: None,
        };
        Ok(FeedForward::Experts(Box::new(Experts {
            router,
            routing,
            experts,
            latent: None,
            shared: Some(shared),
            shared_gate: None,
        })))
    })
}

/// A gated network whose gate and other half are stored one after the other.
fn network<S: Scalar>(
    loader: &mut Loader<'_, S>,
    name: &str,
    [width, hidden]: [usize; 2],
    both: &[S],
    down: &[S],
) -> Dense {
    let mut linear = |role: Role, part: &str, shape: [usize; 2], values: &[S]| Linear {
        weight: loader.role(role).add(&format!("{name}{part}.weight"), &shape, values.to_vec()),
        bias: None,
    };
    let (gate, up) = both.split_at(hidden * width);
    Dense {
        gate: Some(linear(Role::Other, "gate_proj", [hidden, width], gate)),
        up: linear(Role::Other, "up_proj", [hidden, width], up),
        down: linear(Role::Output, "down_proj", [width, hidden], down),
        activation: Activation::Silu,
    }
}
