//! Qwen3-Next and Qwen3.5: Gated `DeltaNet` between layers of gated attention, dense networks or experts with a shared one.
//!
//! # Classes
//! `Qwen3NextForCausalLM`, `Qwen3_5ForCausalLM`, `Qwen3_5MoeForCausalLM`; of `Qwen3_5ForConditionalGeneration` and
//! `Qwen3_5MoeForConditionalGeneration` the language model, on text alone.
//!
//! # Unusual options
//! `attention_bias`, `mlp_only_layers`, `decoder_sparse_step`, `norm_topk_prob` (Qwen3-Next); `partial_rotary_factor` must be given. Layers that
//! predict further tokens (`mtp`) are not read.
//!
//! # GGUF
//! Not read.

use rung_audit::json::JsonValue;
use rung_engine::{Role, Scalar};

use super::decoder::{self, AttentionParts, OuterParts, QueryKeyNorm};
use super::loader::rows;
use super::{FamilyError, Loader, delta, experts};
use crate::mixer::Builtin;
use crate::mixer::gdn::{GatedDeltanetConfig, GatedDeltanetParts};
use crate::model::{Activation, Branch, FeedForward, Experts, Gating, LayerParts, ModelParts, Norm, Routing};
use crate::parts::Linear;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &[];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[];

/// Where the language model's tensors are in a model that also sees.
const INNER: &str = "model.language_model";

/// Reads a network.
///
/// # Errors
/// A field or a tensor is not what it should be.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<ModelParts<Builtin>, FamilyError> {
    let fields = loader.fields;
    let width = fields.required_size("hidden_size")?;
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-6);
    let bias = fields.flag("attention_bias", false)?;
    let activation = decoder::activation(loader, "silu")?;
    delta::require_silu(loader, activation)?;
    let rope = fields.object("rope_parameters")?;
    if !rope.is_some_and(|rope| rope.has("partial_rotary_factor")) && !fields.has("partial_rotary_factor") {
        return Err(fields.wrong("partial_rotary_factor", "nothing", "the share of channels that turn"));
    }
    let inner = format!("{INNER}.embed_tokens.weight");
    let prefix = if loader.has(&inner) { INNER } else { "model" };
    for unused in ["mtp.", "model.visual."] {
        loader.ignore_under(unused);
    }
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.within(&format!("{prefix}.layers.{index}"), |loader| {
            let norm = |loader: &mut Loader<'_, S>, name: &str| {
                let gain = loader.role(Role::StreamNorm).gain_beyond_one(name, width)?;
                Ok::<_, FamilyError>(Branch::of(Norm::of(Some(gain), None, epsilon)))
            };
            let branch = norm(loader, "input_layernorm")?;
            let mixer = if let Some(sizes) = delta::sizes_of(layer)? {
                loader.within("linear_attn", |loader| gated_deltanet(loader, sizes, width, epsilon))?
            } else {
                let mixer = decoder::attention_of(loader, layer)?;
                let plain = AttentionParts::plain(loader.rotation(mixer, 10_000.0)?);
                let norm = QueryKeyNorm::EachHeadBeyondOne;
                let parts = AttentionParts { bias, output_bias: bias, norm, epsilon, gated: true, ..plain };
                loader.within("self_attn", |loader| decoder::attention(loader, mixer, width, parts))?
            };
            let channel_branch = norm(loader, "post_attention_layernorm")?;
            let channel = loader.within("mlp", |loader| channel(loader, index, width, activation))?;
            Ok::<_, FamilyError>(LayerParts { mixers: (branch, vec![mixer]), channel: Some((channel_branch, channel)) })
        })?);
    }
    OuterParts { prefix, norm_beyond_one: true, ..OuterParts::plain(epsilon) }.assemble_model(loader, layers)
}

/// Qwen3-Next has the rows of a key head and of its value heads together; Qwen3.5 has all queries first, then all keys, then all values.
fn gated_deltanet<S: Scalar>(
    loader: &mut Loader<'_, S>,
    sizes: GatedDeltanetConfig,
    width: usize,
    epsilon: f64,
) -> Result<Builtin, FamilyError> {
    let GatedDeltanetConfig { heads, value_heads, key, value, taps, .. } = sizes;
    let (key_rows, value_rows) = (heads * key, value_heads * value);
    let (projections, [gate, beta, step]) = if loader.has("in_proj_qkvz.weight") {
        grouped_projections(loader, sizes, width)?
    } else {
        let all = loader.values("in_proj_qkv.weight", &[2 * key_rows + value_rows, width])?;
        let wanted = [0..key_rows, key_rows..2 * key_rows, 2 * key_rows..2 * key_rows + value_rows];
        let projections = delta::projections(loader, &all, width, wanted.map(Iterator::collect));
        let gate = loader.role(Role::Gate).linear("in_proj_z", width, value_rows, false)?;
        let beta = loader.linear("in_proj_b", width, value_heads, false)?;
        (projections, [gate, beta, loader.linear("in_proj_a", width, value_heads, false)?])
    };
    let filters = loader.values("conv1d.weight", &[2 * key_rows + value_rows, 1, taps])?;
    Ok(Builtin::GatedDeltanet(sizes.assemble(&GatedDeltanetParts {
        projections,
        convolutions: delta::convolutions(loader, &filters, taps, [key_rows, value_rows]),
        beta,
        step,
        step_bias: loader.tensor("dt_bias", &[value_heads])?,
        log_rate: loader.tensor("A_log", &[value_heads])?,
        gate,
        norm: loader.tensor("norm.weight", &[value])?,
        epsilon,
        output: loader.role(Role::Output).linear("out_proj", value_rows, width, false)?,
    })))
}

/// Queries, keys and values; then gate, beta and step.
fn grouped_projections<S: Scalar>(
    loader: &mut Loader<'_, S>,
    sizes: GatedDeltanetConfig,
    width: usize,
) -> Result<([Linear; 3], [Linear; 3]), FamilyError> {
    let GatedDeltanetConfig { heads, value_heads, key, value, .. } = sizes;
    let group = value_heads / heads;
    let row = 2 * key + 2 * group * value;
    let all = loader.values("in_proj_qkvz.weight", &[heads * row, width])?;
    let small = loader.values("in_proj_ba.weight", &[2 * value_heads, width])?;
    // Part of every head's rows, from a first one on.
    let of_heads = |row: usize, first: usize, count: usize| -> Vec<usize> {
        (0..heads).flat_map(|head| (0..count).map(move |at| head * row + first + at)).collect()
    };
    let (values, gates) = (2 * key, 2 * key + group * value);
    let wanted = [of_heads(row, 0, key), of_heads(row, key, key), of_heads(row, values, group * value)];
    let projections = delta::projections(loader, &all, width, wanted);
    let gate = rows(&all, width, of_heads(row, gates, group * value));
    let gate = loader.role(Role::Gate).add_linear("g_proj", width, gate);
    let [beta, step] = [("b_proj", 0), ("a_proj", group)]
        .map(|(name, first)| loader.add_linear(name, width, rows(&small, width, of_heads(2 * group, first, group))));
    Ok((projections, [gate, beta, step]))
}

fn channel<S: Scalar>(
    loader: &mut Loader<'_, S>,
    index: usize,
    width: usize,
    activation: Activation,
) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let sparse = match fields.text("model_type")? {
        Some("qwen3_next") => {
            let step = fields.size("decoder_sparse_step")?.unwrap_or(1);
            let dense = fields.list("mlp_only_layers")?.unwrap_or_default();
            let is_dense = dense.iter().any(|layer| matches!(layer, JsonValue::Number(text) if text.parse() == Ok(index)));
            fields.number("num_experts")?.unwrap_or(512.0) > 0.0 && (index + 1).is_multiple_of(step) && !is_dense
        }
        name => name.is_some_and(|name| name.starts_with("qwen3_5_moe")),
    };
    if !sparse {
        let hidden = fields.required_size("intermediate_size")?;
        return Ok(FeedForward::Dense(decoder::gated_network(loader, [width, hidden], false, activation)?));
    }
    let count = fields.required_size("num_experts")?;
    let hidden = fields.required_size("moe_intermediate_size")?;
    let shared_hidden = fields.required_size("shared_expert_intermediate_size")?;
    let routing = Routing {
        chosen: experts::chosen(loader, "num_experts_per_tok", count)?,
        gating: Gating::Softmax,
        normed: fields.flag("norm_topk_prob", true)?,
        scale: 1.0,
        bias: None,
        limit: None,
    };
    let shared = |loader: &mut Loader<'_, S>| {
        decoder::gated_network(loader, [width, shared_hidden], false, activation)
    };
    Ok(FeedForward::Experts(Box::new(Experts {
        router: loader.linear("gate", width, count, false)?,
        routing,
        experts: experts::experts(loader, count, [width, hidden], experts::NAMES, activation)?,
        latent: None,
        shared: Some(loader.within("shared_expert", shared)?),
        shared_gate: Some(loader.linear("shared_expert_gate", width, 1, false)?),
    })))
}
