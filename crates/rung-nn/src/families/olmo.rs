//! OLMo 2 and 3: norms after each mixer and MLP and none before, and norms of queries and keys over all heads.
//!
//! # Classes
//! `Olmo2ForCausalLM`, `Olmo3ForCausalLM` (windows between full-attention layers; only the latter scale their rotation).
//!
//! # Unusual options
//! `attention_bias`, `rope_type` yarn on full layers (3).
//!
//! # GGUF
//! `olmo2`, also for OLMo 3.

use rung_engine::Scalar;

use super::decoder::{self, AttentionOptions, DecoderOptions, QueryKeyNorm};
use super::{FamilyError, Loader, rotary};
use crate::mixer::Builtin;
use crate::model::{FeedForward, LoadedLayer, LoadedModel, Norm, ResidualBranch};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["olmo2", "olmo3"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["olmo2"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] =
    &[("post_attention_layernorm", "post_attention_norm"), ("post_feedforward_layernorm", "post_ffw_norm")];

/// Default of `rope_theta`.
const ROPE_THETA: f64 = 500_000.0;

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-6);
    let bias = fields.flag("attention_bias", false)?;
    let activation = decoder::activation(loader, "silu")?;
    let is_olmo3 = fields.text("model_type")? == Some("olmo3") || loader.is_gguf();
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        let mixer = decoder::attention_mixer(loader, layer)?;
        let rotation = if is_olmo3 && mixer.name() == "window" && !fields.has("rope_parameters") {
            let base = fields.positive("rope_theta")?.unwrap_or(ROPE_THETA);
            rotary::scaled_rotation(fields, None, mixer.number("key").unwrap_or_default() as usize, base)?
        } else {
            loader.rotation(mixer, ROPE_THETA)?
        };
        let attention_options = AttentionOptions {
            bias,
            output_bias: bias,
            norm: QueryKeyNorm::AllHeads,
            epsilon,
            ..AttentionOptions::new(rotation)
        };
        layers.push(loader.with_prefix(&format!("model.layers.{index}"), |loader| {
            let norm_after = |loader: &mut Loader<'_, S>, name: &str| {
                let norm = loader.rms_norm(name, width, epsilon)?;
                Ok::<_, FamilyError>(ResidualBranch {
                    norm: Norm::identity(),
                    output_norm: Some(norm),
                    output_scale: None,
                    normed_residual_scale: None,
                })
            };
            let mixer = loader
                .with_prefix("self_attn", |loader| decoder::read_attention(loader, mixer, width, attention_options))?;
            let sizes = [width, hidden];
            let mlp = loader.with_prefix("mlp", |loader| decoder::read_gated_mlp(loader, sizes, false, activation))?;
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch: norm_after(loader, "post_attention_layernorm")?,
                mixers: vec![mixer],
                feed_forward: Some((norm_after(loader, "post_feedforward_layernorm")?, FeedForward::Mlp(mlp))),
            })
        })?);
    }
    DecoderOptions::new(epsilon).assemble_model(loader, layers)
}
