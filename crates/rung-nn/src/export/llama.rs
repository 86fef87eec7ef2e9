//! Llama: full attention in every layer.
//!
//! Rotary positions are neutralised by dividing all frequencies by [`STILL`]. Heads of all layers have one width, so shorter ones get empty
//! channels, and queries the factor that undoes the larger root.

use rung_theory::stack::Plan;
use serde_json::{Map, Value, json};

use super::gguf::{self, Value as Key};
use super::matrix::Matrix;
use super::plain::{ExportMixer, ExportNetwork, GatedNetwork, common_heads};
use super::{ExportError, ExportFormat, Family, Target, TargetTensor};

/// The family.
pub(super) const FAMILY: Family = Family {
    name: "llama",
    class: Some("LlamaForCausalLM"),
    architecture: Some("llama"),
    mixers: &["full"],
    feed_forward: true,
    width,
    write,
};

/// What frequencies are divided by so that nothing turns: after a million tokens the largest angle is a millionth.
pub(super) const STILL: f64 = 1e12;

/// The base of rotary positions where nothing turns.
pub(super) const USUAL_BASE: f64 = 10_000.0;

/// A multiple of eight, and of the number of heads, which some readers divide it by.
pub(super) fn width(plan: &Plan, least: usize) -> usize {
    let mixers = plan.layers.iter().flat_map(|layer| layer.mixers.iter()).filter(|mixer| mixer.name() == "full");
    let heads = mixers.filter_map(|mixer| mixer.number("heads")).max().unwrap_or(1) as usize;
    least.next_multiple_of(if heads.is_power_of_two() { heads.max(8) } else { heads * 8 })
}

fn write(plain: &ExportNetwork, format: ExportFormat) -> Result<Target, ExportError> {
    let [heads, kv_heads, head] = common_heads(plain)?;
    let mut tensors = ends(plain, format);
    for (index, layer) in plain.layers.iter().enumerate() {
        let ExportMixer::Attention(attention) = &layer.mixer else {
            unreachable!("a family gets layers that fit it");
        };
        let attention = attention.resized(heads, kv_heads, head);
        let turned =
            |matrix: Matrix| if format == ExportFormat::Gguf { pairs_side_by_side(&matrix, head) } else { matrix };
        let names = LayerNames { format, index };
        tensors.push(names.vector("input_layernorm", "attn_norm", layer.mixer_norm.clone()));
        tensors.push(names.matrix("self_attn.q_proj", "attn_q", turned(attention.queries)));
        tensors.push(names.matrix("self_attn.k_proj", "attn_k", turned(attention.keys)));
        tensors.push(names.matrix("self_attn.v_proj", "attn_v", attention.values));
        tensors.push(names.matrix("self_attn.o_proj", "attn_output", attention.output));
        tensors.push(names.vector("post_attention_layernorm", "ffn_norm", layer.network_norm.clone()));
        tensors.extend(names.network(&layer.network));
    }
    let (mut config, mut keys) = (Map::new(), Vec::new());
    match format {
        ExportFormat::HuggingFace => {
            config = common_config(plain, [heads, kv_heads, head]);
            config.insert("mlp_bias".to_owned(), json!(false));
            let base = plain.rotary.unwrap_or(USUAL_BASE);
            let rope = match plain.rotary {
                None => json!({ "rope_type": "linear", "factor": STILL, "rope_theta": base }),
                Some(_) => json!({ "rope_type": "default", "rope_theta": base }),
            };
            config.insert("rope_parameters".to_owned(), rope);
        }
        ExportFormat::Gguf => {
            keys = common_keys(plain, [heads, kv_heads, head]);
            keys.push(("rope.dimension_count".to_owned(), Key::U32(head as u32)));
            keys.push(("rope.freq_base".to_owned(), Key::F32(plain.rotary.unwrap_or(USUAL_BASE) as f32)));
            if plain.rotary.is_none() {
                keys.push(("rope.scaling.type".to_owned(), Key::Text("linear".to_owned())));
                keys.push(("rope.scaling.factor".to_owned(), Key::F32(STILL as f32)));
            }
        }
    }
    Ok(Target { config, keys, tensors, width: plain.width })
}

/// Fields of `config.json` that decoders share.
pub(super) fn common_config(plain: &ExportNetwork, [heads, kv_heads, head]: [usize; 3]) -> Map<String, Value> {
    let fields = json!({
        "hidden_size": plain.width,
        "intermediate_size": plain.hidden(),
        "num_hidden_layers": plain.layers.len(),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head,
        "hidden_act": "silu",
        "rms_norm_eps": plain.epsilon,
        "attention_bias": false,
        "attention_dropout": 0.0,
    });
    let Value::Object(fields) = fields else { unreachable!("an object is written above") };
    fields
}

/// Keys of a GGUF header that decoders share.
pub(super) fn common_keys(plain: &ExportNetwork, [heads, kv_heads, head]: [usize; 3]) -> Vec<(String, gguf::Value)> {
    let number = |value: usize| Key::U32(value as u32);
    let keys = [
        ("embedding_length", number(plain.width)),
        ("block_count", number(plain.layers.len())),
        ("feed_forward_length", number(plain.hidden())),
        ("attention.head_count", number(heads)),
        ("attention.head_count_kv", number(kv_heads)),
        ("attention.key_length", number(head)),
        ("attention.value_length", number(head)),
        ("attention.layer_norm_rms_epsilon", Key::F32(plain.epsilon as f32)),
    ];
    keys.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Embeddings, the last norm and the head.
pub(super) fn ends(plain: &ExportNetwork, format: ExportFormat) -> Vec<TargetTensor> {
    let names = match format {
        ExportFormat::HuggingFace => ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"],
        ExportFormat::Gguf => ["token_embd.weight", "output_norm.weight", "output.weight"],
    };
    vec![
        TargetTensor::matrix(names[0], plain.embedding.clone()),
        TargetTensor::vector(names[1], plain.norm.clone()),
        TargetTensor::matrix(names[2], plain.head.clone()),
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

    pub(super) fn matrix(self, hugging_face: &str, gguf: &str, matrix: Matrix) -> TargetTensor {
        TargetTensor::matrix(format!("{}.weight", self.stem(hugging_face, gguf)), matrix)
    }

    pub(super) fn vector(self, hugging_face: &str, gguf: &str, values: Vec<f64>) -> TargetTensor {
        TargetTensor::vector(format!("{}.weight", self.stem(hugging_face, gguf)), values)
    }

    pub(super) fn network(self, network: &GatedNetwork) -> [TargetTensor; 3] {
        [
            self.matrix("mlp.gate_proj", "ffn_gate", network.gate.clone()),
            self.matrix("mlp.up_proj", "ffn_up", network.up.clone()),
            self.matrix("mlp.down_proj", "ffn_down", network.down.clone()),
        ]
    }
}

/// Rows of heads whose rotary pairs are channel i and channel i + half, in the order 0, half, 1, half + 1, ..: as GGUF's `llama` has them.
pub(super) fn pairs_side_by_side(matrix: &Matrix, head: usize) -> Matrix {
    let order = |row: usize| row / head * head + row % head / 2 + row % 2 * (head / 2);
    matrix.rows_by(matrix.rows, |row| Some(order(row)))
}
