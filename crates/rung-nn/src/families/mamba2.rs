//! Mamba-2: state spaces with one decay per head, without a feed-forward part.
//!
//! # Classes
//! `Mamba2ForCausalLM` (also Codestral-Mamba).
//!
//! # Unusual options
//! `n_groups`, `time_step_limit` (which transformers itself heeds for whole prompts only; here it holds for every token), `use_bias`,
//! `use_conv_bias`, tied embeddings.
//!
//! # GGUF
//! `mamba2`.

use rung_engine::Scalar;

use super::decoder::OuterParts;
use super::state_space::{self, Mamba2Options};
use super::{FamilyError, Loader};
use crate::mixer::Builtin;
use crate::model::{Branch, LayerParts, ModelParts};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["mamba2"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["mamba2"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[];

/// Reads a network.
///
/// # Errors
/// A field or a tensor is not what it should be.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<ModelParts<Builtin>, FamilyError> {
    let fields = loader.fields;
    state_space::only_silu(fields, "hidden_act")?;
    let width = fields.required_size("hidden_size")?;
    let epsilon = match fields.positive("layer_norm_epsilon")? {
        Some(epsilon) => epsilon,
        None => fields.positive("rms_norm_eps")?.unwrap_or(1e-5),
    };
    let bias = fields.flag("use_bias", false)?;
    let options = Mamba2Options {
        bias,
        output_bias: bias,
        convolution_bias: fields.flag("use_conv_bias", true)?,
        norm: Some((epsilon, false)),
        step_range: state_space::step_range(fields, "time_step_limit")?,
    };
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        let mixer = state_space::mixer_of(loader, layer, "mamba2")?;
        layers.push(loader.within(&format!("backbone.layers.{index}"), |loader| {
            let norm = loader.rms_norm("norm", width, epsilon)?;
            let mixer = loader.within("mixer", |loader| state_space::mamba2(loader, mixer, width, options))?;
            Ok::<_, FamilyError>(LayerParts { mixers: (Branch::of(norm), vec![mixer]), channel: None })
        })?);
    }
    let frame = OuterParts { prefix: "backbone", embedding: "embeddings", norm: "norm_f", ..OuterParts::plain(epsilon) };
    frame.assemble_model(loader, layers)
}
