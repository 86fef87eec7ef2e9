//! Qwen3.5's dense architecture in GGUF: Gated DeltaNet and full attention, norms before every part.
//!
//! Its full layers have a norm on the queries and keys of every head and a gate on what a head reads. Networks with a constant column make both do
//! nothing: a channel of every query head in which every key is zero, and one of every key head in which every query is zero, make the norms
//! constant; the gates read the column and are open. llama.cpp wants keys and values of one width, so the narrower ones get empty channels.

use super::gguf::Value as Key;
use super::llama::{LayerNames, STILL, USUAL_BASE, common_keys, ends};
use super::matrix::Matrix;
use super::olmo_hybrid::common_delta;
use super::plain::{Attention, Constant, ExportMixer, ExportNetwork, GatedDeltanet, common_heads};
use super::{ExportError, ExportFormat, Family, Target, TargetTensor, llama};

/// The family.
pub(super) const FAMILY: Family = Family {
    name: "qwen35",
    class: None,
    architecture: Some("qwen35"),
    mixers: &["gdn", "full"],
    feed_forward: true,
    width: llama::width,
    write,
};

/// Input of a sigmoid that is one in single precision.
const OPEN: f64 = 32.0;

/// What the norms of queries and keys divide by.
const LENGTH: f64 = 512.0;

fn write(plain: &ExportNetwork, format: ExportFormat) -> Result<Target, ExportError> {
    let Some(constant) = plain.constant else {
        let found = "no norms on queries and keys, and no gate on what is read";
        return Err(ExportError::unfit("full attention", found, "both, as Qwen3.5 has them"));
    };
    if plain.rotary.is_some() {
        return Err(ExportError::unfit("positions", "rotary positions", "none"));
    }
    let delta = common_delta(plain)?;
    if delta.negative {
        return Err(ExportError::unfit("gdn", "steps of up to two (`negative=yes`)", "steps of up to one"));
    }
    if delta.heads != delta.value_heads {
        let found = format!("{} heads of keys for {} of values", delta.heads, delta.value_heads);
        return Err(ExportError::unfit("gdn", found, "as many of keys as of values"));
    }
    let [heads, kv_heads, own_head] = common_heads(plain)?;
    // Two more channels, for the constants of queries and keys.
    let head = own_head + 2;
    let mut tensors = ends(plain, format);
    for (index, layer) in plain.layers.iter().enumerate() {
        let names = LayerNames { format, index };
        tensors.push(names.vector("", "attn_norm", layer.mixer_norm.clone()));
        match &layer.mixer {
            ExportMixer::Attention(attention) => {
                tensors.extend(attention_tensors(&attention.resized(heads, kv_heads, head), constant, names));
            }
            ExportMixer::GatedDeltanet(delta) => tensors.extend(delta_tensors(delta, names)),
            _ => unreachable!("a family gets layers that fit it"),
        }
        tensors.push(names.vector("", "post_attention_norm", layer.network_norm.clone()));
        tensors.extend(names.network(&layer.network));
    }
    let width = state_width(delta);
    // What is read is smaller by the root of the key widths, and the mean of squares is over more channels.
    let epsilon = plain.epsilon * (delta.key * delta.value) as f64 / (width * width) as f64;
    let is_recurrent = |mixer: &ExportMixer| u32::from(matches!(mixer, ExportMixer::GatedDeltanet(_)));
    let number = |value: usize| Key::U32(value as u32);
    // Pairs of channels belong to one of three positions in turn.
    let pairs = head as u32 / 2;
    let sections = vec![pairs.div_ceil(3), (pairs + 1) / 3, pairs / 3, 0];
    let mut keys = common_keys(plain, [heads, kv_heads, head]);
    keys.retain(|(name, _)| name != "attention.layer_norm_rms_epsilon");
    let own = [
        ("attention.layer_norm_rms_epsilon", Key::F32(epsilon as f32)),
        (
            "attention.recurrent_layers",
            Key::U32s(plain.layers.iter().map(|layer| is_recurrent(&layer.mixer)).collect()),
        ),
        ("rope.dimension_count", number(head)),
        ("rope.dimension_sections", Key::U32s(sections)),
        ("rope.freq_base", Key::F32(USUAL_BASE as f32)),
        ("rope.scaling.type", Key::Text("linear".to_owned())),
        ("rope.scaling.factor", Key::F32(STILL as f32)),
        ("ssm.conv_kernel", number(delta.taps)),
        ("ssm.inner_size", number(width * delta.value_heads)),
        ("ssm.state_size", number(width)),
        ("ssm.time_step_rank", number(delta.value_heads)),
        ("ssm.group_count", number(delta.heads)),
    ];
    keys.extend(own.into_iter().map(|(name, value)| (name.to_owned(), value)));
    Ok(Target { config: serde_json::Map::new(), keys, tensors, width: plain.width })
}

/// The width of keys and values in llama.cpp.
fn state_width(delta: &GatedDeltanet) -> usize {
    delta.key.max(delta.value)
}

/// Attention whose last two channels of every head hold constants, with gates that are open.
fn attention_tensors(attention: &Attention, constant: Constant, names: LayerNames) -> Vec<TargetTensor> {
    let head = attention.key;
    let normed = |matrix: &Matrix, channel: usize| {
        // Rows are made small, so that beside the constant they do not count, and the gain makes them large again.
        let largest = matrix.values.iter().fold(1.0_f64, |largest, value| largest.max(value.abs()));
        let mut matrix = matrix.clone().scaled(largest.recip());
        let length = LENGTH * (head as f64).sqrt();
        (channel..matrix.rows).step_by(head).for_each(|row| matrix.set(row, constant.column, length / constant.value));
        (matrix, vec![LENGTH * largest; head])
    };
    let (queries, query_gain) = normed(&attention.queries, head - 2);
    let (keys, key_gain) = normed(&attention.keys, head - 1);
    let mut gates = Matrix::zeros(head, queries.columns);
    (0..head).for_each(|row| gates.set(row, constant.column, OPEN / constant.value));
    // The gate of a head follows its query.
    let parts = (0..attention.heads).flat_map(|at| [queries.take_rows(at * head..(at + 1) * head), gates.clone()]);
    let parts: Vec<Matrix> = parts.collect();
    vec![
        names.matrix("", "attn_q", Matrix::stacked(&parts.iter().collect::<Vec<_>>())),
        names.matrix("", "attn_k", keys),
        names.matrix("", "attn_v", attention.values.clone()),
        names.matrix("", "attn_output", attention.output.clone()),
        names.vector("", "attn_q_norm", query_gain),
        names.vector("", "attn_k_norm", key_gain),
    ]
}

fn delta_tensors(delta: &GatedDeltanet, names: LayerNames) -> Vec<TargetTensor> {
    let (width, heads) = (state_width(delta), delta.heads);
    // Rows of heads, each with empty ones behind.
    let wide = |matrix: &Matrix, own: usize| {
        matrix.rows_by(heads * width, |row| (row % width < own).then(|| row / width * own + row % width))
    };
    let key_rows = heads * delta.key;
    let filters = &delta.convolution;
    let convolution = Matrix::stacked(&[
        &wide(&filters.take_rows(0..key_rows), delta.key),
        &wide(&filters.take_rows(key_rows..2 * key_rows), delta.key),
        &wide(&filters.take_rows(2 * key_rows..filters.rows), delta.value),
    ]);
    let input = Matrix::stacked(&[
        &wide(&delta.queries, delta.key),
        &wide(&delta.keys, delta.key),
        &wide(&delta.values, delta.value),
    ]);
    let fewer = (delta.value as f64 / width as f64).sqrt();
    let mut gain: Vec<f64> = delta.norm.iter().map(|value| value * fewer).collect();
    gain.resize(width, 1.0);
    let output = delta.output.columns_by(heads * width, |column| {
        (column % width < delta.value).then(|| column / width * delta.value + column % width)
    });
    let name = |tensor: &str| names.stem("", tensor);
    vec![
        names.matrix("", "attn_qkv", input),
        names.matrix("", "attn_gate", wide(&delta.gate, delta.value)),
        TargetTensor::matrix(name("ssm_conv1d.weight"), convolution),
        names.matrix("", "ssm_beta", delta.strength.clone()),
        names.matrix("", "ssm_alpha", delta.step.clone()),
        TargetTensor::vector(name("ssm_dt.bias"), delta.step_bias.clone()),
        TargetTensor::vector(name("ssm_a"), delta.log_rate.iter().map(|rate| -rate.exp()).collect()),
        names.vector("", "ssm_norm", gain),
        names.matrix("", "ssm_out", output),
    ]
}
