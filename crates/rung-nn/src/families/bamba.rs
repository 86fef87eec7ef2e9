//! Bamba: Mamba-2 with attention in a few layers, and a gated MLP in each.
//!
//! # Classes
//! `BambaForCausalLM`. Rotary positions apply to half of a head's channels.
//!
//! # Unusual options
//! `mamba_conv_bias`, `mamba_proj_bias`, `attention_bias`, `mlp_bias`, `time_step_limit`, `rope_type`, tied embeddings.
//!
//! # GGUF
//! Not supported: llama.cpp does not have this architecture.

use rung_engine::Scalar;

use super::decoder::{self, AttentionOptions, DecoderOptions};
use super::state_space::{self, GatedNormOptions, Mamba2Options};
use super::{FamilyError, Loader, rotary};
use crate::mixer::Builtin;
use crate::model::{FeedForward, LoadedLayer, LoadedModel, ResidualBranch};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["bamba"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &[];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[];

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    state_space::require_silu(fields, "hidden_act")?;
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-5);
    let (bias, mlp_bias) = (fields.flag("attention_bias", false)?, fields.flag("mlp_bias", false)?);
    let activation = decoder::activation(loader, "silu")?;
    let options = mamba2_options(loader, epsilon)?;
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.with_prefix(&format!("model.layers.{index}"), |loader| {
            let norm = loader.rms_norm("input_layernorm", width, epsilon)?;
            let mixer = state_space::read_mamba2_or_attention(loader, layer, width, options, |_, mixer| {
                let head = mixer.number("key").unwrap_or_default() as usize;
                let rotation = rotary::rotation_of_half_by_default(fields, head, "full_attention", 10_000.0)?;
                Ok(AttentionOptions { bias, output_bias: bias, ..AttentionOptions::new(rotation) })
            })?;
            let feed_forward_norm = loader.rms_norm("pre_ff_layernorm", width, epsilon)?;
            let sizes = [width, hidden];
            let mlp = loader
                .with_prefix("feed_forward", |loader| decoder::read_gated_mlp(loader, sizes, mlp_bias, activation))?;
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch: ResidualBranch::with_norm(norm),
                mixers: vec![mixer],
                feed_forward: Some((ResidualBranch::with_norm(feed_forward_norm), FeedForward::Mlp(mlp))),
            })
        })?);
    }
    DecoderOptions { norm: "final_layernorm", ..DecoderOptions::new(epsilon) }.assemble_model(loader, layers)
}

/// The Mamba-2 options that Bamba, Granite 4 and Falcon-H1 have in common.
pub(super) fn mamba2_options<S: Scalar>(loader: &Loader<'_, S>, epsilon: f64) -> Result<Mamba2Options, FamilyError> {
    let fields = loader.fields;
    let bias = fields.flag("mamba_proj_bias", false)?;
    Ok(Mamba2Options {
        bias,
        output_bias: bias,
        convolution_bias: fields.flag("mamba_conv_bias", true)?,
        norm: Some(GatedNormOptions { epsilon, before_gate: false }),
        dt_limit: state_space::dt_limit(fields, "time_step_limit")?,
    })
}
