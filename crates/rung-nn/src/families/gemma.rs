//! Gemma 2 and 3: norms before and after each mixer and MLP, windows between full-attention layers, scaled embeddings.
//!
//! # Classes
//! `Gemma2ForCausalLM`, `Gemma3ForCausalLM`, and the language model of `Gemma3ForConditionalGeneration`, whose vision tensors are ignored.
//!
//! # Unusual options
//! Soft caps on scores and logits (Gemma 2; Gemma 3 ignores the cap on scores), norms on queries and keys (Gemma 3), a separate `rope_theta`
//! for windows (Gemma 3), `query_pre_attn_scalar`.
//!
//! # GGUF
//! `gemma2`, `gemma3`: norms are stored with one added. The factor on scores is not stored; as in llama.cpp, it is
//! determined by the number of layers.

use rung_engine::Scalar;
use rung_theory::stack::Mixer;

use super::decoder::{self, AttentionOptions, DecoderOptions, QueryKeyNorm};
use super::{FamilyError, Loader, rotary};
use crate::mixer::Builtin;
use crate::model::{FeedForward, LoadedLayer, LoadedModel, Norm, ResidualBranch};
use crate::position::Rotation;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["gemma2", "gemma3", "gemma3_text"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["gemma2", "gemma3"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

/// The number of layers of each of the two 27B models, whose scores are scaled by the model width per head instead of the head width.
const LAYER_COUNTS_OF_27B: [usize; 2] = [46, 62];

/// Modules of the language model in a multimodal model, as older and newer versions of transformers save it.
const LANGUAGE_MODELS: [&str; 2] = ["language_model.model", "model.language_model"];

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    let has_embeddings = |module: &&str| loader.has(&format!("{module}.embed_tokens.weight"));
    let prefix = LANGUAGE_MODELS.into_iter().find(has_embeddings).unwrap_or("model");
    for module in ["vision_tower.", "multi_modal_projector."] {
        loader.ignore_prefix(module);
        loader.ignore_prefix(&format!("model.{module}"));
    }
    fields.reject("use_bidirectional_attention", "a causal model")?;
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-6);
    let is_gemma3 = fields.text("model_type")?.is_some_and(|name| name.starts_with("gemma3"));
    let bias = fields.flag("attention_bias", false)?;
    let activation = decoder::activation(loader, "gelu_pytorch_tanh")?;
    let norm = if is_gemma3 { QueryKeyNorm::EachHeadPlusOne } else { QueryKeyNorm::None };
    let score_cap = if is_gemma3 { None } else { fields.positive("attn_logit_softcapping")? };
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        let mixer = decoder::attention_mixer(loader, layer)?;
        let scale = Some(score_scale(loader, mixer, width)?);
        let rotation = rotation(loader, mixer, is_gemma3)?;
        let attention_options = AttentionOptions {
            bias,
            output_bias: bias,
            norm,
            epsilon,
            scale,
            score_cap,
            ..AttentionOptions::new(rotation)
        };
        layers.push(loader.with_prefix(&format!("{prefix}.layers.{index}"), |loader| {
            let read_branch = |loader: &mut Loader<'_, S>, before: &str, after: &str| {
                let norm = Norm::from_weights(loader.norm_weight_plus_one(before, width)?, None, epsilon);
                let after = Norm::from_weights(loader.norm_weight_plus_one(after, width)?, None, epsilon);
                Ok::<_, FamilyError>(ResidualBranch {
                    norm,
                    output_norm: Some(after),
                    output_scale: None,
                    normed_residual_scale: None,
                })
            };
            let mixer_branch = read_branch(loader, "input_layernorm", "post_attention_layernorm")?;
            let mixer = loader
                .with_prefix("self_attn", |loader| decoder::read_attention(loader, mixer, width, attention_options))?;
            let feed_forward_branch = read_branch(loader, "pre_feedforward_layernorm", "post_feedforward_layernorm")?;
            let sizes = [width, hidden];
            let mlp = loader.with_prefix("mlp", |loader| decoder::read_gated_mlp(loader, sizes, false, activation))?;
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch,
                mixers: vec![mixer],
                feed_forward: Some((feed_forward_branch, FeedForward::Mlp(mlp))),
            })
        })?);
    }
    let decoder_options = DecoderOptions {
        prefix,
        embedding_scale: Some((width as f64).sqrt()),
        norm_plus_one: true,
        logit_cap: fields.positive("final_logit_softcapping")?,
        tied_by_default: true,
        ..DecoderOptions::new(epsilon)
    };
    decoder_options.assemble_model(loader, layers)
}

/// The factor on attention scores.
fn score_scale<S: Scalar>(loader: &Loader<'_, S>, mixer: &Mixer, width: usize) -> Result<f64, FamilyError> {
    let key = mixer.number("key").unwrap_or(1) as f64;
    let divisor = if loader.is_gguf() {
        let is_27b = LAYER_COUNTS_OF_27B.contains(&loader.layers.len());
        if is_27b { width as f64 / mixer.number("heads").unwrap_or(1) as f64 } else { key }
    } else {
        loader.fields.positive("query_pre_attn_scalar")?.unwrap_or(256.0)
    };
    Ok(divisor.powf(-0.5))
}

/// Gemma 3 has a separate base for windows (`rope_local_base_freq` in older configs), and scales the rotation of full-attention layers only.
fn rotation<S: Scalar>(loader: &mut Loader<'_, S>, mixer: &Mixer, is_gemma3: bool) -> Result<Rotation, FamilyError> {
    let fields = loader.fields;
    if !is_gemma3 || fields.has("rope_parameters") {
        return loader.rotation(mixer, 10_000.0);
    }
    if mixer.name() == "window" {
        let base = fields.positive("rope_local_base_freq")?.unwrap_or(10_000.0);
        return rotary::scaled_rotation(fields, None, mixer.number("key").unwrap_or_default() as usize, base);
    }
    loader.rotation(mixer, 1e6)
}
