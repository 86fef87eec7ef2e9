//! Bamba: Mamba-2 with attention in a few layers, and a gated network in each.
//!
//! # Classes
//! `BambaForCausalLM`. Half of a head's channels turn.
//!
//! # Unusual options
//! `mamba_conv_bias`, `mamba_proj_bias`, `attention_bias`, `mlp_bias`, `time_step_limit`, `rope_type`, tied embeddings.
//!
//! # GGUF
//! Not read: llama.cpp has no architecture for it.

use rung_engine::Scalar;

use super::decoder::{self, AttentionParts, OuterParts};
use super::state_space::{self, Mamba2Options};
use super::{FamilyError, Loader, rotary};
use crate::mixer::Builtin;
use crate::model::{Branch, FeedForward, LayerParts, ModelParts};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["bamba"];

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
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-5);
    let (bias, mlp_bias) = (fields.flag("attention_bias", false)?, fields.flag("mlp_bias", false)?);
    let activation = decoder::activation(loader, "silu")?;
    let options = mamba2_options(loader, epsilon)?;
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.within(&format!("model.layers.{index}"), |loader| {
            let norm = loader.rms_norm("input_layernorm", width, epsilon)?;
            let mixer = if layer.mixers.iter().any(|mixer| mixer.name() == "mamba2") {
                let mixer = state_space::mixer_of(loader, layer, "mamba2")?;
                loader.within("mamba", |loader| state_space::mamba2(loader, mixer, width, options))?
            } else {
                let mixer = decoder::attention_of(loader, layer)?;
                let head = mixer.number("key").unwrap_or_default() as usize;
                let rotation = rotary::half_by_default(fields, head, "full_attention", 10_000.0)?;
                let parts = AttentionParts { bias, output_bias: bias, ..AttentionParts::plain(rotation) };
                loader.within("self_attn", |loader| decoder::attention(loader, mixer, width, parts))?
            };
            let channel_norm = loader.rms_norm("pre_ff_layernorm", width, epsilon)?;
            let sizes = [width, hidden];
            let network =
                loader.within("feed_forward", |loader| decoder::gated_network(loader, sizes, mlp_bias, activation))?;
            Ok::<_, FamilyError>(LayerParts {
                mixers: (Branch::of(norm), vec![mixer]),
                channel: Some((Branch::of(channel_norm), FeedForward::Dense(network))),
            })
        })?);
    }
    OuterParts { norm: "final_layernorm", ..OuterParts::plain(epsilon) }.assemble_model(loader, layers)
}

/// The options that Bamba, Granite 4 and Falcon-H1 spell alike.
pub(super) fn mamba2_options<S: Scalar>(loader: &Loader<'_, S>, epsilon: f64) -> Result<Mamba2Options, FamilyError> {
    let fields = loader.fields;
    let bias = fields.flag("mamba_proj_bias", false)?;
    Ok(Mamba2Options {
        bias,
        output_bias: bias,
        convolution_bias: fields.flag("mamba_conv_bias", true)?,
        norm: Some((epsilon, false)),
        step_range: state_space::step_range(fields, "time_step_limit")?,
    })
}
