//! Qwen3.5's dense architecture in GGUF: Gated `DeltaNet` and full attention, with norms before every mixer and MLP.
//!
//! llama.cpp opens no file without a layer of full attention, so networks of Gated `DeltaNet` alone get one more layer, which adds nothing to
//! the residual stream. Its full-attention layers have a norm on the queries and keys of every head and a gate on the output of every head. In networks with a
//! constant column, both do nothing: a constant channel of every query head in which every key is zero, and one of every key head in which
//! every query is zero, make the norms divide by nearly the same number at every token; the gates read the constant column and are open.
//! llama.cpp requires keys and values of the same width, so the narrower ones get zero channels.

use super::gguf::HeaderValue;
use super::llama::{DEFAULT_ROPE_THETA, LayerNames, NO_ROTATION_DIVISOR, common_keys, embeddings_and_lm_head};
use super::matrix::Matrix;
use super::network::{Attention, ConstantColumn, ExportMixer, ExportNetwork, GatedDeltanet, GatedMlp, common_heads};
use super::olmo_hybrid::common_delta;
use super::{ExportError, ExportFormat, ExportTensor, Family, FamilyCheckpoint, llama};
use crate::mixer::{MixerConfig as _, gdn::GatedDeltanetConfig, softmax::SoftmaxConfig};
use crate::norm::Norm;

/// The family.
pub(super) const FAMILY: Family = Family {
    name: "qwen35",
    class: None,
    architecture: Some("qwen35"),
    mixers: &[GatedDeltanetConfig::NAME, SoftmaxConfig::NAME],
    feed_forward: true,
    width: llama::width,
    write,
};

/// Input of a sigmoid that is one in single precision.
const OPEN_GATE_INPUT: f64 = 32.0;

/// What the norms of queries and keys divide by.
const NORM_DIVISOR: f64 = 512.0;

fn write(network: &ExportNetwork, format: ExportFormat) -> Result<FamilyCheckpoint, ExportError> {
    if network.rope_theta.is_some() {
        return Err(ExportError::unsupported("positions", "rotary positions", "none"));
    }
    let delta = common_delta(network)?;
    if delta.negative_eigenvalues {
        return Err(ExportError::unsupported(
            GatedDeltanetConfig::NAME,
            "beta up to 2 (`negative=yes`)",
            "beta up to 1",
        ));
    }
    if delta.heads != delta.value_heads {
        let found = format!("{} heads of keys for {} of values", delta.heads, delta.value_heads);
        return Err(ExportError::unsupported(GatedDeltanetConfig::NAME, found, "as many of keys as of values"));
    }
    // llama.cpp has one epsilon for all norms, but zero channels change the epsilon of one kind of norm: of the residual stream, or of heads.
    if network.constant.is_none() {
        let error = |found, expected| ExportError::unsupported("gdn and norms on the residual stream", found, expected);
        if delta.key_dim != delta.value_dim {
            let found = format!("keys of {} channels and values of {}", delta.key_dim, delta.value_dim);
            return Err(error(found, "keys and values of one width"));
        }
        if network.epsilon < Norm::EPSILON {
            return Err(error(
                format!("a residual stream widened to {}", network.width),
                "a width that is a multiple of eight",
            ));
        }
    }
    let [heads, kv_heads, network_head_dim] = common_heads(network)?;
    // Two more channels, for the constants of queries and keys.
    let head_dim = network_head_dim + 2;
    let mut tensors = embeddings_and_lm_head(network, format);
    for (index, layer) in network.layers.iter().enumerate() {
        let names = LayerNames { format, index };
        tensors.push(names.vector("", "attn_norm", layer.mixer_norm.clone()));
        match &layer.mixer {
            ExportMixer::Attention(attention) => {
                let constant = constant_column(network)?;
                tensors.extend(attention_tensors(&attention.resized(heads, kv_heads, head_dim), constant, names));
            }
            ExportMixer::GatedDeltanet(delta) => tensors.extend(delta_tensors(delta, names)),
            _ => unreachable!("a family is only chosen for layers that it supports"),
        }
        tensors.push(names.vector("", "post_attention_norm", layer.mlp_norm.clone()));
        tensors.extend(names.mlp(&layer.mlp));
    }
    let is_attention = |mixer: &ExportMixer| matches!(mixer, ExportMixer::Attention(_));
    let has_idle_layer = !network.layers.iter().any(|layer| is_attention(&layer.mixer));
    if has_idle_layer {
        let names = LayerNames { format, index: network.layers.len() };
        tensors.extend(idle_layer(network, [heads, kv_heads, head_dim], names));
    }
    let width = state_width(delta);
    // The output is smaller by the ratio of the square roots of the key widths, and the mean of squares is over more channels.
    let epsilon = network.epsilon * (delta.key_dim * delta.value_dim) as f64 / (width * width) as f64;
    let is_recurrent = network.layers.iter().map(|layer| u32::from(!is_attention(&layer.mixer)));
    let is_recurrent: Vec<u32> = is_recurrent.chain(has_idle_layer.then_some(0)).collect();
    let number = |value: usize| HeaderValue::U32(value as u32);
    // Rotary pairs are assigned in turn to the three position axes of a multimodal model.
    let pairs = head_dim as u32 / 2;
    let sections = vec![pairs.div_ceil(3), (pairs + 1) / 3, pairs / 3, 0];
    let mut keys = common_keys(network, [heads, kv_heads, head_dim]);
    keys.retain(|(name, _)| !["attention.layer_norm_rms_epsilon", "block_count"].contains(&name.as_str()));
    let family_keys = [
        ("block_count", number(is_recurrent.len())),
        ("attention.layer_norm_rms_epsilon", HeaderValue::F32(epsilon as f32)),
        ("attention.recurrent_layers", HeaderValue::U32Array(is_recurrent)),
        ("rope.dimension_count", number(head_dim)),
        ("rope.dimension_sections", HeaderValue::U32Array(sections)),
        ("rope.freq_base", HeaderValue::F32(DEFAULT_ROPE_THETA as f32)),
        ("rope.scaling.type", HeaderValue::Text("linear".to_owned())),
        ("rope.scaling.factor", HeaderValue::F32(NO_ROTATION_DIVISOR as f32)),
        ("ssm.conv_kernel", number(delta.kernel_size)),
        ("ssm.inner_size", number(width * delta.value_heads)),
        ("ssm.state_size", number(width)),
        ("ssm.time_step_rank", number(delta.value_heads)),
        ("ssm.group_count", number(delta.heads)),
    ];
    keys.extend(family_keys.into_iter().map(|(name, value)| (name.to_owned(), value)));
    Ok(FamilyCheckpoint { config: serde_json::Map::new(), keys, tensors, width: network.width })
}

/// A layer of full attention and an MLP whose outputs are zero.
fn idle_layer(
    network: &ExportNetwork,
    [heads, kv_heads, head_dim]: [usize; 3],
    names: LayerNames,
) -> Vec<ExportTensor> {
    let (width, hidden) = (network.width, network.hidden_width());
    let zeros = Matrix::zeros;
    let mut tensors = vec![
        names.vector("", "attn_norm", vec![1.0; width]),
        names.matrix("", "attn_q", zeros(2 * heads * head_dim, width)),
        names.matrix("", "attn_k", zeros(kv_heads * head_dim, width)),
        names.matrix("", "attn_v", zeros(kv_heads * head_dim, width)),
        names.matrix("", "attn_output", zeros(width, heads * head_dim)),
        names.vector("", "attn_q_norm", vec![1.0; head_dim]),
        names.vector("", "attn_k_norm", vec![1.0; head_dim]),
        names.vector("", "post_attention_norm", vec![1.0; width]),
    ];
    tensors.extend(names.mlp(&GatedMlp {
        gate: zeros(hidden, width),
        up: zeros(hidden, width),
        down: zeros(width, hidden),
    }));
    tensors
}

/// The constant column, which full attention needs. Without it, the gates would be half open, which a factor of two undoes; but nothing undoes
/// the norms of queries and keys, which remove lengths that differ from token to token.
fn constant_column(network: &ExportNetwork) -> Result<ConstantColumn, ExportError> {
    network.constant.ok_or_else(|| {
        let found = "none, in a network whose residual stream has norms and so no constant column to undo them with";
        ExportError::unsupported("norms on queries and keys", found, "those of Qwen3.5's full attention")
    })
}

/// The width of keys and values in llama.cpp.
fn state_width(delta: &GatedDeltanet) -> usize {
    delta.key_dim.max(delta.value_dim)
}

/// Attention whose last two channels of every head hold constants, with gates that are open.
fn attention_tensors(attention: &Attention, constant: ConstantColumn, names: LayerNames) -> Vec<ExportTensor> {
    let head_dim = attention.key_dim;
    let with_constant_channel = |matrix: &Matrix, channel: usize| {
        // Rows are scaled down, so that the constant dominates the norm, and the gain scales them up again.
        let largest = matrix.values.iter().fold(1.0_f64, |largest, value| largest.max(value.abs()));
        let mut matrix = matrix.clone().scaled(largest.recip());
        let constant_value = NORM_DIVISOR * (head_dim as f64).sqrt();
        (channel..matrix.rows)
            .step_by(head_dim)
            .for_each(|row| matrix.set(row, constant.column, constant_value / constant.value));
        (matrix, vec![NORM_DIVISOR * largest; head_dim])
    };
    let (queries, query_gain) = with_constant_channel(&attention.queries, head_dim - 2);
    let (keys, key_gain) = with_constant_channel(&attention.keys, head_dim - 1);
    let mut gates = Matrix::zeros(head_dim, queries.columns);
    (0..head_dim).for_each(|row| gates.set(row, constant.column, OPEN_GATE_INPUT / constant.value));
    // The gate of a head follows its query.
    let queries_and_gates: Vec<Matrix> = (0..attention.heads)
        .flat_map(|index| [queries.take_rows(index * head_dim..(index + 1) * head_dim), gates.clone()])
        .collect();
    vec![
        names.matrix("", "attn_q", Matrix::stack_rows(&queries_and_gates.iter().collect::<Vec<_>>())),
        names.matrix("", "attn_k", keys),
        names.matrix("", "attn_v", attention.values.clone()),
        names.matrix("", "attn_output", attention.output.clone()),
        names.vector("", "attn_q_norm", query_gain),
        names.vector("", "attn_k_norm", key_gain),
    ]
}

fn delta_tensors(delta: &GatedDeltanet, names: LayerNames) -> Vec<ExportTensor> {
    let (width, heads) = (state_width(delta), delta.heads);
    // Pads the rows of each head with zero rows.
    let pad_heads = |matrix: &Matrix, head: usize| {
        matrix.map_rows(heads * width, |row| (row % width < head).then(|| row / width * head + row % width))
    };
    let key_rows = heads * delta.key_dim;
    let filters = &delta.convolution;
    let convolution = Matrix::stack_rows(&[
        &pad_heads(&filters.take_rows(0..key_rows), delta.key_dim),
        &pad_heads(&filters.take_rows(key_rows..2 * key_rows), delta.key_dim),
        &pad_heads(&filters.take_rows(2 * key_rows..filters.rows), delta.value_dim),
    ]);
    let input = Matrix::stack_rows(&[
        &pad_heads(&delta.queries, delta.key_dim),
        &pad_heads(&delta.keys, delta.key_dim),
        &pad_heads(&delta.values, delta.value_dim),
    ]);
    let padding_factor = (delta.value_dim as f64 / width as f64).sqrt();
    let mut gain: Vec<f64> = delta.norm.iter().map(|value| value * padding_factor).collect();
    gain.resize(width, 1.0);
    let output = delta.output.map_columns(heads * width, |column| {
        (column % width < delta.value_dim).then(|| column / width * delta.value_dim + column % width)
    });
    let name = |tensor: &str| names.stem("", tensor);
    vec![
        names.matrix("", "attn_qkv", input),
        names.matrix("", "attn_gate", pad_heads(&delta.gate, delta.value_dim)),
        ExportTensor::matrix(name("ssm_conv1d.weight"), convolution),
        names.matrix("", "ssm_beta", delta.beta.clone()),
        names.matrix("", "ssm_alpha", delta.dt_proj.clone()),
        ExportTensor::vector(name("ssm_dt.bias"), delta.dt_bias.clone()),
        ExportTensor::vector(name("ssm_a"), delta.a_log.iter().map(|a_log| -a_log.exp()).collect()),
        names.vector("", "ssm_norm", gain),
        names.matrix("", "ssm_out", output),
    ]
}
