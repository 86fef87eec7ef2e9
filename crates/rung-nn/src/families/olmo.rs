//! OLMo 2 and 3: norms after each part and none before, norms over all heads of queries and keys.
//!
//! # Classes
//! `Olmo2ForCausalLM`, `Olmo3ForCausalLM` (windows between full layers, whose rotation alone is scaled).
//!
//! # Unusual options
//! `attention_bias`, `rope_type` yarn on full layers (3).
//!
//! # GGUF
//! `olmo2`; files with windows (OLMo 3) are refused.

use rung_engine::Scalar;

use super::decoder::{self, AttentionParts, OuterParts, QueryKeyNorm};
use super::{FamilyError, Loader, rotary};
use crate::mixer::Builtin;
use crate::model::{Branch, FeedForward, LayerParts, ModelParts, Norm};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["olmo2", "olmo3"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["olmo2"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] =
    &[("post_attention_layernorm", "post_attention_norm"), ("post_feedforward_layernorm", "post_ffw_norm")];

/// The base of rotations in the classes.
const BASE: f64 = 500_000.0;

/// Reads a network.
///
/// # Errors
/// A field or a tensor is not what it should be.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<ModelParts<Builtin>, FamilyError> {
    let fields = loader.fields;
    if loader.is_gguf() {
        fields.refuse("sliding_window", "none in a GGUF file of this family")?;
    }
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-6);
    let bias = fields.flag("attention_bias", false)?;
    let activation = decoder::activation(loader, "silu")?;
    let third = fields.text("model_type")? == Some("olmo3");
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        let mixer = decoder::attention_of(loader, layer)?;
        let rotation = if third && mixer.name() == "window" && !fields.has("rope_parameters") {
            let base = fields.positive("rope_theta")?.unwrap_or(BASE);
            rotary::scaled(fields, None, mixer.number("key").unwrap_or_default() as usize, base)?
        } else {
            loader.rotation(mixer, BASE)?
        };
        let parts = AttentionParts {
            bias,
            output_bias: bias,
            norm: QueryKeyNorm::AllHeads,
            epsilon,
            ..AttentionParts::plain(rotation)
        };
        layers.push(loader.within(&format!("model.layers.{index}"), |loader| {
            let after = |loader: &mut Loader<'_, S>, name: &str| {
                let norm = loader.rms_norm(name, width, epsilon)?;
                Ok::<_, FamilyError>(Branch { norm: Norm::of(None, None, 0.0), after: Some(norm), scale: None, carried: None })
            };
            let mixer = loader.within("self_attn", |loader| decoder::attention(loader, mixer, width, parts))?;
            let sizes = [width, hidden];
            let network = loader.within("mlp", |loader| decoder::gated_network(loader, sizes, false, activation))?;
            Ok::<_, FamilyError>(LayerParts {
                mixers: (after(loader, "post_attention_layernorm")?, vec![mixer]),
                channel: Some((after(loader, "post_feedforward_layernorm")?, FeedForward::Dense(network))),
            })
        })?);
    }
    OuterParts::plain(epsilon).assemble_model(loader, layers)
}
