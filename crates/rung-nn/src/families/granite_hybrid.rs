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
//! `granitehybrid`, without positions; files of Bamba, which have the same architecture's name and turn queries and keys, are refused.

use rung_engine::Scalar;

use super::decoder::{self, AttentionParts, OuterParts};
use super::{FamilyError, Loader, bamba, experts, state_space};
use crate::mixer::Builtin;
use crate::model::{Activation, Branch, FeedForward, Dense, Experts, Gating, LayerParts, ModelParts, Norm, Routing};

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
    fields.refuse("rope_scaling_finetuned", "no positions in a GGUF file of this family")?;
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
    let frame = OuterParts {
        embedding_scale: fields.number("embedding_multiplier")?,
        logit_scale: 1.0 / fields.positive("logits_scaling")?.unwrap_or(1.0),
        ..OuterParts::plain(epsilon)
    };
    frame.assemble_model(loader, layers)
}

/// The shared network, beside experts if there are any.
fn channel<S: Scalar>(loader: &mut Loader<'_, S>, width: usize) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    // Zero experts are legal.
    let name = if loader.is_gguf() { "num_experts" } else { "num_local_experts" };
    let default = if loader.is_gguf() { 0.0 } else { 8.0 };
    let count = if fields.number(name)?.unwrap_or(default) == 0.0 { 0 } else { fields.size(name)?.unwrap_or(8) };
    let shared = shared_network(loader, width, count > 0)?;
    if count == 0 {
        return Ok(FeedForward::Dense(shared));
    }
    let hidden = fields.required_size("intermediate_size")?;
    loader.within("block_sparse_moe", |loader| {
        let router = loader.linear("router.layer", width, count, false)?;
        let experts = if loader.is_gguf() {
            loader.within("experts", |loader| {
                experts::stacked_experts(loader, count, [width, hidden], Activation::Silu)
            })?
        } else {
            let both = loader.values("input_linear.weight", &[count, 2 * hidden, width])?;
            let down = loader.values("output_linear.weight", &[count, width, hidden])?;
            let all = both.chunks(2 * hidden * width).zip(down.chunks(hidden * width)).enumerate();
            let network = |(expert, (both, down)): (usize, (&[S], &[S]))| {
                let (gate, up) = both.split_at(hidden * width);
                let name = format!("experts.{expert}.");
                decoder::gated_network_of(loader, &name, [width, hidden], [gate, up, down], Activation::Silu)
            };
            all.map(network).collect()
        };
        let routing = Routing {
            chosen: fields.size("num_experts_per_tok")?.unwrap_or(2).min(count),
            gating: Gating::SoftmaxOfChosen,
            normed: false,
            scale: 1.0,
            bias: None,
            limit: None,
        };
        let experts = Experts { router, routing, experts, latent: None, shared: Some(shared), shared_gate: None };
        Ok(FeedForward::Experts(Box::new(experts)))
    })
}

/// The shared network, whose gate and other half transformers stores one after the other. In GGUF files without experts it has the
/// names of an ordinary network.
fn shared_network<S: Scalar>(
    loader: &mut Loader<'_, S>,
    width: usize,
    beside_experts: bool,
) -> Result<Dense, FamilyError> {
    let fields = loader.fields;
    if loader.is_gguf() {
        let names = if beside_experts {
            ("shared_intermediate_size", "shared_mlp")
        } else {
            ("intermediate_size", "mlp")
        };
        let sizes = [width, fields.required_size(names.0)?];
        return loader.within(names.1, |loader| decoder::gated_network(loader, sizes, false, Activation::Silu));
    }
    let hidden = fields.required_size("shared_intermediate_size")?;
    loader.within("shared_mlp", |loader| {
        let both = loader.values("input_linear.weight", &[2 * hidden, width])?;
        let down = loader.values("output_linear.weight", &[width, hidden])?;
        let (gate, up) = both.split_at(hidden * width);
        Ok(decoder::gated_network_of(loader, "", [width, hidden], [gate, up, &down], Activation::Silu))
    })
}
