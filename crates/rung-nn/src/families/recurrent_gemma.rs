//! RecurrentGemma (Griffin): RG-LRU recurrences and sliding-window attention, Gemma's norms, and a gated MLP whose width is half of `intermediate_size`.
//!
//! # Classes
//! `RecurrentGemmaForCausalLM`. Embeddings are multiplied by the square root of the width, rounded to bfloat16 for every format of weights.
//!
//! # Unusual options
//! `lru_width`, `conv1d_width`, `block_types`, `attention_bias`, `partial_rotary_factor` (half by default), `logits_soft_cap`.
//!
//! # GGUF
//! Not supported: llama.cpp does not have this architecture.

use rung_engine::{Role, Scalar};
use rung_theory::stack::Mixer;

use super::decoder::{self, AttentionOptions, DecoderOptions};
use super::{FamilyError, Loader, rotary, state_space};
use crate::mixer::rglru::{RgLruConfig, RgLruWeights};
use crate::mixer::{Builtin, MixerConfig as _};
use crate::model::{Activation, FeedForward, LoadedLayer, LoadedModel, Norm, ResidualBranch};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["recurrent_gemma"];

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
    let activation = decoder::activation(loader, "gelu_pytorch_tanh")?;
    if activation != Activation::GeluTanh {
        return Err(fields.error("hidden_activation", format!("{activation:?}"), "gelu_pytorch_tanh"));
    }
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")? / 2);
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-6);
    let bias = fields.flag("attention_bias", false)?;
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.with_prefix(&format!("model.layers.{index}"), |loader| {
            let branch = |loader: &mut Loader<'_, S>, name: &str| {
                let gain = loader.norm_weight_plus_one(name, width)?;
                Ok::<_, FamilyError>(ResidualBranch::with_norm(Norm::from_weights(gain, None, epsilon)))
            };
            let mixer_branch = branch(loader, "temporal_pre_norm")?;
            let mixer = if layer.mixers.iter().any(|mixer| mixer.name() == "rglru") {
                let mixer = state_space::only_mixer(loader, layer, "rglru")?;
                loader.with_prefix("temporal_block", |loader| read_rg_lru(loader, mixer, width))?
            } else {
                let mixer = decoder::attention_mixer(loader, layer)?;
                let head = mixer.number("key").unwrap_or_default() as usize;
                let rotation = rotary::rotation_of_half_by_default(fields, head, "sliding_attention", 10_000.0)?;
                let attention_options = AttentionOptions { bias, output_bias: true, ..AttentionOptions::new(rotation) };
                loader.with_prefix("temporal_block", |loader| {
                    decoder::read_attention(loader, mixer, width, attention_options)
                })?
            };
            let feed_forward_branch = branch(loader, "channel_pre_norm")?;
            let sizes = [width, hidden];
            let mlp =
                loader.with_prefix("mlp_block", |loader| decoder::read_gated_mlp(loader, sizes, true, activation))?;
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch,
                mixers: vec![mixer],
                feed_forward: Some((feed_forward_branch, FeedForward::Mlp(mlp))),
            })
        })?);
    }
    let decoder_options = DecoderOptions {
        norm: "final_norm",
        embedding_scale: Some(round_to_bfloat16((width as f64).sqrt())),
        norm_plus_one: true,
        logit_cap: Some(fields.positive("logits_soft_cap")?.unwrap_or(30.0)),
        tied_by_default: true,
        ..DecoderOptions::new(epsilon)
    };
    decoder_options.assemble_model(loader, layers)
}

/// Reads an RG-LRU recurrence with its gates.
fn read_rg_lru<S: Scalar>(loader: &mut Loader<'_, S>, mixer: &Mixer, width: usize) -> Result<Builtin, FamilyError> {
    let config = RgLruConfig::resolve(mixer)?;
    let RgLruConfig { inner, heads, kernel_size } = config;
    let channels = inner / heads;
    let mut gate = |name: &str| {
        let weight = loader.tensor(&format!("rg_lru.{name}_weight"), &[heads, channels, channels])?;
        Ok::<_, FamilyError>((weight, loader.tensor(&format!("rg_lru.{name}_bias"), &[heads, channels])?))
    };
    let (input_gate, recurrence_gate) = (gate("input_gate")?, gate("recurrent_gate")?);
    let filters = loader.tensor("conv_1d.weight", &[inner, 1, kernel_size])?;
    Ok(Builtin::RgLru(config.assemble(RgLruWeights {
        gate: loader.linear("linear_y", width, inner, true)?,
        input: loader.linear("linear_x", width, inner, true)?,
        convolution: (filters, Some(loader.tensor("conv_1d.bias", &[inner])?)),
        input_gate,
        recurrence_gate,
        rate_logits: loader.tensor("rg_lru.recurrent_param", &[inner])?,
        output: loader.with_role(Role::Output).linear("linear_out", inner, width, true)?,
    })))
}

/// The nearest bfloat16 number; ties to even.
fn round_to_bfloat16(x: f64) -> f64 {
    let bits = (x as f32).to_bits();
    f64::from(f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000))
}
