//! Qwen 2, 2.5 and 3: Llama's shape with biases on queries, keys and values (2), or norms on queries and keys (3).
//!
//! # Classes
//! `Qwen2ForCausalLM`, `Qwen3ForCausalLM`.
//!
//! # Unusual options
//! Windows in some layers (`layer_types`), `attention_bias` (3), tied embeddings.
//!
//! # GGUF
//! `qwen2`, `qwen3`: the halves of a head turn together, as in transformers.

use rung_engine::Scalar;

use super::decoder::{self, AttentionParts, OuterParts, QueryKeyNorm};
use super::{FamilyError, Loader};
use crate::mixer::Builtin;
use crate::model::{FeedForward, ModelParts};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["qwen2", "qwen3"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["qwen2", "qwen3"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[];

/// Reads a network.
///
/// # Errors
/// A field or a tensor is not what it should be.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<ModelParts<Builtin>, FamilyError> {
    let fields = loader.fields;
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-6);
    let third = fields.text("model_type")? == Some("qwen3");
    let bias = if third { fields.flag("attention_bias", false)? } else { true };
    let norm = if third { QueryKeyNorm::EachHead } else { QueryKeyNorm::None };
    let activation = decoder::activation(loader, "silu")?;
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        let mixer = decoder::attention_of(loader, layer)?;
        let plain = AttentionParts::plain(loader.rotation(mixer, 10_000.0)?);
        let parts = AttentionParts { bias, output_bias: third && bias, norm, epsilon, ..plain };
        layers.push(decoder::pre_norm_layer(loader, index, mixer, (width, epsilon), parts, |loader| {
            Ok(FeedForward::Dense(decoder::gated_network(loader, [width, hidden], false, activation)?))
        })?);
    }
    OuterParts::plain(epsilon).assemble_model(loader, layers)
}
