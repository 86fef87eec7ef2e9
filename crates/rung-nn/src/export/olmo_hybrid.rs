//! OLMo Hybrid: Gated `DeltaNet` and full attention.
//!
//! Its full-attention layers have norms on queries and keys, over all heads together, and on the outputs of attention and MLP instead of their
//! inputs. In a network with a constant column, a large constant makes each of these norms divide by nearly the same number at every token:
//!
//! - a channel of the queries in which every key is zero, and one of the keys in which every query is zero;
//! - the constant column of the residual stream, to which attention writes through one channel of the values and the MLP through one more
//!   neuron, and which the gain of the norm after them sets to zero.

use serde_json::{Map, json};

use super::llama::{DEFAULT_ROPE_THETA, LayerNames, NO_ROTATION_DIVISOR, common_config, embeddings_and_lm_head};
use super::matrix::Matrix;
use super::network::{Attention, ConstantColumn, ExportMixer, ExportNetwork, GatedDeltanet, GatedMlp, common_heads};
use super::{ExportError, ExportFormat, ExportTensor, Family, FamilyCheckpoint, llama};
use crate::mixer::{MixerConfig as _, gdn::GatedDeltanetConfig, softmax::SoftmaxConfig};

/// The family.
pub(super) const FAMILY: Family = Family {
    name: "olmo_hybrid",
    class: Some("OlmoHybridForCausalLM"),
    architecture: None,
    mixers: &[GatedDeltanetConfig::NAME, SoftmaxConfig::NAME],
    feed_forward: true,
    width: llama::width,
    write,
};

/// Input of a SiLU gate that is always open.
const OPEN_GATE_INPUT: f64 = 8.0;

/// What the norms of queries and keys divide by.
const NORM_DIVISOR: f64 = 512.0;

fn write(network: &ExportNetwork, format: ExportFormat) -> Result<FamilyCheckpoint, ExportError> {
    let Some(constant) = network.constant else {
        let found = "norms before attention, and none on queries and keys";
        return Err(ExportError::unsupported(
            "full attention",
            found,
            "norms on queries, keys and outputs, as OLMo Hybrid has them",
        ));
    };
    if network.rope_theta.is_some() {
        return Err(ExportError::unsupported("positions", "rotary positions", "none"));
    }
    let has_mixer = |kind: fn(&ExportMixer) -> bool| network.layers.iter().any(|layer| kind(&layer.mixer));
    if !has_mixer(|mixer| matches!(mixer, ExportMixer::Attention(_)))
        || !has_mixer(|mixer| matches!(mixer, ExportMixer::GatedDeltanet(_)))
    {
        return Err(ExportError::unsupported("stack", "one kind of layer", "layers of gdn and of full attention"));
    }
    let delta = common_delta(network)?;
    let [heads, kv_heads, network_head_dim] = common_heads(network)?;
    // Two more channels, for the constants of queries and keys.
    let head_dim = network_head_dim + 2;
    let mut tensors = embeddings_and_lm_head(network, format);
    for (index, layer) in network.layers.iter().enumerate() {
        let names = LayerNames { format, index };
        match &layer.mixer {
            ExportMixer::Attention(attention) => {
                let attention = attention.resized(heads, kv_heads, head_dim);
                tensors.extend(attention_tensors(&attention, constant, names));
                let mlp = with_constant_neuron(&layer.mlp, constant);
                tensors.extend(names.mlp(&mlp));
                let mut gain = layer.mlp_norm.clone();
                gain[constant.column] = 0.0;
                tensors.push(names.vector("post_attention_layernorm", "", gain.clone()));
                tensors.push(names.vector("post_feedforward_layernorm", "", gain));
            }
            ExportMixer::GatedDeltanet(delta) => {
                tensors.push(names.vector("input_layernorm", "", layer.mixer_norm.clone()));
                tensors.extend(delta_tensors(delta, names));
                tensors.push(names.vector("post_attention_layernorm", "", layer.mlp_norm.clone()));
                tensors.extend(names.mlp(&with_zero_neuron(&layer.mlp)));
            }
            _ => unreachable!("a family is only chosen for layers that it supports"),
        }
    }
    let layer_types: Vec<&str> = network
        .layers
        .iter()
        .map(
            |layer| {
                if matches!(layer.mixer, ExportMixer::Attention(_)) { "full_attention" } else { "linear_attention" }
            },
        )
        .collect();
    let mut config: Map<String, serde_json::Value> = common_config(network, [heads, kv_heads, head_dim]);
    let fields = json!({
        "intermediate_size": network.hidden_width() + 1,
        "layer_types": layer_types,
        // Without this field, transformers would use rotary positions with its default base.
        "rope_parameters": { "rope_type": "linear", "factor": NO_ROTATION_DIVISOR, "rope_theta": DEFAULT_ROPE_THETA },
        "linear_num_key_heads": delta.heads,
        "linear_num_value_heads": delta.value_heads,
        "linear_key_head_dim": delta.key_dim,
        "linear_value_head_dim": delta.value_dim,
        "linear_conv_kernel_dim": delta.kernel_size,
        "linear_allow_neg_eigval": delta.negative_eigenvalues,
    });
    if let serde_json::Value::Object(fields) = fields {
        config.extend(fields);
    }
    Ok(FamilyCheckpoint { config, keys: Vec::new(), tensors, width: network.width })
}

/// A Gated `DeltaNet` layer with the sizes of all such layers, which must be equal.
pub(super) fn common_delta(network: &ExportNetwork) -> Result<&GatedDeltanet, ExportError> {
    let mut delta_layers = network.layers.iter().filter_map(|layer| match &layer.mixer {
        ExportMixer::GatedDeltanet(delta) => Some(delta),
        _ => None,
    });
    let sizes = |delta: &GatedDeltanet| {
        (
            [delta.heads, delta.value_heads, delta.key_dim, delta.value_dim, delta.kernel_size],
            delta.negative_eigenvalues,
        )
    };
    let error = |found: &str| ExportError::unsupported(GatedDeltanetConfig::NAME, found, "one size in all layers");
    let first = delta_layers.next().ok_or_else(|| error("no layer"))?;
    match delta_layers.find(|other| sizes(other) != sizes(first)) {
        None => Ok(first),
        Some(_) => Err(error("layers of different sizes")),
    }
}

/// Attention whose last two channels of the first head hold constants; the last channel of its values writes the constant column.
fn attention_tensors(attention: &Attention, constant: ConstantColumn, names: LayerNames) -> Vec<ExportTensor> {
    let [query_constant, key_constant] = [attention.key_dim - 2, attention.key_dim - 1];
    let with_constant_channel = |matrix: &Matrix, channel: usize| {
        // Rows are scaled down, so that the constant dominates the norm, and the gain scales them up again.
        let largest = matrix.values.iter().fold(1.0_f64, |largest, value| largest.max(value.abs()));
        let mut matrix = matrix.clone().scaled(largest.recip());
        let constant_value = NORM_DIVISOR * (matrix.rows as f64).sqrt();
        matrix.set(channel, constant.column, constant_value / constant.value);
        (matrix.rows, matrix, NORM_DIVISOR * largest)
    };
    let (query_rows, queries, query_gain) = with_constant_channel(&attention.queries, query_constant);
    let (key_rows, keys, key_gain) = with_constant_channel(&attention.keys, key_constant);
    let (mut values, mut output) = (attention.values.clone(), attention.output.clone());
    values.set(key_constant, constant.column, 1.0);
    output.set(constant.column, key_constant, 1.0);
    vec![
        names.matrix("self_attn.q_proj", "", queries),
        names.matrix("self_attn.k_proj", "", keys),
        names.matrix("self_attn.v_proj", "", values),
        names.matrix("self_attn.o_proj", "", output),
        names.vector("self_attn.q_norm", "", vec![query_gain; query_rows]),
        names.vector("self_attn.k_norm", "", vec![key_gain; key_rows]),
    ]
}

/// An MLP with one more neuron, which writes the constant to its column.
fn with_constant_neuron(mlp: &GatedMlp, constant: ConstantColumn) -> GatedMlp {
    let neuron = mlp.gate.rows;
    let mut mlp = with_zero_neuron(mlp);
    mlp.gate.set(neuron, constant.column, OPEN_GATE_INPUT / constant.value);
    mlp.up.set(neuron, constant.column, 1.0 / constant.value);
    let gate = OPEN_GATE_INPUT / (1.0 + (-OPEN_GATE_INPUT).exp());
    mlp.down.set(constant.column, neuron, constant.value / gate);
    mlp
}

/// An MLP with one more neuron, whose weights are zero, so that all layers have MLPs of the same size.
fn with_zero_neuron(mlp: &GatedMlp) -> GatedMlp {
    let hidden = mlp.gate.rows + 1;
    GatedMlp {
        gate: mlp.gate.padded(hidden, mlp.gate.columns),
        up: mlp.up.padded(hidden, mlp.up.columns),
        down: mlp.down.padded(mlp.down.rows, hidden),
    }
}

fn delta_tensors(delta: &GatedDeltanet, names: LayerNames) -> Vec<ExportTensor> {
    let name = |tensor: &str| names.stem(&format!("linear_attn.{tensor}"), "");
    let Matrix { rows, columns, values } = delta.convolution.clone();
    vec![
        ExportTensor::matrix(name("q_proj.weight"), delta.queries.clone()),
        ExportTensor::matrix(name("k_proj.weight"), delta.keys.clone()),
        ExportTensor::matrix(name("v_proj.weight"), delta.values.clone()),
        ExportTensor::matrix(name("a_proj.weight"), delta.dt_proj.clone()),
        ExportTensor::matrix(name("b_proj.weight"), delta.beta.clone()),
        ExportTensor::matrix(name("g_proj.weight"), delta.gate.clone()),
        ExportTensor { name: name("conv1d.weight"), shape: vec![rows, 1, columns], values },
        ExportTensor::vector(name("A_log"), delta.a_log.clone()),
        ExportTensor::vector(name("dt_bias"), delta.dt_bias.clone()),
        ExportTensor::vector(name("o_norm.weight"), delta.norm.clone()),
        ExportTensor::matrix(name("o_proj.weight"), delta.output.clone()),
    ]
}
