//! Granite 4 hybrid: Mamba-2 with attention in a few layers, experts beside a shared MLP, and factors on many activations.
//!
//! # Classes
//! `GraniteMoeHybridForCausalLM` (Granite-4.0-H; without experts the shared MLP is the whole feed-forward network).
//!
//! # Unusual options
//! `position_embedding_type` rope, `attention_multiplier`, `residual_multiplier`, `embedding_multiplier`, `logits_scaling` (a divisor),
//! biases, `time_step_limit`.
//!
//! # GGUF
//! `granitehybrid`, without positions; files of Bamba, which have the same architecture name and rotary positions, are rejected.

use rung_engine::Scalar;

use super::decoder::{self, AttentionOptions, DecoderOptions};
use super::{FamilyError, Loader, bamba, experts, state_space};
use crate::mixer::Builtin;
use crate::model::{
    Activation, Experts, FeedForward, Gating, LoadedLayer, LoadedModel, Mlp, Norm, ResidualBranch, Routing,
};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["granitemoehybrid"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["granitehybrid"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[
    ("block_sparse_moe.router.layer", "ffn_gate_inp"),
    ("block_sparse_moe.experts.gate_proj", "ffn_gate_exps"),
    ("block_sparse_moe.experts.up_proj", "ffn_up_exps"),
    ("block_sparse_moe.experts.down_proj", "ffn_down_exps"),
    ("shared_mlp.gate_proj", "ffn_gate_shexp"),
    ("shared_mlp.up_proj", "ffn_up_shexp"),
    ("shared_mlp.down_proj", "ffn_down_shexp"),
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
    let bias = fields.flag("attention_bias", false)?;
    let options = bamba::mamba2_options(loader, epsilon)?;
    fields.reject("rope_scaling_finetuned", "no positions in a GGUF file of this family")?;
    let is_rotary = match fields.text("position_embedding_type")? {
        None | Some("nope") => false,
        Some("rope") => true,
        Some(other) => return Err(fields.error("position_embedding_type", format!("`{other}`"), "rope or none")),
    };
    let scale = Some(fields.number("attention_multiplier")?.unwrap_or(1.0));
    let residual = fields.number("residual_multiplier")?;
    let branch = |norm: Norm| ResidualBranch { output_scale: residual, ..ResidualBranch::with_norm(norm) };
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.with_prefix(&format!("model.layers.{index}"), |loader| {
            let norm = loader.rms_norm("input_layernorm", width, epsilon)?;
            let mixer = state_space::read_mamba2_or_attention(loader, layer, width, options, |loader, mixer| {
                let rotation = if is_rotary { Some(loader.rotation(mixer, 10_000.0)?) } else { None };
                Ok(AttentionOptions { bias, output_bias: bias, scale, ..AttentionOptions::new(rotation) })
            })?;
            let feed_forward_norm = loader.rms_norm("post_attention_layernorm", width, epsilon)?;
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch: branch(norm),
                mixers: vec![mixer],
                feed_forward: Some((branch(feed_forward_norm), read_feed_forward(loader, width)?)),
            })
        })?);
    }
    let decoder_options = DecoderOptions {
        embedding_scale: fields.number("embedding_multiplier")?,
        logit_scale: 1.0 / fields.positive("logits_scaling")?.unwrap_or(1.0),
        ..DecoderOptions::new(epsilon)
    };
    decoder_options.assemble_model(loader, layers)
}

/// The shared MLP, together with the experts if there are any.
fn read_feed_forward<S: Scalar>(loader: &mut Loader<'_, S>, width: usize) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    // Zero experts are allowed.
    let name = if loader.is_gguf() { "num_experts" } else { "num_local_experts" };
    let default = if loader.is_gguf() { 0.0 } else { 8.0 };
    let expert_count = if fields.number(name)?.unwrap_or(default) == 0.0 { 0 } else { fields.size(name)?.unwrap_or(8) };
    let shared = read_shared_mlp(loader, width, expert_count > 0)?;
    if expert_count == 0 {
        return Ok(FeedForward::Mlp(shared));
    }
    let hidden = fields.required_size("intermediate_size")?;
    loader.with_prefix("block_sparse_moe", |loader| {
        let router = loader.linear("router.layer", width, expert_count, false)?;
        let experts = if loader.is_gguf() {
            loader.with_prefix("experts", |loader| {
                experts::read_stacked_experts(loader, expert_count, [width, hidden], Activation::Silu)
            })?
        } else {
            let gate_up = loader.values("input_linear.weight", &[expert_count, 2 * hidden, width])?;
            let down = loader.values("output_linear.weight", &[expert_count, width, hidden])?;
            let stacked = gate_up.chunks(2 * hidden * width).zip(down.chunks(hidden * width)).enumerate();
            let expert = |(index, (gate_up, down)): (usize, (&[S], &[S]))| {
                let (gate, up) = gate_up.split_at(hidden * width);
                let name = format!("experts.{index}.");
                decoder::add_gated_mlp(loader, &name, [width, hidden], [gate, up, down], Activation::Silu)
            };
            stacked.map(expert).collect()
        };
        let routing =
            Routing::new(fields.size("num_experts_per_tok")?.unwrap_or(2).min(expert_count), Gating::SoftmaxOfTopK);
        let experts = Experts { shared: Some(shared), ..Experts::new(router, routing, experts) };
        Ok(FeedForward::Experts(Box::new(experts)))
    })
}

/// The shared MLP, whose gate and up projections transformers stores in one tensor. In GGUF files without experts it has the names of an
/// ordinary MLP.
fn read_shared_mlp<S: Scalar>(loader: &mut Loader<'_, S>, width: usize, has_experts: bool) -> Result<Mlp, FamilyError> {
    let fields = loader.fields;
    if loader.is_gguf() {
        let names = if has_experts { ("shared_intermediate_size", "shared_mlp") } else { ("intermediate_size", "mlp") };
        let sizes = [width, fields.required_size(names.0)?];
        return loader.with_prefix(names.1, |loader| decoder::read_gated_mlp(loader, sizes, false, Activation::Silu));
    }
    let hidden = fields.required_size("shared_intermediate_size")?;
    loader.with_prefix("shared_mlp", |loader| {
        let gate_up = loader.values("input_linear.weight", &[2 * hidden, width])?;
        let down = loader.values("output_linear.weight", &[width, hidden])?;
        let (gate, up) = gate_up.split_at(hidden * width);
        Ok(decoder::add_gated_mlp(loader, "", [width, hidden], [gate, up, &down], Activation::Silu))
    })
}
