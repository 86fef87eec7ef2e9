//! Gemma 2 and 3: norms before and after each part, windows between full layers, scaled embeddings.
//!
//! # Classes
//! `Gemma2ForCausalLM`, `Gemma3ForCausalLM` (text only).
//!
//! # Unusual options
//! Caps on scores and logits (2; 3 has fields for them and ignores that of scores), norms on queries and keys (3), a base of its own for
//! the windows' rotation (3), `query_pre_attn_scalar`.
//!
//! # GGUF
//! `gemma2`, `gemma3`: norms are stored with one added. The factor on scores is not stored; llama.cpp knows that the largest
//! models have another one.

use rung_engine::Scalar;
use rung_theory::stack::Mixer;

use super::decoder::{self, AttentionParts, OuterParts, QueryKeyNorm};
use super::{FamilyError, Loader, rotary};
use crate::mixer::Builtin;
use crate::model::{Branch, FeedForward, LayerParts, ModelParts, Norm};
use crate::position::Rotation;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["gemma2", "gemma3_text"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["gemma2", "gemma3"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

/// Layers of the largest model of each generation, 27B, whose scores are scaled by the width per head and not by the head's width.
const LAYERS_OF_27B: [usize; 2] = [46, 62];

/// Reads a network.
///
/// # Errors
/// A field or a tensor is not what it should be.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<ModelParts<Builtin>, FamilyError> {
    let fields = loader.fields;
    fields.refuse("use_bidirectional_attention", "a causal model")?;
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-6);
    let third = fields.text("model_type")?.is_some_and(|name| name.starts_with("gemma3"));
    let bias = fields.flag("attention_bias", false)?;
    let activation = decoder::activation(loader, "gelu_pytorch_tanh")?;
    let norm = if third { QueryKeyNorm::EachHeadBeyondOne } else { QueryKeyNorm::None };
    let score_cap = if third { None } else { fields.positive("attn_logit_softcapping")? };
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        let mixer = decoder::attention_of(loader, layer)?;
        let scale = Some(score_scale(loader, mixer, width)?);
        let rotation = rotation(loader, mixer, third)?;
        let parts = AttentionParts {
            bias,
            output_bias: bias,
            norm,
            epsilon,
            scale,
            score_cap,
            ..AttentionParts::plain(rotation)
        };
        layers.push(loader.within(&format!("model.layers.{index}"), |loader| {
            let around = |loader: &mut Loader<'_, S>, before: &str, after: &str| {
                let norm = Norm::of(Some(loader.gain_beyond_one(before, width)?), None, epsilon);
                let after = Norm::of(Some(loader.gain_beyond_one(after, width)?), None, epsilon);
                Ok::<_, FamilyError>(Branch { norm, after: Some(after), scale: None, carried: None })
            };
            let branch = around(loader, "input_layernorm", "post_attention_layernorm")?;
            let mixer = loader.within("self_attn", |loader| decoder::attention(loader, mixer, width, parts))?;
            let channel_branch = around(loader, "pre_feedforward_layernorm", "post_feedforward_layernorm")?;
            let sizes = [width, hidden];
            let network = loader.within("mlp", |loader| decoder::gated_network(loader, sizes, false, activation))?;
            Ok::<_, FamilyError>(LayerParts {
                mixers: (branch, vec![mixer]),
                channel: Some((channel_branch, FeedForward::Dense(network))),
            })
        })?);
    }
    let frame = OuterParts {
        embedding_scale: Some((width as f64).sqrt()),
        norm_beyond_one: true,
        logit_cap: fields.positive("final_logit_softcapping")?,
        tied_by_default: true,
        ..OuterParts::plain(epsilon)
    };
    frame.assemble_model(loader, layers)
}

/// The factor on scores.
fn score_scale<S: Scalar>(loader: &Loader<'_, S>, mixer: &Mixer, width: usize) -> Result<f64, FamilyError> {
    let key = mixer.number("key").unwrap_or(1) as f64;
    let divisor = if loader.is_gguf() {
        let large = LAYERS_OF_27B.contains(&loader.layers.len());
        if large { width as f64 / mixer.number("heads").unwrap_or(1) as f64 } else { key }
    } else {
        loader.fields.positive("query_pre_attn_scalar")?.unwrap_or(256.0)
    };
    Ok(divisor.powf(-0.5))
}

/// Gemma 3 turns windows by a base of their own, which older configs name in a field of its own, and scales full layers alone.
fn rotation<S: Scalar>(loader: &mut Loader<'_, S>, mixer: &Mixer, third: bool) -> Result<Rotation, FamilyError> {
    let fields = loader.fields;
    if !third || fields.has("rope_parameters") {
        return loader.rotation(mixer, 10_000.0);
    }
    if mixer.name() == "window" {
        let base = fields.positive("rope_local_base_freq")?.unwrap_or(10_000.0);
        return rotary::scaled(fields, None, mixer.number("key").unwrap_or_default() as usize, base);
    }
    loader.rotation(mixer, 1e6)
}
