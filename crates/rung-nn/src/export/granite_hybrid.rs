//! Granite 4 hybrids: Mamba-2 and full attention, with or without rotary positions.
//!
//! Its Mamba-2 has exactly twice as many channels as the residual stream has columns, so zero heads are added; the gain and the epsilon of its gated
//! norm are changed so that it gives the same numbers. All of its multipliers are one.

use rung_theory::stack::Plan;
use serde_json::{Map, json};

use super::gguf::HeaderValue;
use super::llama::{
    DEFAULT_ROPE_THETA, LayerNames, common_config, common_keys, embeddings_and_lm_head, interleave_rotary_pairs,
};
use super::matrix::Matrix;
use super::network::{ExportMixer, ExportNetwork, Mamba2, common_heads};
use super::{ExportError, ExportFormat, ExportTensor, Family, FamilyCheckpoint, llama};
use crate::mixer::{MixerConfig as _, mamba2::Mamba2Config, softmax::SoftmaxConfig};

/// The family.
pub(super) const FAMILY: Family = Family {
    name: "granitemoehybrid",
    class: Some("GraniteMoeHybridForCausalLM"),
    architecture: Some("granitehybrid"),
    mixers: &[Mamba2Config::NAME, SoftmaxConfig::NAME],
    feed_forward: true,
    width,
    write,
};

/// Channels of Mamba-2 for each column of the residual stream.
pub(super) const EXPANSION: usize = 2;

/// A width from `min_width` on whose double fits every Mamba-2 layer and is a multiple of its heads, groups and states.
pub(super) fn width(plan: &Plan, min_width: usize) -> usize {
    let (mut width, mut width_multiple) = (min_width, llama::width(plan, 1));
    for mixer in
        plan.layers.iter().flat_map(|layer| layer.mixers.iter()).filter(|mixer| mixer.name() == Mamba2Config::NAME)
    {
        let number = |option: &str| mixer.number(option).unwrap_or_default().max(1) as usize;
        width = width.max((number("heads") * number("head")).div_ceil(EXPANSION)).max(1);
        for divisor in [number("head") * number("groups"), number("state")] {
            width_multiple = least_common_multiple(width_multiple, divisor);
        }
    }
    width.next_multiple_of(width_multiple)
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

fn write(network: &ExportNetwork, format: ExportFormat) -> Result<FamilyCheckpoint, ExportError> {
    let [heads, kv_heads, head_dim] = common_heads(network)?;
    let mamba2 = common_mamba2(network)?;
    let epsilon = mamba2_epsilon(network, mamba2)?;
    let mut tensors = embeddings_and_lm_head(network, format);
    for (index, layer) in network.layers.iter().enumerate() {
        let names = LayerNames { format, index };
        tensors.push(names.vector("input_layernorm", "attn_norm", layer.mixer_norm.clone()));
        match &layer.mixer {
            ExportMixer::Attention(attention) => {
                let attention = attention.resized(heads, kv_heads, head_dim);
                let reorder = |matrix: Matrix| {
                    if format == ExportFormat::Gguf { interleave_rotary_pairs(&matrix, head_dim) } else { matrix }
                };
                tensors.push(names.matrix("self_attn.q_proj", "attn_q", reorder(attention.queries)));
                tensors.push(names.matrix("self_attn.k_proj", "attn_k", reorder(attention.keys)));
                tensors.push(names.matrix("self_attn.v_proj", "attn_v", attention.values));
                tensors.push(names.matrix("self_attn.o_proj", "attn_output", attention.output));
            }
            ExportMixer::Mamba2(mamba2) => {
                tensors.extend(mamba2_tensors(&mamba2.widened(network.width), names, "mamba"));
            }
            _ => unreachable!("a family is only chosen for layers that it supports"),
        }
        tensors.push(names.vector("post_attention_layernorm", "ffn_norm", layer.mlp_norm.clone()));
        match format {
            ExportFormat::HuggingFace => {
                let gate_up = Matrix::stack_rows(&[&layer.mlp.gate, &layer.mlp.up]);
                tensors.push(names.matrix("shared_mlp.input_linear", "", gate_up));
                tensors.push(names.matrix("shared_mlp.output_linear", "", layer.mlp.down.clone()));
            }
            ExportFormat::Gguf => tensors.extend(names.mlp(&layer.mlp)),
        }
    }
    let is_attention = |layer: &super::network::ExportLayer| matches!(layer.mixer, ExportMixer::Attention(_));
    let inner = EXPANSION * network.width;
    let ssm_heads = mamba2.map_or(1, |mamba2| inner / mamba2.head_dim);
    let size = |get: fn(&Mamba2) -> usize| mamba2.map_or(1, get);
    let (mut config, mut keys) = (Map::new(), Vec::new());
    match format {
        ExportFormat::HuggingFace => {
            let layer_types: Vec<&str> = network
                .layers
                .iter()
                .map(|layer| if is_attention(layer) { "full_attention" } else { "linear_attention" })
                .collect();
            config = common_config(network, [heads, kv_heads, head_dim]);
            let fields = json!({
                "rms_norm_eps": epsilon,
                "layer_types": layer_types,
                "shared_intermediate_size": network.hidden_width(),
                "num_local_experts": 0,
                "num_experts_per_tok": 0,
                "attention_multiplier": (head_dim as f64).sqrt().recip(),
                "embedding_multiplier": 1.0,
                "residual_multiplier": 1.0,
                "logits_scaling": 1.0,
                "position_embedding_type": network.rope_theta.map(|_| "rope"),
                "rope_parameters": { "rope_type": "default", "rope_theta": network.rope_theta.unwrap_or(DEFAULT_ROPE_THETA) },
                "mamba_n_heads": ssm_heads,
                "mamba_d_head": inner / ssm_heads,
                "mamba_d_state": size(|mamba2| mamba2.state),
                "mamba_n_groups": size(|mamba2| mamba2.groups),
                "mamba_d_conv": size(|mamba2| mamba2.kernel_size),
                "mamba_expand": EXPANSION,
                "mamba_chunk_size": 64,
                "mamba_conv_bias": true,
                "mamba_proj_bias": false,
            });
            if let serde_json::Value::Object(fields) = fields {
                config.extend(fields);
            }
        }
        ExportFormat::Gguf => {
            keys = common_keys(network, [heads, kv_heads, head_dim]);
            keys.retain(|(name, _)| name != "attention.head_count_kv" && name != "attention.layer_norm_rms_epsilon");
            let kv_head_counts =
                network.layers.iter().map(|layer| if is_attention(layer) { kv_heads as u32 } else { 0 });
            let number = |value: usize| HeaderValue::U32(value as u32);
            let family_keys = [
                ("attention.head_count_kv", HeaderValue::U32Array(kv_head_counts.collect())),
                ("attention.layer_norm_rms_epsilon", HeaderValue::F32(epsilon as f32)),
                ("attention.scale", HeaderValue::F32((head_dim as f32).sqrt().recip())),
                ("embedding_scale", HeaderValue::F32(1.0)),
                ("residual_scale", HeaderValue::F32(1.0)),
                ("logit_scale", HeaderValue::F32(1.0)),
                ("rope.dimension_count", number(head_dim)),
                ("rope.freq_base", HeaderValue::F32(network.rope_theta.unwrap_or(DEFAULT_ROPE_THETA) as f32)),
                ("rope.scaling.finetuned", HeaderValue::Flag(network.rope_theta.is_some())),
                ("ssm.conv_kernel", number(size(|mamba2| mamba2.kernel_size))),
                ("ssm.inner_size", number(inner)),
                ("ssm.state_size", number(size(|mamba2| mamba2.state))),
                ("ssm.time_step_rank", number(ssm_heads)),
                ("ssm.group_count", number(size(|mamba2| mamba2.groups))),
            ];
            keys.extend(family_keys.into_iter().map(|(name, value)| (name.to_owned(), value)));
        }
    }
    Ok(FamilyCheckpoint { config, keys, tensors, width: network.width })
}

/// A Mamba-2 layer with the sizes of all Mamba-2 layers, which must be equal; `None` if there is none.
pub(super) fn common_mamba2(network: &ExportNetwork) -> Result<Option<&Mamba2>, ExportError> {
    let mut mamba2_layers = network.layers.iter().filter_map(|layer| match &layer.mixer {
        ExportMixer::Mamba2(mamba2) => Some(mamba2),
        _ => None,
    });
    let sizes = |mamba2: &Mamba2| [mamba2.heads, mamba2.head_dim, mamba2.state, mamba2.groups, mamba2.kernel_size];
    let Some(first) = mamba2_layers.next() else { return Ok(None) };
    match mamba2_layers.find(|other| sizes(other) != sizes(first)) {
        None => Ok(Some(first)),
        Some(_) => Err(ExportError::unsupported(Mamba2Config::NAME, "layers of different sizes", "one size")),
    }
}

/// The epsilon of all norms with which a gated norm over added zero heads gives the same numbers.
pub(super) fn mamba2_epsilon(network: &ExportNetwork, mamba2: Option<&Mamba2>) -> Result<f64, ExportError> {
    let Some(mamba2) = mamba2 else { return Ok(network.epsilon) };
    let (channels, inner) = (mamba2.heads * mamba2.head_dim, EXPANSION * network.width);
    if network.constant.is_none() && channels != inner {
        let found = format!("{channels} channels in a residual stream of {} columns", network.width);
        return Err(ExportError::unsupported(Mamba2Config::NAME, found, format!("{inner}: twice as many as columns")));
    }
    // In a network with a constant column, the norms of the residual stream do not depend on epsilon.
    Ok(network.epsilon * channels as f64 / inner as f64)
}

/// The tensors of a Mamba-2 layer, as transformers (under `mixer`) and llama.cpp have them.
pub(super) fn mamba2_tensors(mamba2: &Mamba2, names: LayerNames, mixer: &str) -> Vec<ExportTensor> {
    let name = |hugging_face: &str, gguf: &str| names.stem(&format!("{mixer}.{hugging_face}"), gguf);
    let Matrix { rows, columns, values } = mamba2.convolution.clone();
    let is_gguf = names.format == ExportFormat::Gguf;
    let convolution = ExportTensor {
        name: name("conv1d.weight", "ssm_conv1d.weight"),
        shape: if is_gguf { vec![rows, columns] } else { vec![rows, 1, columns] },
        values,
    };
    let by_head = |name: String, values: Vec<f64>| ExportTensor {
        name,
        shape: if is_gguf { vec![values.len(), 1] } else { vec![values.len()] },
        values,
    };
    // GGUF files have A instead of its logarithm.
    let a: Vec<f64> =
        if is_gguf { mamba2.a_log.iter().map(|a_log| -a_log.exp()).collect() } else { mamba2.a_log.clone() };
    let mut norm = ExportTensor::vector(name("norm.weight", "ssm_norm.weight"), mamba2.norm.clone());
    if is_gguf {
        norm.shape = vec![mamba2.groups, mamba2.norm.len() / mamba2.groups];
    }
    vec![
        ExportTensor::matrix(name("in_proj.weight", "ssm_in.weight"), mamba2.input.clone()),
        convolution,
        ExportTensor::vector(name("conv1d.bias", "ssm_conv1d.bias"), mamba2.convolution_bias.clone()),
        ExportTensor::vector(name("dt_bias", "ssm_dt.bias"), mamba2.dt_bias.clone()),
        by_head(name("A_log", "ssm_a"), a),
        by_head(name("D", "ssm_d"), mamba2.skip.clone()),
        norm,
        ExportTensor::matrix(name("out_proj.weight", "ssm_out.weight"), mamba2.output.clone()),
    ]
}

impl Mamba2 {
    /// The same mixer with zero heads added, so that it has twice as many channels as the residual stream has columns.
    pub(super) fn widened(&self, width: usize) -> Self {
        let (old_inner, inner) = (self.heads * self.head_dim, EXPANSION * width);
        let heads = inner / self.head_dim;
        let (old_group_size, group_size) = (self.heads / self.groups, heads / self.groups);
        // The old head of a new one, and the old channel of a new one.
        let old_head = |index: usize| {
            (index % group_size < old_group_size).then(|| index / group_size * old_group_size + index % group_size)
        };
        let old_channel =
            |index: usize| old_head(index / self.head_dim).map(|old| old * self.head_dim + index % self.head_dim);
        let state_rows = 2 * self.groups * self.state;
        let slice = |matrix: &Matrix, first: usize, count: usize| matrix.take_rows(first..first + count);
        let gate = slice(&self.input, 0, old_inner).map_rows(inner, old_channel);
        let values = slice(&self.input, old_inner, old_inner).map_rows(inner, old_channel);
        let b_and_c = slice(&self.input, 2 * old_inner, state_rows);
        let dt = slice(&self.input, 2 * old_inner + state_rows, self.heads).map_rows(heads, old_head);
        let convolution = slice(&self.convolution, 0, old_inner).map_rows(inner, old_channel);
        let select = |values: &[f64], count: usize, source: &dyn Fn(usize) -> Option<usize>| {
            (0..count).map(|index| source(index).map_or(0.0, |old| values[old])).collect::<Vec<f64>>()
        };
        let mut convolution_bias = select(&self.convolution_bias[..old_inner], inner, &old_channel);
        convolution_bias.extend(&self.convolution_bias[old_inner..]);
        let padding_factor = (old_inner as f64 / inner as f64).sqrt();
        Self {
            heads,
            input: Matrix::stack_rows(&[&gate, &values, &b_and_c, &dt]),
            convolution: Matrix::stack_rows(&[&convolution, &slice(&self.convolution, old_inner, state_rows)]),
            convolution_bias,
            dt_bias: select(&self.dt_bias, heads, &old_head),
            a_log: select(&self.a_log, heads, &old_head),
            skip: select(&self.skip, heads, &old_head),
            norm: select(&self.norm, inner, &old_channel).iter().map(|gain| gain * padding_factor).collect(),
            output: self.output.map_columns(inner, old_channel),
            ..self.clone()
        }
    }
}
