//! gpt-oss: as Llama, with biases, an attention sink in every head, windows in every other layer, and experts.
//!
//! # Classes
//! `GptOssForCausalLM`. The published safetensors files have experts in MXFP4, which is not supported there; files saved in BF16 are.
//!
//! # Unusual options
//! `rope_type` yarn without rounding its range, `swiglu_alpha`, `swiglu_limit`.
//!
//! # GGUF
//! `gpt-oss`. llama.cpp rounds the range of YaRN to integers; this crate, like transformers, does not.

use rung_engine::Scalar;

use super::decoder::{self, AttentionOptions, DecoderOptions};
use super::{FamilyError, Loader};
use crate::mixer::Builtin;
use crate::model::{Activation, Experts, FeedForward, Gating, LoadedModel, Mlp, Routing};
use crate::submodules::Linear;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["gpt_oss"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["gpt-oss"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[("post_attention_layernorm", "post_attention_norm")];

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    let width = fields.required_size("hidden_size")?;
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-5);
    let bias = fields.flag("attention_bias", true)?;
    let attention_options = |defaults| AttentionOptions { bias, output_bias: bias, sinks: true, ..defaults };
    let layers = decoder::read_pre_norm_layers(loader, (width, epsilon), 150_000.0, attention_options, read_experts)?;
    DecoderOptions::new(epsilon).assemble_model(loader, layers)
}

/// One projection of all experts: weights of `[experts, outputs, inputs]`, biases of `[experts, outputs]`.
type Projections<S> = (Vec<S>, Vec<S>);

fn read_experts<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let (width, hidden) = (fields.required_size("hidden_size")?, fields.required_size("intermediate_size")?);
    let expert_count = fields.required_size("num_local_experts")?;
    let activation = Activation::ClampedSwish {
        alpha: fields.positive("swiglu_alpha")?.unwrap_or(1.702),
        limit: fields.positive("swiglu_limit")?.unwrap_or(7.0),
    };
    let router = loader.linear("router", width, expert_count, true)?;
    let experts = loader.with_prefix("experts", |loader| {
        let [gate, up, down] = if loader.is_gguf() {
            read_stacked_projections(loader, [expert_count, width, hidden])?
        } else {
            read_interleaved_projections(loader, [expert_count, width, hidden])?
        };
        let expert = |index: usize| {
            let mut linear = |name: &str, (weights, biases): &Projections<S>| {
                let (inputs, outputs) = (weights.len() / biases.len(), biases.len() / expert_count);
                let weight = weights[index * outputs * inputs..(index + 1) * outputs * inputs].to_vec();
                let linear = loader.add_linear(&format!("{index}.{name}"), inputs, weight);
                let bias = biases[index * outputs..(index + 1) * outputs].to_vec();
                Linear { bias: Some(loader.add(&format!("{index}.{name}.bias"), &[outputs], bias)), ..linear }
            };
            let (gate, up) = (linear("gate_proj", &gate), linear("up_proj", &up));
            Mlp { gate: Some(gate), up, down: linear("down_proj", &down), activation }
        };
        Ok::<_, FamilyError>((0..expert_count).map(expert).collect())
    })?;
    let routing = Routing::new(fields.required_size("num_experts_per_tok")?.min(expert_count), Gating::SoftmaxOfTopK);
    Ok(FeedForward::Experts(Box::new(Experts::new(router, routing, experts))))
}

/// Gate, up and down projections as transformers stores them: `[experts, inputs, outputs]`, with gate and up interleaved.
fn read_interleaved_projections<S: Scalar>(
    loader: &mut Loader<'_, S>,
    [expert_count, width, hidden]: [usize; 3],
) -> Result<[Projections<S>; 3], FamilyError> {
    let gate_up = loader.values("gate_up_proj", &[expert_count, width, 2 * hidden])?;
    let gate_up_bias = loader.values("gate_up_proj_bias", &[expert_count, 2 * hidden])?;
    let down = loader.values("down_proj", &[expert_count, hidden, width])?;
    let down_bias = loader.values("down_proj_bias", &[expert_count, width])?;
    let half = |half: usize| {
        let columns: Vec<usize> = (0..hidden).map(|column| 2 * column + half).collect();
        let weights =
            gate_up.chunks(width * 2 * hidden).flat_map(|expert| columns_as_rows(expert, 2 * hidden, &columns));
        let biases = gate_up_bias.chunks(2 * hidden).flat_map(|expert| columns.iter().map(|column| expert[*column]));
        (weights.collect(), biases.collect())
    };
    let columns: Vec<usize> = (0..width).collect();
    let down = down.chunks(hidden * width).flat_map(|expert| columns_as_rows(expert, width, &columns)).collect();
    Ok([half(0), half(1), (down, down_bias)])
}

/// Gate, up and down projections as GGUF files store them.
fn read_stacked_projections<S: Scalar>(
    loader: &mut Loader<'_, S>,
    [expert_count, width, hidden]: [usize; 3],
) -> Result<[Projections<S>; 3], FamilyError> {
    let mut projections = |name: &str, inputs: usize, outputs: usize| {
        let weights = loader.values(&format!("{name}.weight"), &[expert_count, outputs, inputs])?;
        Ok::<_, FamilyError>((weights, loader.values(&format!("{name}.bias"), &[expert_count, outputs])?))
    };
    let (gate, up) = (projections("gate_proj", width, hidden)?, projections("up_proj", width, hidden)?);
    Ok([gate, up, projections("down_proj", hidden, width)?])
}

/// The selected columns of a matrix, as rows.
fn columns_as_rows<S: Scalar>(matrix: &[S], width: usize, selected: &[usize]) -> Vec<S> {
    selected.iter().flat_map(|column| matrix.iter().skip(*column).step_by(width).copied()).collect()
}
