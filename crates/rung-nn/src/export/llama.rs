//! Llama: full attention in every layer.
//!
//! If the network has no rotary positions, all frequencies are divided by [`NO_ROTATION_DIVISOR`]. Heads of all layers have the same width, so
//! narrower ones get zero channels, and queries a factor that undoes the larger square root.

use rung_theory::stack::Plan;
use serde_json::{Map, Value, json};

use super::gguf::HeaderValue;
use super::matrix::Matrix;
use super::network::{ExportMixer, ExportNetwork, GatedMlp, common_heads};
use super::{ExportError, ExportFormat, ExportTensor, Family, FamilyCheckpoint};
use crate::mixer::{MixerConfig as _, softmax::SoftmaxConfig};

/// The family.
pub(super) const FAMILY: Family = Family {
    name: "llama",
    class: Some("LlamaForCausalLM"),
    architecture: Some("llama"),
    mixers: &[SoftmaxConfig::NAME],
    feed_forward: true,
    width,
    write,
};

/// Frequencies divided by this rotate nothing: after a million tokens the largest angle is a millionth.
pub(super) const NO_ROTATION_DIVISOR: f64 = 1e12;

/// `rope_theta` of networks without rotary positions.
pub(super) const DEFAULT_ROPE_THETA: f64 = 10_000.0;

/// The smallest width from `min_width` on that is a multiple of eight and of the number of heads, which some programs require.
pub(super) fn width(plan: &Plan, min_width: usize) -> usize {
    let mixers =
        plan.layers.iter().flat_map(|layer| layer.mixers.iter()).filter(|mixer| mixer.name() == SoftmaxConfig::NAME);
    let heads = mixers.filter_map(|mixer| mixer.number("heads")).max().unwrap_or(1) as usize;
    min_width.next_multiple_of(if heads.is_power_of_two() { heads.max(8) } else { heads * 8 })
}

fn write(network: &ExportNetwork, format: ExportFormat) -> Result<FamilyCheckpoint, ExportError> {
    let [heads, kv_heads, head_dim] = common_heads(network)?;
    let mut tensors = embeddings_and_lm_head(network, format);
    for (index, layer) in network.layers.iter().enumerate() {
        let ExportMixer::Attention(attention) = &layer.mixer else {
            unreachable!("a family is only chosen for layers that it supports");
        };
        let attention = attention.resized(heads, kv_heads, head_dim);
        let reorder = |matrix: Matrix| {
            if format == ExportFormat::Gguf { interleave_rotary_pairs(&matrix, head_dim) } else { matrix }
        };
        let names = LayerNames { format, index };
        tensors.push(names.vector("input_layernorm", "attn_norm", layer.mixer_norm.clone()));
        tensors.push(names.matrix("self_attn.q_proj", "attn_q", reorder(attention.queries)));
        tensors.push(names.matrix("self_attn.k_proj", "attn_k", reorder(attention.keys)));
        tensors.push(names.matrix("self_attn.v_proj", "attn_v", attention.values));
        tensors.push(names.matrix("self_attn.o_proj", "attn_output", attention.output));
        tensors.push(names.vector("post_attention_layernorm", "ffn_norm", layer.mlp_norm.clone()));
        tensors.extend(names.mlp(&layer.mlp));
    }
    let (mut config, mut keys) = (Map::new(), Vec::new());
    match format {
        ExportFormat::HuggingFace => {
            config = common_config(network, [heads, kv_heads, head_dim]);
            config.insert("mlp_bias".to_owned(), json!(false));
            let base = network.rope_theta.unwrap_or(DEFAULT_ROPE_THETA);
            let rope = match network.rope_theta {
                None => json!({ "rope_type": "linear", "factor": NO_ROTATION_DIVISOR, "rope_theta": base }),
                Some(_) => json!({ "rope_type": "default", "rope_theta": base }),
            };
            config.insert("rope_parameters".to_owned(), rope);
        }
        ExportFormat::Gguf => {
            keys = common_keys(network, [heads, kv_heads, head_dim]);
            keys.push(("rope.dimension_count".to_owned(), HeaderValue::U32(head_dim as u32)));
            keys.push((
                "rope.freq_base".to_owned(),
                HeaderValue::F32(network.rope_theta.unwrap_or(DEFAULT_ROPE_THETA) as f32),
            ));
            if network.rope_theta.is_none() {
                keys.push(("rope.scaling.type".to_owned(), HeaderValue::Text("linear".to_owned())));
                keys.push(("rope.scaling.factor".to_owned(), HeaderValue::F32(NO_ROTATION_DIVISOR as f32)));
            }
        }
    }
    Ok(FamilyCheckpoint { config, keys, tensors, width: network.width })
}

/// Fields of `config.json` that all decoder families share.
pub(super) fn common_config(network: &ExportNetwork, [heads, kv_heads, head_dim]: [usize; 3]) -> Map<String, Value> {
    let fields = json!({
        "hidden_size": network.width,
        "intermediate_size": network.hidden_width(),
        "num_hidden_layers": network.layers.len(),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": network.epsilon,
        "attention_bias": false,
        "attention_dropout": 0.0,
    });
    let Value::Object(fields) = fields else { unreachable!("an object is written above") };
    fields
}

/// Keys of a GGUF header that all decoder families share.
pub(super) fn common_keys(
    network: &ExportNetwork,
    [heads, kv_heads, head_dim]: [usize; 3],
) -> Vec<(String, HeaderValue)> {
    let number = |value: usize| HeaderValue::U32(value as u32);
    let keys = [
        ("embedding_length", number(network.width)),
        ("block_count", number(network.layers.len())),
        ("feed_forward_length", number(network.hidden_width())),
        ("attention.head_count", number(heads)),
        ("attention.head_count_kv", number(kv_heads)),
        ("attention.key_length", number(head_dim)),
        ("attention.value_length", number(head_dim)),
        ("attention.layer_norm_rms_epsilon", HeaderValue::F32(network.epsilon as f32)),
    ];
    keys.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Embeddings, the final norm and `lm_head`.
pub(super) fn embeddings_and_lm_head(network: &ExportNetwork, format: ExportFormat) -> Vec<ExportTensor> {
    let names = match format {
        ExportFormat::HuggingFace => ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"],
        ExportFormat::Gguf => ["token_embd.weight", "output_norm.weight", "output.weight"],
    };
    vec![
        ExportTensor::matrix(names[0], network.embedding.clone()),
        ExportTensor::vector(names[1], network.norm.clone()),
        ExportTensor::matrix(names[2], network.lm_head.clone()),
    ]
}

/// Names of the tensors of a layer in both formats.
#[derive(Clone, Copy)]
pub(super) struct LayerNames {
    pub(super) format: ExportFormat,
    pub(super) index: usize,
}

impl LayerNames {
    /// The name of a tensor without its ending.
    pub(super) fn stem(self, hugging_face: &str, gguf: &str) -> String {
        match self.format {
            ExportFormat::HuggingFace => format!("model.layers.{}.{hugging_face}", self.index),
            ExportFormat::Gguf => format!("blk.{}.{gguf}", self.index),
        }
    }

    pub(super) fn matrix(self, hugging_face: &str, gguf: &str, matrix: Matrix) -> ExportTensor {
        ExportTensor::matrix(format!("{}.weight", self.stem(hugging_face, gguf)), matrix)
    }

    pub(super) fn vector(self, hugging_face: &str, gguf: &str, values: Vec<f64>) -> ExportTensor {
        ExportTensor::vector(format!("{}.weight", self.stem(hugging_face, gguf)), values)
    }

    pub(super) fn mlp(self, mlp: &GatedMlp) -> [ExportTensor; 3] {
        [
            self.matrix("mlp.gate_proj", "ffn_gate", mlp.gate.clone()),
            self.matrix("mlp.up_proj", "ffn_up", mlp.up.clone()),
            self.matrix("mlp.down_proj", "ffn_down", mlp.down.clone()),
        ]
    }
}

/// Reorders the rows of each head from rotary pairs (i, i + half) to interleaved pairs 0, half, 1, half + 1, .. as in GGUF's `llama`.
pub(super) fn interleave_rotary_pairs(matrix: &Matrix, head_dim: usize) -> Matrix {
    let order = |row: usize| row / head_dim * head_dim + row % head_dim / 2 + row % 2 * (head_dim / 2);
    matrix.map_rows(matrix.rows, |row| Some(order(row)))
}
