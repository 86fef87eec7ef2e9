//! Jamba: Mamba with norms on dt, B and C, attention without positions in a few layers, and experts in some.
//!
//! # Classes
//! `JambaForCausalLM`.
//!
//! # Unusual options
//! `mamba_conv_bias`, `mamba_proj_bias`, `mamba_dt_rank`, one expert only (then no layer has a router), tied embeddings.
//!
//! # GGUF
//! `jamba`: a layer has experts if it has a router.

use rung_engine::Scalar;

use super::decoder::{self, AttentionOptions, DecoderOptions};
use super::state_space::{self, Mamba1Options, XProjNormOptions};
use super::{FamilyError, Loader, experts};
use crate::mixer::Builtin;
use crate::model::{Experts, FeedForward, Gating, LoadedLayer, LoadedModel, ResidualBranch, Routing};
use crate::position::Rotation;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["jamba"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["jamba"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[
    ("feed_forward.router", "ffn_gate_inp"),
    ("feed_forward.experts.gate_proj", "ffn_gate_exps"),
    ("feed_forward.experts.up_proj", "ffn_up_exps"),
    ("feed_forward.experts.down_proj", "ffn_down_exps"),
];

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    state_space::require_silu(fields, "hidden_act")?;
    let width = fields.required_size("hidden_size")?;
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-6);
    let options = Mamba1Options {
        bias: fields.flag("mamba_proj_bias", false)?,
        convolution_bias: fields.flag("mamba_conv_bias", true)?,
        norms: XProjNormOptions::Weighted(epsilon),
    };
    let expert_count = fields.size("num_experts")?.unwrap_or(16);
    let period = fields.size("expert_layer_period")?.unwrap_or(2);
    let offset = fields.number("expert_layer_offset")?.unwrap_or(1.0) as usize;
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.with_prefix(&format!("model.layers.{index}"), |loader| {
            let norm = loader.rms_norm("input_layernorm", width, epsilon)?;
            let mixer = if layer.mixers.iter().any(|mixer| mixer.name() == "mamba1") {
                let mixer = state_space::only_mixer(loader, layer, "mamba1")?;
                loader.with_prefix("mamba", |loader| state_space::read_mamba1(loader, mixer, width, options))?
            } else {
                let mixer = decoder::attention_mixer(loader, layer)?;
                let attention_options = AttentionOptions::new(None::<Rotation>);
                loader.with_prefix("self_attn", |loader| {
                    decoder::read_attention(loader, mixer, width, attention_options)
                })?
            };
            let feed_forward_norm = loader.rms_norm("pre_ff_layernorm", width, epsilon)?;
            let mlp = loader.with_prefix("feed_forward", |loader| {
                let has_experts = if loader.is_gguf() { loader.has("router.weight") } else { index % period == offset };
                read_feed_forward(loader, width, if has_experts { expert_count } else { 1 })
            })?;
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch: ResidualBranch::with_norm(norm),
                mixers: vec![mixer],
                feed_forward: Some((ResidualBranch::with_norm(feed_forward_norm), mlp)),
            })
        })?);
    }
    DecoderOptions { norm: "final_layernorm", ..DecoderOptions::new(epsilon) }.assemble_model(loader, layers)
}

/// One MLP, or experts with routing weights that are not normalized.
fn read_feed_forward<S: Scalar>(
    loader: &mut Loader<'_, S>,
    width: usize,
    expert_count: usize,
) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let hidden = fields.required_size("intermediate_size")?;
    let activation = decoder::activation(loader, "silu")?;
    let mlp = |loader: &mut Loader<'_, S>| decoder::read_gated_mlp(loader, [width, hidden], false, activation);
    if expert_count == 1 {
        return Ok(FeedForward::Mlp(mlp(loader)?));
    }
    let router = loader.linear("router", width, expert_count, false)?;
    let experts = if loader.is_gguf() {
        let sizes = [width, hidden];
        loader
            .with_prefix("experts", |loader| experts::read_stacked_experts(loader, expert_count, sizes, activation))?
    } else {
        let experts = (0..expert_count).map(|index| loader.with_prefix(&format!("experts.{index}"), mlp));
        experts.collect::<Result<_, _>>()?
    };
    let routing = Routing::new(fields.size("num_experts_per_tok")?.unwrap_or(2).min(expert_count), Gating::Softmax);
    let experts = Experts::new(router, routing, experts);
    Ok(FeedForward::Experts(Box::new(experts)))
}
