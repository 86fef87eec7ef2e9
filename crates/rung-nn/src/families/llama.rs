//! Llama, Mistral, SmolLM: pre-norm decoders with rotary positions, grouped-query attention and a gated MLP.
//!
//! # Classes
//! `LlamaForCausalLM` (also SmolLM and SmolLM2), `MistralForCausalLM` (a window in every layer, if set).
//!
//! # Unusual options
//! `attention_bias`, `mlp_bias`, `head_dim`, `rope_type` llama3, yarn, linear; tied embeddings.
//!
//! # GGUF
//! `llama`: the two channels of each rotary pair are interleaved; `rope_freqs` divides the frequencies.

use rung_engine::Scalar;

use super::decoder::{self, AttentionOptions, DecoderOptions};
use super::{FamilyError, Loader};
use crate::mixer::Builtin;
use crate::model::{FeedForward, LoadedModel};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["llama", "mistral", "smollm"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["llama"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[];

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-6);
    // GGUF headers do not say whether there are biases.
    let has_bias = |loader: &Loader<'_, S>, name: &str, module: &str| {
        let bias = format!("model.layers.0.{module}.bias");
        if loader.is_gguf() { Ok(loader.has(&bias)) } else { fields.flag(name, false) }
    };
    let bias = has_bias(loader, "attention_bias", "self_attn.q_proj")?;
    let output_bias = has_bias(loader, "attention_bias", "self_attn.o_proj")?;
    let mlp_bias = has_bias(loader, "mlp_bias", "mlp.gate_proj")?;
    let activation = decoder::activation(loader, "silu")?;
    let attention_options = |defaults| AttentionOptions { bias, output_bias, interleaved_pairs: true, ..defaults };
    let layers = decoder::read_pre_norm_layers(loader, (width, epsilon), 10_000.0, attention_options, |loader| {
        Ok(FeedForward::Mlp(decoder::read_gated_mlp(loader, [width, hidden], mlp_bias, activation)?))
    })?;
    DecoderOptions::new(epsilon).assemble_model(loader, layers)
}
