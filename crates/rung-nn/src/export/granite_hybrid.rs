//! Granite 4 hybrids: Mamba-2 and full attention, with or without rotary positions.
//!
//! Its Mamba-2 has exactly twice as many channels as the stream has columns, so empty heads are added; the gain and the epsilon of its gated
//! norm are changed so that it gives the same numbers. All of its multipliers are one.

use rung_theory::stack::Plan;
use serde_json::{Map, json};

use super::gguf::Value as Key;
use super::llama::{LayerNames, USUAL_BASE, common_config, common_keys, ends, pairs_side_by_side};
use super::matrix::Matrix;
use super::plain::{ExportMixer, ExportNetwork, Mamba2, common_heads};
use super::{ExportError, ExportFormat, Family, Target, TargetTensor, llama};

/// The family.
pub(super) const FAMILY: Family = Family {
    name: "granitemoehybrid",
    class: Some("GraniteMoeHybridForCausalLM"),
    architecture: Some("granitehybrid"),
    mixers: &["mamba2", "full"],
    feed_forward: true,
    width,
    write,
};

/// Channels of Mamba-2 for each column of the stream.
pub(super) const EXPANSION: usize = 2;

/// A width whose double holds the channels of every Mamba-2 layer in whole heads, groups and states.
pub(super) fn width(plan: &Plan, least: usize) -> usize {
    let (mut width, mut step) = (least, llama::width(plan, 1));
    for mixer in plan.layers.iter().flat_map(|layer| layer.mixers.iter()).filter(|mixer| mixer.name() == "mamba2") {
        let number = |option: &str| mixer.number(option).unwrap_or_default().max(1) as usize;
        width = width.max((number("heads") * number("head")).div_ceil(EXPANSION)).max(1);
        for divisor in [number("head") * number("groups"), number("state")] {
            step = least_common_multiple(step, divisor);
        }
    }
    width.next_multiple_of(step)
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

fn write(plain: &ExportNetwork, format: ExportFormat) -> Result<Target, ExportError> {
    let [heads, kv_heads, head] = common_heads(plain)?;
    let mamba2 = common_mamba2(plain)?;
    let epsilon = mamba2_epsilon(plain, mamba2)?;
    let mut tensors = ends(plain, format);
    for (index, layer) in plain.layers.iter().enumerate() {
        let names = LayerNames { format, index };
        tensors.push(names.vector("input_layernorm", "attn_norm", layer.mixer_norm.clone()));
        match &layer.mixer {
            ExportMixer::Attention(attention) => {
                let attention = attention.resized(heads, kv_heads, head);
                let turned = |matrix: Matrix| {
                    if format == ExportFormat::Gguf { pairs_side_by_side(&matrix, head) } else { matrix }
                };
                tensors.push(names.matrix("self_attn.q_proj", "attn_q", turned(attention.queries)));
                tensors.push(names.matrix("self_attn.k_proj", "attn_k", turned(attention.keys)));
                tensors.push(names.matrix("self_attn.v_proj", "attn_v", attention.values));
                tensors.push(names.matrix("self_attn.o_proj", "attn_output", attention.output));
            }
            ExportMixer::Mamba2(mamba2) => tensors.extend(mamba2_tensors(&mamba2.widened(plain.width), names, "mamba")),
            _ => unreachable!("a family gets layers that fit it"),
        }
        tensors.push(names.vector("post_attention_layernorm", "ffn_norm", layer.network_norm.clone()));
        match format {
            ExportFormat::HuggingFace => {
                let both = Matrix::stacked(&[&layer.network.gate, &layer.network.up]);
                tensors.push(names.matrix("shared_mlp.input_linear", "", both));
                tensors.push(names.matrix("shared_mlp.output_linear", "", layer.network.down.clone()));
            }
            ExportFormat::Gguf => tensors.extend(names.network(&layer.network)),
        }
    }
    let is_attention = |layer: &super::plain::ExportLayer| matches!(layer.mixer, ExportMixer::Attention(_));
    let inner = EXPANSION * plain.width;
    let ssm_heads = mamba2.map_or(1, |mamba2| inner / mamba2.head);
    let size = |of: fn(&Mamba2) -> usize| mamba2.map_or(1, of);
    let (mut config, mut keys) = (Map::new(), Vec::new());
    match format {
        ExportFormat::HuggingFace => {
            let kinds: Vec<&str> = plain
                .layers
                .iter()
                .map(|layer| if is_attention(layer) { "full_attention" } else { "linear_attention" })
                .collect();
            config = common_config(plain, [heads, kv_heads, head]);
            let own = json!({
                "rms_norm_eps": epsilon,
                "layer_types": kinds,
                "shared_intermediate_size": plain.hidden(),
                "num_local_experts": 0,
                "num_experts_per_tok": 0,
                "attention_multiplier": (head as f64).sqrt().recip(),
                "embedding_multiplier": 1.0,
                "residual_multiplier": 1.0,
                "logits_scaling": 1.0,
                "position_embedding_type": plain.rotary.map(|_| "rope"),
                "rope_parameters": { "rope_type": "default", "rope_theta": plain.rotary.unwrap_or(USUAL_BASE) },
                "mamba_n_heads": ssm_heads,
                "mamba_d_head": inner / ssm_heads,
                "mamba_d_state": size(|mamba2| mamba2.state),
                "mamba_n_groups": size(|mamba2| mamba2.groups),
                "mamba_d_conv": size(|mamba2| mamba2.taps),
                "mamba_expand": EXPANSION,
                "mamba_chunk_size": 64,
                "mamba_conv_bias": true,
                "mamba_proj_bias": false,
            });
            if let serde_json::Value::Object(own) = own {
                config.extend(own);
            }
        }
        ExportFormat::Gguf => {
            keys = common_keys(plain, [heads, kv_heads, head]);
            keys.retain(|(name, _)| name != "attention.head_count_kv" && name != "attention.layer_norm_rms_epsilon");
            let kv = plain.layers.iter().map(|layer| if is_attention(layer) { kv_heads as u32 } else { 0 });
            let number = |value: usize| Key::U32(value as u32);
            let own = [
                ("attention.head_count_kv", Key::U32s(kv.collect())),
                ("attention.layer_norm_rms_epsilon", Key::F32(epsilon as f32)),
                ("attention.scale", Key::F32((head as f32).sqrt().recip())),
                ("embedding_scale", Key::F32(1.0)),
                ("residual_scale", Key::F32(1.0)),
                ("logit_scale", Key::F32(1.0)),
                ("rope.dimension_count", number(head)),
                ("rope.freq_base", Key::F32(plain.rotary.unwrap_or(USUAL_BASE) as f32)),
                ("rope.scaling.finetuned", Key::Flag(plain.rotary.is_some())),
                ("ssm.conv_kernel", number(size(|mamba2| mamba2.taps))),
                ("ssm.inner_size", number(inner)),
                ("ssm.state_size", number(size(|mamba2| mamba2.state))),
                ("ssm.time_step_rank", number(ssm_heads)),
                ("ssm.group_count", number(size(|mamba2| mamba2.groups))),
            ];
            keys.extend(own.into_iter().map(|(name, value)| (name.to_owned(), value)));
        }
    }
    Ok(Target { config, keys, tensors, width: plain.width })
}

/// The Mamba-2 of all layers that have one; they must be of one size.
pub(super) fn common_mamba2(plain: &ExportNetwork) -> Result<Option<&Mamba2>, ExportError> {
    let mut all = plain.layers.iter().filter_map(|layer| match &layer.mixer {
        ExportMixer::Mamba2(mamba2) => Some(mamba2),
        _ => None,
    });
    let sizes = |mamba2: &Mamba2| [mamba2.heads, mamba2.head, mamba2.state, mamba2.groups, mamba2.taps];
    let Some(first) = all.next() else { return Ok(None) };
    match all.find(|other| sizes(other) != sizes(first)) {
        None => Ok(Some(first)),
        Some(_) => Err(ExportError::unfit("mamba2", "layers of different sizes", "one size")),
    }
}

/// The epsilon with which a gated norm over added heads gives the same numbers; it is the epsilon of all norms.
pub(super) fn mamba2_epsilon(plain: &ExportNetwork, mamba2: Option<&Mamba2>) -> Result<f64, ExportError> {
    let Some(mamba2) = mamba2 else { return Ok(plain.epsilon) };
    let (own, inner) = (mamba2.heads * mamba2.head, EXPANSION * plain.width);
    if plain.constant.is_none() && own != inner {
        let found = format!("{own} channels in a stream of {} columns", plain.width);
        return Err(ExportError::unfit("mamba2", found, format!("{inner}: twice as many as columns")));
    }
    // Beside the ballast of a stream without norms any epsilon is small.
    Ok(plain.epsilon * own as f64 / inner as f64)
}

/// The tensors of a Mamba-2 layer, as transformers (under `mixer`) and llama.cpp have them.
pub(super) fn mamba2_tensors(mamba2: &Mamba2, names: LayerNames, mixer: &str) -> Vec<TargetTensor> {
    let name = |hugging_face: &str, gguf: &str| names.stem(&format!("{mixer}.{hugging_face}"), gguf);
    let Matrix { rows, columns, values } = mamba2.convolution.clone();
    let is_gguf = names.format == ExportFormat::Gguf;
    let convolution = TargetTensor {
        name: name("conv1d.weight", "ssm_conv1d.weight"),
        shape: if is_gguf { vec![rows, columns] } else { vec![rows, 1, columns] },
        values,
    };
    let by_head = |name: String, values: Vec<f64>| TargetTensor {
        name,
        shape: if is_gguf { vec![values.len(), 1] } else { vec![values.len()] },
        values,
    };
    let rates = mamba2.log_rate.iter();
    let rates: Vec<f64> = if is_gguf { rates.map(|rate| -rate.exp()).collect() } else { rates.copied().collect() };
    let mut norm = TargetTensor::vector(name("norm.weight", "ssm_norm.weight"), mamba2.norm.clone());
    if is_gguf {
        norm.shape = vec![mamba2.groups, mamba2.norm.len() / mamba2.groups];
    }
    vec![
        TargetTensor::matrix(name("in_proj.weight", "ssm_in.weight"), mamba2.input.clone()),
        convolution,
        TargetTensor::vector(name("conv1d.bias", "ssm_conv1d.bias"), mamba2.convolution_bias.clone()),
        TargetTensor::vector(name("dt_bias", "ssm_dt.bias"), mamba2.step_bias.clone()),
        by_head(name("A_log", "ssm_a"), rates),
        by_head(name("D", "ssm_d"), mamba2.skip.clone()),
        norm,
        TargetTensor::matrix(name("out_proj.weight", "ssm_out.weight"), mamba2.output.clone()),
    ]
}

impl Mamba2 {
    /// The same with empty heads, so that there are twice as many channels as columns of the stream.
    pub(super) fn widened(&self, width: usize) -> Self {
        let (own, inner) = (self.heads * self.head, EXPANSION * width);
        let heads = inner / self.head;
        let (own_each, each) = (self.heads / self.groups, heads / self.groups);
        let head = |at: usize| (at % each < own_each).then(|| at / each * own_each + at % each);
        let channel = |at: usize| head(at / self.head).map(|own| own * self.head + at % self.head);
        let shared = 2 * self.groups * self.state;
        let part = |matrix: &Matrix, first: usize, count: usize| matrix.take_rows(first..first + count);
        let gate = part(&self.input, 0, own).rows_by(inner, channel);
        let values = part(&self.input, own, own).rows_by(inner, channel);
        let both = part(&self.input, 2 * own, shared);
        let step = part(&self.input, 2 * own + shared, self.heads).rows_by(heads, head);
        let convolution = part(&self.convolution, 0, own).rows_by(inner, channel);
        let spread = |values: &[f64], count: usize, order: &dyn Fn(usize) -> Option<usize>| {
            (0..count).map(|at| order(at).map_or(0.0, |own| values[own])).collect::<Vec<f64>>()
        };
        let mut convolution_bias = spread(&self.convolution_bias[..own], inner, &channel);
        convolution_bias.extend(&self.convolution_bias[own..]);
        let shorter = (own as f64 / inner as f64).sqrt();
        Self {
            heads,
            input: Matrix::stacked(&[&gate, &values, &both, &step]),
            convolution: Matrix::stacked(&[&convolution, &part(&self.convolution, own, shared)]),
            convolution_bias,
            step_bias: spread(&self.step_bias, heads, &head),
            log_rate: spread(&self.log_rate, heads, &head),
            skip: spread(&self.skip, heads, &head),
            norm: spread(&self.norm, inner, &channel).iter().map(|gain| gain * shorter).collect(),
            output: self.output.columns_by(inner, channel),
            ..self.clone()
        }
    }
}
