//! RWKV-7 layers without feed-forward networks.
//!
//! Its norms of the residual stream subtract the mean. The exported residual stream holds the network's residual stream and its negative,
//! so that the mean is zero and a layer norm equals an RMS norm. Zero heads fill the width, and the feed-forward network, which has a token
//! shift and a squared ReLU, gets zero weights.
//!
//! - **The norm of the embeddings**, which GGUF files cannot leave out: one more column gives all embeddings the same length, and the gain sets that column to zero.
//! - **The norm of a head's output**: flash-linear-attention's epsilon is `head_dim * norm_eps`. A factor on the values compensates for it.

use rung_theory::stack::Plan;
use serde_json::{Map, json};

use super::gguf::HeaderValue;
use super::llama::LayerNames;
use super::matrix::Matrix;
use super::network::{ExportMixer, ExportNetwork, Rwkv7};
use super::{ExportError, ExportFormat, ExportTensor, Family, FamilyCheckpoint};
use crate::mixer::rwkv7::Epsilons;
use crate::mixer::{MixerConfig as _, rwkv7::Rwkv7Config};

/// The family.
pub(super) const FAMILY: Family = Family {
    name: "rwkv7",
    class: Some("RWKV7ForCausalLM"),
    architecture: Some("rwkv7"),
    mixers: &[Rwkv7Config::NAME],
    feed_forward: false,
    width,
    write,
};

/// Hidden width of the feed-forward networks, which do nothing.
const HIDDEN: usize = 32;

/// llama.cpp's kernel requires head widths that are a multiple of this.
const HEAD_DIM_MULTIPLE: usize = 64;

/// Half of the width in the files: at least `min_width` and one more column, and with room for all heads.
fn width(plan: &Plan, min_width: usize) -> usize {
    let mixers = || plan.layers.iter().flat_map(|layer| layer.mixers.iter());
    let largest = |size: fn(u64, u64) -> u64| {
        let sizes = mixers().map(|mixer| size(mixer.number("heads").unwrap_or(1), mixer.number("head").unwrap_or(1)));
        sizes.max().unwrap_or(1).max(1) as usize
    };
    let (inner, head) = (largest(|heads, head| heads * head), largest(|_, head| head));
    let step = if head.is_multiple_of(2) { head / 2 } else { head };
    (min_width + 1).max(inner.div_ceil(2)).next_multiple_of(step)
}

fn write(network: &ExportNetwork, format: ExportFormat) -> Result<FamilyCheckpoint, ExportError> {
    let mixers: Vec<&Rwkv7> = network
        .layers
        .iter()
        .map(|layer| match &layer.mixer {
            ExportMixer::Rwkv7(mixer) => &**mixer,
            _ => unreachable!("a family is only chosen for layers that it supports"),
        })
        .collect();
    let sizes = |mixer: &Rwkv7| (mixer.heads, mixer.head_dim, mixer.ranks());
    let Some(first) = mixers.first().copied() else {
        return Err(ExportError::unsupported("stack", "no layer", "layers of rwkv7"));
    };
    let value_mix_rank_of = |mixer: &&Rwkv7| mixer.value_mix.as_ref().map(|mix| mix.down.rows);
    // A stack of one layer has no mix with the first layer's values.
    let value_mix_rank = mixers.iter().find_map(value_mix_rank_of).unwrap_or(1);
    let has_common_size = |mixer: &&Rwkv7| {
        sizes(mixer) == sizes(first) && value_mix_rank_of(mixer).is_none_or(|rank| rank == value_mix_rank)
    };
    if !mixers.iter().all(has_common_size) {
        return Err(ExportError::unsupported(Rwkv7Config::NAME, "layers of different sizes", "one size in all layers"));
    }
    if format == ExportFormat::Gguf && !first.head_dim.is_multiple_of(HEAD_DIM_MULTIPLE) {
        let expected = format!("a multiple of {HEAD_DIM_MULTIPLE}, which llama.cpp's kernel needs");
        return Err(ExportError::unsupported(Rwkv7Config::NAME, format!("heads of {}", first.head_dim), expected));
    }
    let width = 2 * network.width;
    let writer = TensorWriter { format, width, value_scale: value_scale(network, first.head_dim, format) };
    let mut tensors = writer.embeddings_norm_and_head(network);
    for (index, (layer, mixer)) in network.layers.iter().zip(&mixers).enumerate() {
        let names = LayerNames { format, index };
        tensors.extend(writer.norm(&names.stem("attn_norm", "attn_norm"), &layer.mixer_norm));
        tensors.extend(writer.mixer(mixer, names));
        tensors.extend(writer.norm(&names.stem("ffn_norm", "attn_norm_2"), &layer.mlp_norm));
        tensors.push(names.matrix("ffn.key", "channel_mix_key", Matrix::zeros(HIDDEN, width)));
        tensors.push(names.matrix("ffn.value", "channel_mix_value", Matrix::zeros(width, HIDDEN)));
        tensors.push(match format {
            ExportFormat::HuggingFace => ExportTensor::vector(names.stem("ffn.x_k", ""), vec![0.0; width]),
            ExportFormat::Gguf => {
                let name = names.stem("", "channel_mix_lerp_k.weight");
                ExportTensor { name, shape: vec![1, 1, width], values: vec![0.0; width] }
            }
        });
    }
    let (mut config, mut keys) = (Map::new(), Vec::new());
    let [decay_rank, learning_rate_rank, gate_rank] = first.ranks();
    match format {
        ExportFormat::HuggingFace => {
            let fields = json!({
                "hidden_size": width,
                "intermediate_size": HIDDEN,
                "num_hidden_layers": network.layers.len(),
                "head_dim": first.head_dim,
                "num_heads": width / first.head_dim,
                "decay_low_rank_dim": decay_rank,
                "a_low_rank_dim": learning_rate_rank,
                "gate_low_rank_dim": gate_rank,
                "v_low_rank_dim": value_mix_rank,
                "hidden_act": "sqrelu",
                "norm_first": false,
                "norm_bias": false,
                "norm_eps": network.epsilon,
                "fuse_norm": false,
                "attn": null,
                "attn_mode": "chunk",
            });
            if let serde_json::Value::Object(fields) = fields {
                config = fields;
            }
        }
        ExportFormat::Gguf => {
            let number = |value: usize| HeaderValue::U32(value as u32);
            let family_keys = [
                ("embedding_length", number(width)),
                ("block_count", number(network.layers.len())),
                ("feed_forward_length", number(HIDDEN)),
                ("attention.head_count", number(0)),
                ("attention.layer_norm_epsilon", HeaderValue::F32(network.epsilon as f32)),
                ("wkv.head_size", number(first.head_dim)),
                ("attention.decay_lora_rank", number(decay_rank)),
                ("attention.iclr_lora_rank", number(learning_rate_rank)),
                ("attention.value_residual_mix_lora_rank", number(value_mix_rank)),
                ("attention.gate_lora_rank", number(gate_rank)),
            ];
            keys.extend(family_keys.into_iter().map(|(name, value)| (name.to_owned(), value)));
        }
    }
    Ok(FamilyCheckpoint { config, keys, tensors, width })
}

/// Factor on values with which the norm of a head's output gives the same result as with the published epsilon.
fn value_scale(network: &ExportNetwork, head_dim: usize, format: ExportFormat) -> f64 {
    match format {
        ExportFormat::HuggingFace => (head_dim as f64 * network.epsilon / Epsilons::RWKV_LM.head).sqrt(),
        ExportFormat::Gguf => 1.0,
    }
}

/// Writes the tensors of the exported network.
struct TensorWriter {
    format: ExportFormat,
    /// Width of the exported residual stream, and of all heads together.
    width: usize,
    value_scale: f64,
}

impl TensorWriter {
    /// A projection that reads the first half of the residual stream.
    fn input_projection(&self, matrix: &Matrix, rows: usize) -> Matrix {
        matrix.padded(rows, self.width)
    }

    /// The matrix and its negative, side by side.
    fn with_negative(matrix: &Matrix) -> Matrix {
        let columns = matrix.columns;
        let mut result = matrix.padded(matrix.rows, 2 * columns);
        for row in 0..matrix.rows {
            (0..columns).for_each(|column| result.set(row, columns + column, -matrix.get(row, column)));
        }
        result
    }

    /// A vector over the heads' channels, padded with zeros.
    fn padded(&self, values: &[f64]) -> Vec<f64> {
        let mut values = values.to_vec();
        values.resize(self.width, 0.0);
        values
    }

    fn norm(&self, stem: &str, gain: &[f64]) -> Vec<ExportTensor> {
        let mut tensors = vec![ExportTensor::vector(format!("{stem}.weight"), gain.repeat(2))];
        if self.format == ExportFormat::Gguf {
            tensors.push(ExportTensor::vector(format!("{stem}.bias"), vec![0.0; self.width]));
        }
        tensors
    }

    /// Embeddings, their norm, the final norm and `lm_head`.
    fn embeddings_norm_and_head(&self, network: &ExportNetwork) -> Vec<ExportTensor> {
        let (mut embedding, lm_head) =
            (network.embedding.clone(), self.input_projection(&network.lm_head, network.lm_head.rows));
        let [embedding_name, norm, lm_head_name] = match self.format {
            ExportFormat::HuggingFace => ["model.embeddings.weight", "model.norm", "lm_head.weight"],
            ExportFormat::Gguf => ["token_embd.weight", "output_norm", "output.weight"],
        };
        let mut tensors = self.norm(norm, &network.norm);
        tensors.push(ExportTensor::matrix(lm_head_name, lm_head));
        if self.format == ExportFormat::Gguf {
            let extra_column = network.width - 1 - usize::from(network.constant.is_some());
            let square = |row: &[f64]| row.iter().map(|value| value * value).sum::<f64>();
            let squares: Vec<f64> = (0..embedding.rows).map(|row| square(embedding.row(row))).collect();
            let largest = squares.iter().fold(1e-3_f64, |largest, square| largest.max(*square));
            squares
                .iter()
                .enumerate()
                .for_each(|(row, square)| embedding.set(row, extra_column, (largest - square).sqrt()));
            let mut gain = vec![(largest / network.width as f64 + network.epsilon).sqrt(); network.width];
            gain[extra_column] = 0.0;
            tensors.extend(self.norm("token_embd_norm", &gain));
        }
        tensors.push(ExportTensor::matrix(embedding_name, Self::with_negative(&embedding)));
        tensors
    }

    fn mixer(&self, mixer: &Rwkv7, names: LayerNames) -> Vec<ExportTensor> {
        let width = self.width;
        let projection =
            |name: &str, gguf: &str, matrix: &Matrix| names.matrix(name, gguf, self.input_projection(matrix, width));
        let output = Self::with_negative(&transposed(&mixer.output.padded(mixer.output.rows, width)));
        let mut tensors = vec![
            projection("attn.r_proj", "time_mix_receptance", &mixer.receptance),
            projection("attn.k_proj", "time_mix_key", &mixer.key),
            projection("attn.v_proj", "time_mix_value", &mixer.value.clone().scaled(self.value_scale)),
            names.matrix("attn.o_proj", "time_mix_output", transposed(&output)),
            names.vector("attn.g_norm", "time_mix_ln", self.padded(&mixer.norm[0])),
            ExportTensor::vector(names.stem("attn.g_norm.bias", "time_mix_ln.bias"), self.padded(&mixer.norm[1])),
        ];
        let bonus: Vec<f64> = self.padded(&mixer.bonus).iter().map(|value| value / self.value_scale).collect();
        let factors =
            [("k_k", self.padded(&mixer.erase_scale)), ("k_a", self.padded(&mixer.key_scale)), ("r_k", bonus)];
        for (name, values) in factors {
            let full_name = names.stem(&format!("attn.{name}"), &format!("time_mix_{name}.weight"));
            let heads = vec![width / mixer.head_dim, mixer.head_dim];
            let shape = if name == "r_k" && self.format == ExportFormat::HuggingFace { heads } else { vec![width] };
            tensors.push(ExportTensor { name: full_name, shape, values });
        }
        let token_shift = mixer.token_shift.iter().map(|weights| self.padded(weights));
        match self.format {
            ExportFormat::HuggingFace => tensors.extend(token_shift.zip("rwkvag".chars()).map(|(values, letter)| {
                ExportTensor { name: names.stem(&format!("attn.x_{letter}"), ""), shape: vec![1, 1, width], values }
            })),
            ExportFormat::Gguf => {
                let name = names.stem("", "time_mix_lerp_fused.weight");
                tensors.push(ExportTensor {
                    name,
                    shape: vec![6, 1, 1, width],
                    values: token_shift.flatten().collect(),
                });
            }
        }
        // GGUF files have a mix with the first layer's values in the first layer too, which is not used.
        let unused_mix = (self.format == ExportFormat::Gguf).then_some(&mixer.low_rank[1]);
        let low_ranks = mixer.low_rank.iter().chain(mixer.value_mix.as_ref().or(unused_mix)).zip(["w", "a", "g", "v"]);
        for (low_rank, letter) in low_ranks {
            let hugging_face = |suffix: &str| format!("attn.{letter}_lora.lora.{suffix}");
            let gguf = |number: u8| format!("time_mix_{letter}{number}");
            let rank = low_rank.down.rows;
            tensors.push(names.matrix(&hugging_face("0"), &gguf(1), self.input_projection(&low_rank.down, rank)));
            tensors.push(names.matrix(&hugging_face("2"), &gguf(2), low_rank.up.padded(width, rank)));
            if let Some(bias) = &low_rank.bias {
                let name = names.stem(&hugging_face("2.bias"), &format!("{}.weight", gguf(0)));
                tensors.push(ExportTensor::vector(name, self.padded(bias)));
            }
        }
        tensors
    }
}

fn transposed(matrix: &Matrix) -> Matrix {
    let mut result = Matrix::zeros(matrix.columns, matrix.rows);
    for row in 0..matrix.rows {
        (0..matrix.columns).for_each(|column| result.set(column, row, matrix.get(row, column)));
    }
    result
}
