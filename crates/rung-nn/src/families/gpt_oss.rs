//! gpt-oss: Llama's shape with biases, a sink in every head, windows in every other layer, and experts.
//!
//! # Classes
//! `GptOssForCausalLM`. The published files hold experts in MXFP4, which is not read; files saved in BF16 are.
//!
//! # Unusual options
//! `rope_type` yarn without rounding its range, `swiglu_alpha`, `swiglu_limit`.
//!
//! # GGUF
//! Not read.

use rung_engine::{Parameter, Scalar};

use super::decoder::{self, AttentionParts, OuterParts};
use super::{FamilyError, Loader};
use crate::mixer::Builtin;
use crate::model::{Activation, FeedForward, Dense, Experts, Gating, ModelParts, Routing};
use crate::parts::Linear;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["gpt_oss"];

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
    let width = fields.required_size("hidden_size")?;
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-5);
    let bias = fields.flag("attention_bias", true)?;
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        let mixer = decoder::attention_of(loader, layer)?;
        let plain = AttentionParts::plain(loader.rotation(mixer, 150_000.0)?);
        let parts = AttentionParts { bias, output_bias: bias, sinks: true, ..plain };
        layers.push(decoder::pre_norm_layer(loader, index, mixer, (width, epsilon), parts, experts)?);
    }
    OuterParts::plain(epsilon).assemble_model(loader, layers)
}

/// Experts are stored as `[experts, inputs, outputs]`, with gate and up interleaved.
fn experts<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let count = fields.required_size("num_local_experts")?;
    let activation = Activation::ClampedSwish {
        alpha: fields.positive("swiglu_alpha")?.unwrap_or(1.702),
        limit: fields.positive("swiglu_limit")?.unwrap_or(7.0),
    };
    let router = loader.linear("router", width, count, true)?;
    let experts = loader.within("experts", |loader| {
        let both = loader.values("gate_up_proj", &[count, width, 2 * hidden])?;
        let both_bias = loader.values("gate_up_proj_bias", &[count, 2 * hidden])?;
        let down = loader.values("down_proj", &[count, hidden, width])?;
        let down_bias = loader.values("down_proj_bias", &[count, width])?;
        let mut experts = Vec::new();
        for expert in 0..count {
            let both = &both[expert * width * 2 * hidden..(expert + 1) * width * 2 * hidden];
            let both_bias = &both_bias[expert * 2 * hidden..(expert + 1) * 2 * hidden];
            let down = &down[expert * hidden * width..(expert + 1) * hidden * width];
            let mut half = |name: &str, half: usize| {
                let columns: Vec<usize> = (0..hidden).map(|column| 2 * column + half).collect();
                let bias = columns.iter().map(|column| both_bias[*column]).collect();
                linear(loader, &format!("{expert}.{name}"), turned(both, width, 2 * hidden, &columns), bias)
            };
            let (gate, up) = (half("gate_proj", 0), half("up_proj", 1));
            let columns: Vec<usize> = (0..width).collect();
            let bias = down_bias[expert * width..(expert + 1) * width].to_vec();
            let down = linear(loader, &format!("{expert}.down_proj"), turned(down, hidden, width, &columns), bias);
            experts.push(Dense { gate: Some(gate), up, down, activation });
        }
        Ok::<_, FamilyError>(experts)
    })?;
    let routing = Routing {
        chosen: fields.required_size("num_experts_per_tok")?.min(count),
        gating: Gating::SoftmaxOfChosen,
        normed: false,
        scale: 1.0,
        bias: None,
        limit: None,
    };
    Ok(FeedForward::Experts(Box::new(Experts { router, routing, experts, latent: None, shared: None, shared_gate: None })))
}

/// Some columns of a matrix `[rows, columns]`, as rows.
fn turned<S: Scalar>(matrix: &[S], rows: usize, columns: usize, wanted: &[usize]) -> Vec<S> {
    wanted.iter().flat_map(|column| (0..rows).map(move |row| matrix[row * columns + column])).collect()
}

/// A projection with values that were taken out of a larger tensor.
fn linear<S: Scalar>(loader: &mut Loader<'_, S>, name: &str, weight: Vec<S>, bias: Vec<S>) -> Linear {
    let (outputs, inputs) = (bias.len(), weight.len() / bias.len());
    let weight: Parameter = loader.add(&format!("{name}.weight"), &[outputs, inputs], weight);
    Linear { weight, bias: Some(loader.add(&format!("{name}.bias"), &[outputs], bias)) }
}
