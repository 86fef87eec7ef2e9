//! Mamba and Falcon-Mamba: selective state spaces alone, without a feed-forward part.
//!
//! # Classes
//! `MambaForCausalLM`, `FalconMambaForCausalLM` (norms without weights on the step, B and C).
//!
//! # Unusual options
//! `use_bias`, `use_conv_bias`, `time_step_rank`, `conv_kernel`, `mixer_rms_eps`, embeddings that are not tied.
//!
//! # GGUF
//! `mamba`; `ssm.dt_b_c_rms` marks Falcon-Mamba, whose epsilon there is that of all norms.

use rung_engine::Scalar;

use super::decoder::OuterParts;
use super::state_space::{self, Mamba1Options, StepNorms};
use super::{FamilyError, Loader};
use crate::mixer::Builtin;
use crate::model::{Branch, LayerParts, ModelParts};

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["mamba", "falcon_mamba"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["mamba"];

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
    let falcon = fields.text("model_type")? == Some("falcon_mamba") || fields.flag("ssm_dt_b_c_rms", false)?;
    let select_epsilon = fields.positive("mixer_rms_eps")?.unwrap_or(if loader.is_gguf() { epsilon } else { 1e-6 });
    let options = Mamba1Options {
        bias: fields.flag("use_bias", false)?,
        convolution_bias: fields.flag("use_conv_bias", true)?,
        norms: if falcon { StepNorms::Weightless(select_epsilon) } else { StepNorms::None },
    };
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        let mixer = state_space::mixer_of(loader, layer, "mamba1")?;
        layers.push(loader.within(&format!("backbone.layers.{index}"), |loader| {
            let norm = loader.rms_norm("norm", width, epsilon)?;
            let mixer = loader.within("mixer", |loader| state_space::mamba1(loader, mixer, width, options))?;
            Ok::<_, FamilyError>(LayerParts { mixers: (Branch::of(norm), vec![mixer]), channel: None })
        })?);
    }
    let frame = OuterParts {
        prefix: "backbone",
        embedding: "embeddings",
        norm: "norm_f",
        tied_by_default: true,
        ..OuterParts::plain(epsilon)
    };
    frame.assemble_model(loader, layers)
}
