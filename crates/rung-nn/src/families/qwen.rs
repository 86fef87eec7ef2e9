//! Qwen 2, 2.5 and 3: as Llama, with biases on queries, keys and values (Qwen 2), or norms on queries and keys (Qwen 3).
//!
//! # Classes
//! `Qwen2ForCausalLM`, `Qwen3ForCausalLM`.
//!
//! # Unusual options
//! Windows in some layers (`layer_types`), `attention_bias` (3), tied embeddings.
//!
//! # GGUF
//! `qwen2`, `qwen3`: the first half of a head is paired with the second, as in transformers.

use rung_engine::Scalar;

use super::decoder::{self, AttentionOptions, DecoderOptions, QueryKeyNorm};
use super::{FamilyError, Loader};
use crate::mixer::Builtin;
use crate::model::{FeedForward, LoadedModel};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["qwen2", "qwen3"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["qwen2", "qwen3"];

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
    let is_qwen3 = fields.text("model_type")? == Some("qwen3");
    let bias = if is_qwen3 { fields.flag("attention_bias", false)? } else { true };
    let norm = if is_qwen3 { QueryKeyNorm::EachHead } else { QueryKeyNorm::None };
    let activation = decoder::activation(loader, "silu")?;
    let attention_options =
        |defaults| AttentionOptions { bias, output_bias: is_qwen3 && bias, norm, epsilon, ..defaults };
    let layers = decoder::read_pre_norm_layers(loader, (width, epsilon), 10_000.0, attention_options, |loader| {
        Ok(FeedForward::Mlp(decoder::read_gated_mlp(loader, [width, hidden], false, activation)?))
    })?;
    DecoderOptions::new(epsilon).assemble_model(loader, layers)
}
