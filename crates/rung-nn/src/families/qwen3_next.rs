//! Qwen3-Next and Qwen3.5: Gated `DeltaNet` between layers of gated attention, with dense MLPs or experts with a shared one.
//!
//! # Classes
//! `Qwen3NextForCausalLM`, `Qwen3_5ForCausalLM`, `Qwen3_5MoeForCausalLM`; of `Qwen3_5ForConditionalGeneration` and
//! `Qwen3_5MoeForConditionalGeneration` the language model, on text alone.
//!
//! # Unusual options
//! `attention_bias`, `mlp_only_layers`, `decoder_sparse_step`, `norm_topk_prob` (Qwen3-Next); `partial_rotary_factor` is required. Layers that
//! predict further tokens (`mtp`) are ignored.
//!
//! # GGUF
//! `qwen3next`, `qwen35`, `qwen35moe`. Files of Qwen3.5 interleave value heads: first the first value head of every key head, then the second of every key head.

use rung_audit::json::JsonValue;
use rung_engine::{Role, Scalar};

use super::decoder::{self, AttentionOptions, DecoderOptions, QueryKeyNorm};
use super::loader::rows;
use super::{FamilyError, Loader, delta, experts, state_space};
use crate::mixer::Builtin;
use crate::mixer::gdn::{GatedDeltanetConfig, GatedDeltanetWeights};
use crate::model::{Activation, Experts, FeedForward, Gating, LoadedLayer, LoadedModel, Norm, ResidualBranch, Routing};
use crate::submodules::Linear;

/// Names in `model_type`.
pub const MODEL_TYPES: &[&str] = &["qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe"];

/// Names in a GGUF file's `general.architecture`.
pub const ARCHITECTURES: &[&str] = &["qwen3next", "qwen35", "qwen35moe"];

/// Tensors whose GGUF names differ from the usual ones.
pub const GGUF_TENSORS: &[(&str, &str)] = &[
    ("post_attention_layernorm", "post_attention_norm"),
    ("linear_attn.in_proj_qkvz", "ssm_in"),
    ("linear_attn.in_proj_qkv", "attn_qkv"),
    ("linear_attn.in_proj_z", "attn_gate"),
    ("linear_attn.in_proj_b", "ssm_beta"),
    ("linear_attn.in_proj_a", "ssm_alpha"),
    ("linear_attn.in_proj_ba", "ssm_ba"),
    ("linear_attn.conv1d", "ssm_conv1d"),
    ("linear_attn.dt_bias", "ssm_dt"),
    ("linear_attn.A_log", "ssm_a."),
    ("linear_attn.norm", "ssm_norm"),
    ("linear_attn.out_proj", "ssm_out"),
];

/// Module of the language model in a multimodal model.
const LANGUAGE_MODEL: &str = "model.language_model";

/// Builds the model from the config and the tensors.
///
/// # Errors
/// A field is missing or not supported, or a tensor is missing or has another shape.
pub fn build<S: Scalar>(loader: &mut Loader<'_, S>) -> Result<LoadedModel<Builtin>, FamilyError> {
    let fields = loader.fields;
    let width = fields.required_size("hidden_size")?;
    let epsilon = fields.positive("rms_norm_eps")?.unwrap_or(1e-6);
    let bias = fields.flag("attention_bias", false)?;
    let activation = decoder::activation(loader, "silu")?;
    delta::require_silu(loader, activation)?;
    let rope = fields.object("rope_parameters")?;
    let has_rotary_dim = if loader.is_gguf() {
        fields.has("rope_dimension_count")
    } else {
        fields.has("partial_rotary_factor") || rope.is_some_and(|rope| rope.has("partial_rotary_factor"))
    };
    if !has_rotary_dim {
        return Err(fields.error("partial_rotary_factor", "nothing", "the fraction of rotary channels"));
    }
    let inner_embedding = format!("{LANGUAGE_MODEL}.embed_tokens.weight");
    let prefix = if loader.has(&inner_embedding) { LANGUAGE_MODEL } else { "model" };
    for unused in ["mtp.", "model.visual."] {
        loader.ignore_prefix(unused);
    }
    loader.ignore_mtp_layers()?;
    let mut layers = Vec::new();
    for (index, layer) in loader.layers.iter().enumerate() {
        layers.push(loader.with_prefix(&format!("{prefix}.layers.{index}"), |loader| {
            let norm = |loader: &mut Loader<'_, S>, name: &str| {
                let gain = loader.with_role(Role::ResidualNorm).norm_weight_plus_one(name, width)?;
                Ok::<_, FamilyError>(ResidualBranch::with_norm(Norm::from_weights(gain, None, epsilon)))
            };
            let branch = norm(loader, "input_layernorm")?;
            let mixer = if let Some(sizes) = delta::sizes_of(layer)? {
                loader.with_prefix("linear_attn", |loader| read_gated_deltanet(loader, sizes, width, epsilon))?
            } else {
                let mixer = decoder::attention_mixer(loader, layer)?;
                let defaults = AttentionOptions::new(loader.rotation(mixer, 10_000.0)?);
                let norm = QueryKeyNorm::EachHeadPlusOne;
                let attention_options =
                    AttentionOptions { bias, output_bias: bias, norm, epsilon, gated: true, ..defaults };
                loader.with_prefix("self_attn", |loader| {
                    decoder::read_attention(loader, mixer, width, attention_options)
                })?
            };
            let feed_forward_branch = norm(loader, "post_attention_layernorm")?;
            let feed_forward =
                loader.with_prefix("mlp", |loader| read_feed_forward(loader, index, width, activation))?;
            Ok::<_, FamilyError>(LoadedLayer {
                mixer_branch: branch,
                mixers: vec![mixer],
                feed_forward: Some((feed_forward_branch, feed_forward)),
            })
        })?);
    }
    DecoderOptions { prefix, norm_plus_one: true, ..DecoderOptions::new(epsilon) }.assemble_model(loader, layers)
}

/// Qwen3-Next stores the rows of each key head together with those of its value heads; Qwen3.5 stores all queries, then all keys, then all
/// values. GGUF files have the second layout for both, except older files of Qwen3-Next.
fn read_gated_deltanet<S: Scalar>(
    loader: &mut Loader<'_, S>,
    sizes: GatedDeltanetConfig,
    width: usize,
    epsilon: f64,
) -> Result<Builtin, FamilyError> {
    let GatedDeltanetConfig { heads, value_heads, key_dim, value_dim, kernel_size, .. } = sizes;
    let (key_rows, value_rows) = (heads * key_dim, value_heads * value_dim);
    let interleaved =
        loader.is_gguf() && loader.fields.text("model_type")?.is_some_and(|name| name.starts_with("qwen35"));
    let order = ValueOrder { heads, value_heads, interleaved };
    let reordered = |loader: &mut Loader<'_, S>, name: &str, role: Role, rows_of_head: usize| {
        let matrix = loader.values(&format!("{name}.weight"), &[value_heads * rows_of_head, width])?;
        Ok::<_, FamilyError>(loader.with_role(role).add_linear(
            name,
            width,
            rows(&matrix, width, order.stored_channels(rows_of_head)),
        ))
    };
    let (projections, gate) = if loader.has("in_proj_qkvz.weight") {
        read_grouped_projections(loader, sizes, width)?
    } else {
        let matrix = loader.values("in_proj_qkv.weight", &[2 * key_rows + value_rows, width])?;
        let values = order.stored_channels(value_dim).map(|row| 2 * key_rows + row).collect();
        let selected = [(0..key_rows).collect(), (key_rows..2 * key_rows).collect(), values];
        let projections = delta::projections(loader, &matrix, width, selected);
        (projections, reordered(loader, "in_proj_z", Role::Gate, value_dim)?)
    };
    let [beta, dt_proj] = if loader.has("in_proj_ba.weight") {
        read_grouped_beta_and_dt(loader, sizes, width)?
    } else {
        let beta = reordered(loader, "in_proj_b", Role::Other, 1)?;
        [beta, reordered(loader, "in_proj_a", Role::Other, 1)?]
    };
    let filters = loader.values("conv1d.weight", &[2 * key_rows + value_rows, 1, kernel_size])?;
    let filter_rows = (0..2 * key_rows).chain(order.stored_channels(value_dim).map(|row| 2 * key_rows + row));
    let filters = rows(&filters, kernel_size, filter_rows);
    let dt_bias = loader.values("dt_bias", &[value_heads])?;
    let dt_bias = loader.add("dt_bias", &[value_heads], rows(&dt_bias, 1, order.stored_channels(1)));
    let a_log = state_space::read_a_log_values(loader, &[value_heads])?;
    let a_log = loader.add("A_log", &[value_heads], rows(&a_log, 1, order.stored_channels(1)));
    let output = loader.values("out_proj.weight", &[width, value_rows])?;
    let output =
        output.chunks(value_rows).flat_map(|row| order.stored_channels(value_dim).map(|column| row[column])).collect();
    Ok(Builtin::GatedDeltanet(sizes.assemble(&GatedDeltanetWeights {
        projections,
        convolutions: delta::convolutions(loader, &filters, kernel_size, [key_rows, value_rows]),
        beta,
        dt_proj,
        dt_bias,
        a_log,
        gate,
        norm: loader.tensor("norm.weight", &[value_dim])?,
        epsilon,
        output: loader.with_role(Role::Output).add_linear("out_proj", value_rows, output),
    })))
}

/// The order in which value heads are stored.
#[derive(Clone, Copy)]
struct ValueOrder {
    heads: usize,
    value_heads: usize,
    interleaved: bool,
}

impl ValueOrder {
    /// The stored index of each channel of all value heads, in the order of their key heads.
    fn stored_channels(self, width: usize) -> impl Iterator<Item = usize> {
        let value_heads_per_key_head = self.value_heads / self.heads;
        let stored = move |head: usize| {
            if self.interleaved {
                head % value_heads_per_key_head * self.heads + head / value_heads_per_key_head
            } else {
                head
            }
        };
        (0..self.value_heads).flat_map(move |head| (0..width).map(move |channel| stored(head) * width + channel))
    }
}

/// Splits `in_proj_qkvz` into queries, keys and values, and the gate.
fn read_grouped_projections<S: Scalar>(
    loader: &mut Loader<'_, S>,
    sizes: GatedDeltanetConfig,
    width: usize,
) -> Result<([Linear; 3], Linear), FamilyError> {
    let GatedDeltanetConfig { heads, value_heads, key_dim, value_dim, .. } = sizes;
    let value_heads_per_key_head = value_heads / heads;
    let rows_of_head = 2 * key_dim + 2 * value_heads_per_key_head * value_dim;
    let matrix = loader.values("in_proj_qkvz.weight", &[heads * rows_of_head, width])?;
    let head_rows = |first: usize, count: usize| rows_of_heads(heads, rows_of_head, first, count);
    let (values, gates) = (2 * key_dim, 2 * key_dim + value_heads_per_key_head * value_dim);
    let selected =
        [head_rows(0, key_dim), head_rows(key_dim, key_dim), head_rows(values, value_heads_per_key_head * value_dim)];
    let projections = delta::projections(loader, &matrix, width, selected);
    let gate = rows(&matrix, width, head_rows(gates, value_heads_per_key_head * value_dim));
    Ok((projections, loader.with_role(Role::Gate).add_linear("g_proj", width, gate)))
}

/// Splits `in_proj_ba` into beta and dt: each key head has the betas of its value heads, then their dt.
fn read_grouped_beta_and_dt<S: Scalar>(
    loader: &mut Loader<'_, S>,
    sizes: GatedDeltanetConfig,
    width: usize,
) -> Result<[Linear; 2], FamilyError> {
    let GatedDeltanetConfig { heads, value_heads, .. } = sizes;
    let value_heads_per_key_head = value_heads / heads;
    let beta_and_dt = loader.values("in_proj_ba.weight", &[2 * value_heads, width])?;
    Ok([("b_proj", 0), ("a_proj", value_heads_per_key_head)].map(|(name, first)| {
        loader.add_linear(
            name,
            width,
            rows(
                &beta_and_dt,
                width,
                rows_of_heads(heads, 2 * value_heads_per_key_head, first, value_heads_per_key_head),
            ),
        )
    }))
}

/// The indices of `count` rows of every head, from row `first` of the head on.
fn rows_of_heads(heads: usize, rows_of_head: usize, first: usize, count: usize) -> Vec<usize> {
    (0..heads).flat_map(|head| (0..count).map(move |row| head * rows_of_head + first + row)).collect()
}

fn read_feed_forward<S: Scalar>(
    loader: &mut Loader<'_, S>,
    index: usize,
    width: usize,
    activation: Activation,
) -> Result<FeedForward, FamilyError> {
    let fields = loader.fields;
    let has_experts = match fields.text("model_type")? {
        Some("qwen3_next") => {
            let step = fields.size("decoder_sparse_step")?.unwrap_or(1);
            let dense_layers = fields.list("mlp_only_layers")?.unwrap_or_default();
            let is_dense =
                dense_layers.iter().any(|layer| matches!(layer, JsonValue::Number(text) if text.parse() == Ok(index)));
            fields.number("num_experts")?.unwrap_or(512.0) > 0.0 && (index + 1).is_multiple_of(step) && !is_dense
        }
        name => name.is_some_and(|name| name.starts_with("qwen3_5_moe") || ["qwen3next", "qwen35moe"].contains(&name)),
    };
    if !has_experts {
        let hidden = fields.required_size("intermediate_size")?;
        return Ok(FeedForward::Mlp(decoder::read_gated_mlp(loader, [width, hidden], false, activation)?));
    }
    let expert_count = fields.required_size("num_experts")?;
    let hidden = fields.required_size("moe_intermediate_size")?;
    let shared_hidden = fields.required_size("shared_expert_intermediate_size")?;
    let routing = Routing {
        normalized: fields.flag("norm_topk_prob", true)?,
        ..Routing::new(experts::top_k(loader, "num_experts_per_tok", expert_count)?, Gating::Softmax)
    };
    let shared =
        |loader: &mut Loader<'_, S>| decoder::read_gated_mlp(loader, [width, shared_hidden], false, activation);
    let router = loader.linear("gate", width, expert_count, false)?;
    let experts = experts::read_experts(loader, expert_count, [width, hidden], experts::NAMES, activation)?;
    let experts = Experts {
        shared: Some(loader.with_prefix("shared_expert", shared)?),
        shared_gate: Some(loader.linear("shared_expert_gate", width, 1, false)?),
        ..Experts::new(router, routing, experts)
    };
    Ok(FeedForward::Experts(Box::new(experts)))
}
