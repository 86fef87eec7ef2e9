//! OLMo Hybrid: Gated DeltaNet and full attention.
//!
//! Its full layers have norms on queries and keys, over all heads together, and on what attention and the gated network give instead of on
//! what they read. Each is made constant by a constant of its own, which only networks with a constant column can have:
//!
//! - a channel of the queries in which every key is zero, and one of the keys in which every query is zero;
//! - the column of the ballast, which attention fills through one channel of the values and the network through one more neuron, and which
//!   the gain of the norm behind them drops.

use serde_json::{Map, json};

use super::llama::{LayerNames, STILL, USUAL_BASE, common_config, ends};
use super::matrix::Matrix;
use super::plain::{Attention, Constant, ExportMixer, ExportNetwork, GatedDeltanet, GatedNetwork, common_heads};
use super::{ExportError, ExportFormat, Family, Target, TargetTensor, llama};

/// The family.
pub(super) const FAMILY: Family = Family {
    name: "olmo_hybrid",
    class: Some("OlmoHybridForCausalLM"),
    architecture: None,
    mixers: &["gdn", "full"],
    feed_forward: true,
    width: llama::width,
    write,
};

/// Input of a gate that is always open.
const OPEN: f64 = 8.0;

/// What the norms of queries and keys divide by.
const LENGTH: f64 = 512.0;

fn write(plain: &ExportNetwork, format: ExportFormat) -> Result<Target, ExportError> {
    let Some(constant) = plain.constant else {
        let found = "norms before attention, and none on queries and keys";
        return Err(ExportError::unfit(
            "full attention",
            found,
            "norms on queries, keys and outputs, as OLMo Hybrid has them",
        ));
    };
    if plain.rotary.is_some() {
        return Err(ExportError::unfit("positions", "rotary positions", "none"));
    }
    let has = |kind: fn(&ExportMixer) -> bool| plain.layers.iter().any(|layer| kind(&layer.mixer));
    if !has(|mixer| matches!(mixer, ExportMixer::Attention(_)))
        || !has(|mixer| matches!(mixer, ExportMixer::GatedDeltanet(_)))
    {
        return Err(ExportError::unfit("stack", "one kind of layer", "layers of gdn and of full attention"));
    }
    let delta = common_delta(plain)?;
    let [heads, kv_heads, own_head] = common_heads(plain)?;
    // Two more channels, for the constants of queries and keys.
    let head = own_head + 2;
    let mut tensors = ends(plain, format);
    for (index, layer) in plain.layers.iter().enumerate() {
        let names = LayerNames { format, index };
        match &layer.mixer {
            ExportMixer::Attention(attention) => {
                let attention = attention.resized(heads, kv_heads, head);
                tensors.extend(attention_tensors(&attention, constant, names));
                let network = with_constant(&layer.network, constant, true);
                tensors.extend(names.network(&network));
                let mut gain = layer.network_norm.clone();
                gain[constant.column] = 0.0;
                tensors.push(names.vector("post_attention_layernorm", "", gain.clone()));
                tensors.push(names.vector("post_feedforward_layernorm", "", gain));
            }
            ExportMixer::GatedDeltanet(delta) => {
                tensors.push(names.vector("input_layernorm", "", layer.mixer_norm.clone()));
                tensors.extend(delta_tensors(delta, names));
                tensors.push(names.vector("post_attention_layernorm", "", layer.network_norm.clone()));
                tensors.extend(names.network(&with_constant(&layer.network, constant, false)));
            }
            _ => unreachable!("a family gets layers that fit it"),
        }
    }
    let kinds: Vec<&str> = plain
        .layers
        .iter()
        .map(
            |layer| {
                if matches!(layer.mixer, ExportMixer::Attention(_)) { "full_attention" } else { "linear_attention" }
            },
        )
        .collect();
    let mut config: Map<String, serde_json::Value> = common_config(plain, [heads, kv_heads, head]);
    let own = json!({
        "intermediate_size": plain.hidden() + 1,
        "layer_types": kinds,
        // transformers turns by its usual base where nothing is said.
        "rope_parameters": { "rope_type": "linear", "factor": STILL, "rope_theta": USUAL_BASE },
        "linear_num_key_heads": delta.heads,
        "linear_num_value_heads": delta.value_heads,
        "linear_key_head_dim": delta.key,
        "linear_value_head_dim": delta.value,
        "linear_conv_kernel_dim": delta.taps,
        "linear_allow_neg_eigval": delta.negative,
    });
    if let serde_json::Value::Object(own) = own {
        config.extend(own);
    }
    Ok(Target { config, keys: Vec::new(), tensors, width: plain.width })
}

/// The Gated DeltaNet of all layers that have one; they must be of one size.
pub(super) fn common_delta(plain: &ExportNetwork) -> Result<&GatedDeltanet, ExportError> {
    let mut all = plain.layers.iter().filter_map(|layer| match &layer.mixer {
        ExportMixer::GatedDeltanet(delta) => Some(delta),
        _ => None,
    });
    let sizes =
        |delta: &GatedDeltanet| ([delta.heads, delta.value_heads, delta.key, delta.value, delta.taps], delta.negative);
    let unfit = |found: &str| ExportError::unfit("gdn", found, "one size in all layers");
    let first = all.next().ok_or_else(|| unfit("no layer"))?;
    match all.find(|other| sizes(other) != sizes(first)) {
        None => Ok(first),
        Some(_) => Err(unfit("layers of different sizes")),
    }
}

/// Attention whose last two channels of the first head hold constants; the last channel of its values fills the ballast's column.
fn attention_tensors(attention: &Attention, constant: Constant, names: LayerNames) -> Vec<TargetTensor> {
    let [own_query, own_key] = [attention.key - 2, attention.key - 1];
    let normed = |matrix: &Matrix, channel: usize| {
        // Rows are made small, so that beside the constant they do not count, and the gain makes them large again.
        let largest = matrix.values.iter().fold(1.0_f64, |largest, value| largest.max(value.abs()));
        let mut matrix = matrix.clone().scaled(largest.recip());
        let length = LENGTH * (matrix.rows as f64).sqrt();
        matrix.set(channel, constant.column, length / constant.value);
        (matrix.rows, matrix, LENGTH * largest)
    };
    let (query_rows, queries, query_gain) = normed(&attention.queries, own_query);
    let (key_rows, keys, key_gain) = normed(&attention.keys, own_key);
    let (mut values, mut output) = (attention.values.clone(), attention.output.clone());
    values.set(own_key, constant.column, 1.0);
    output.set(constant.column, own_key, 1.0);
    vec![
        names.matrix("self_attn.q_proj", "", queries),
        names.matrix("self_attn.k_proj", "", keys),
        names.matrix("self_attn.v_proj", "", values),
        names.matrix("self_attn.o_proj", "", output),
        names.vector("self_attn.q_norm", "", vec![query_gain; query_rows]),
        names.vector("self_attn.k_norm", "", vec![key_gain; key_rows]),
    ]
}

/// A network with one more neuron, which fills the ballast's column or does nothing.
fn with_constant(network: &GatedNetwork, constant: Constant, fills: bool) -> GatedNetwork {
    let rows = network.gate.rows;
    let mut gate = network.gate.padded(rows + 1, network.gate.columns);
    let mut up = network.up.padded(rows + 1, network.up.columns);
    let mut down = network.down.padded(network.down.rows, rows + 1);
    if fills {
        gate.set(rows, constant.column, OPEN / constant.value);
        up.set(rows, constant.column, 1.0 / constant.value);
        let open = OPEN / (1.0 + (-OPEN).exp());
        down.set(constant.column, rows, constant.value / open);
    }
    GatedNetwork { gate, up, down }
}

fn delta_tensors(delta: &GatedDeltanet, names: LayerNames) -> Vec<TargetTensor> {
    let name = |tensor: &str| names.stem(&format!("linear_attn.{tensor}"), "");
    let Matrix { rows, columns, values } = delta.convolution.clone();
    vec![
        TargetTensor::matrix(name("q_proj.weight"), delta.queries.clone()),
        TargetTensor::matrix(name("k_proj.weight"), delta.keys.clone()),
        TargetTensor::matrix(name("v_proj.weight"), delta.values.clone()),
        TargetTensor::matrix(name("a_proj.weight"), delta.step.clone()),
        TargetTensor::matrix(name("b_proj.weight"), delta.strength.clone()),
        TargetTensor::matrix(name("g_proj.weight"), delta.gate.clone()),
        TargetTensor { name: name("conv1d.weight"), shape: vec![rows, 1, columns], values },
        TargetTensor::vector(name("A_log"), delta.log_rate.clone()),
        TargetTensor::vector(name("dt_bias"), delta.step_bias.clone()),
        TargetTensor::vector(name("o_norm.weight"), delta.norm.clone()),
        TargetTensor::matrix(name("o_proj.weight"), delta.output.clone()),
    ]
}
