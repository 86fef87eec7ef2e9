//! Mamba-2: state spaces with one decay per head, without feed-forward networks.
//!
//! # Classes
//! `Mamba2ForCausalLM` (also Codestral-Mamba).
//!
//! # Unusual options
//! `n_groups`, `time_step_limit` (which transformers applies in the parallel forward pass only; this crate applies it to every token), `use_bias`,
//! `use_conv_bias`, tied embeddings.
//!
//! # GGUF
//! `mamba2`.

use rung_engine::Scalar;

use super::state_space::{self, GatedNormOptions, Mamba2Options};
use super::{FamilyError, Loader};
use crate::mixer::Builtin;
use crate::model::LoadedModel;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["mamba2"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["mamba2"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[];

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    state_space::require_silu(fields, "hidden_act")?;
    let width = fields.required_size("hidden_size")?;
    let epsilon = state_space::backbone_epsilon(fields)?;
    let bias = fields.flag("use_bias", false)?;
    let options = Mamba2Options {
        bias,
        output_bias: bias,
        convolution_bias: fields.flag("use_conv_bias", true)?,
        norm: Some(GatedNormOptions { epsilon, before_gate: false }),
        dt_limit: state_space::dt_limit(fields, "time_step_limit")?,
    };
    state_space::read_backbone_model(loader, "mamba2", (width, epsilon), false, |loader, mixer| {
        state_space::read_mamba2(loader, mixer, width, options)
    })
}
