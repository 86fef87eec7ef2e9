//! Mamba and Falcon-Mamba: selective state spaces alone, without feed-forward networks.
//!
//! # Classes
//! `MambaForCausalLM`, `FalconMambaForCausalLM` (norms without weights on dt, B and C).
//!
//! # Unusual options
//! `use_bias`, `use_conv_bias`, `time_step_rank`, `conv_kernel`, `mixer_rms_eps`, embeddings that are not tied.
//!
//! # GGUF
//! `mamba`; `ssm.dt_b_c_rms` marks Falcon-Mamba, whose epsilon there is that of all norms.

use rung_engine::Scalar;

use super::state_space::{self, Mamba1Options, XProjNormOptions};
use super::{FamilyError, Loader};
use crate::mixer::Builtin;
use crate::model::LoadedModel;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["mamba", "falcon_mamba"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["mamba"];

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
    let is_falcon = fields.text("model_type")? == Some("falcon_mamba") || fields.flag("ssm_dt_b_c_rms", false)?;
    let x_proj_epsilon = fields.positive("mixer_rms_eps")?.unwrap_or(if loader.is_gguf() { epsilon } else { 1e-6 });
    let options = Mamba1Options {
        bias: fields.flag("use_bias", false)?,
        convolution_bias: fields.flag("use_conv_bias", true)?,
        norms: if is_falcon { XProjNormOptions::Weightless(x_proj_epsilon) } else { XProjNormOptions::None },
    };
    state_space::read_backbone_model(loader, "mamba1", (width, epsilon), true, |loader, mixer| {
        state_space::read_mamba1(loader, mixer, width, options)
    })
}
