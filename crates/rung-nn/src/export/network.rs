//! A network in the form that all target families share: an RMS norm before every mixer and MLP, gated MLPs, one vocabulary.
//!
//! Components that the target has and the network does not are given weights with which they do nothing:
//!
//! - **Norms in a network without norms.** A column with a large [`ConstantColumn`] makes the length of every vector the same to a few parts in a
//!   million, and the norm's gain undoes the division. So the norm is the identity.
//! - **A gated MLP for a ReLU MLP.** `max(x, 0)` is `silu(k x) / k` for a large k; the other factor reads the constant column.
//! - **Widths.** Zero columns are added if a target requires a multiple of some size; the norm's gain and epsilon are changed so that it
//!   gives the same numbers.

use std::cell::RefCell;
use std::collections::BTreeSet;

use rung_engine::{Ops as _, Scalar};
use rung_theory::stack::{Mixer, Plan};

use super::ExportError;
use super::matrix::Matrix;
use super::vocabulary::{TokenMeaning, Vocabulary};
use crate::mixer::{
    MixerConfig as _, gdn::GatedDeltanetConfig, mamba2::Mamba2Config, rwkv7::Rwkv7Config, softmax::SoftmaxConfig,
};
use crate::model::{FeedForwardConfig, Norm, NormConfig, NormPlacement, names};
use crate::network::Network;
use crate::position::Positions;

/// What a norm divides by in a network that had none: far larger than what the other columns contribute, and small enough for half precision.
const NORM_DIVISOR: f64 = 512.0;

/// The factor k with which `silu(k x) / k` replaces a ReLU: the error is below 0.28 / k, and only near 0.
const STEEPNESS: f64 = 1024.0;

/// The logit of tokens that are not answers, in a network with a constant column.
const NON_ANSWER_LOGIT: f64 = -100.0;

/// A column of the residual stream that holds the same number at every token.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConstantColumn {
    pub(super) column: usize,
    pub(super) value: f64,
}

/// A network in the form that all target families share.
pub(super) struct ExportNetwork {
    pub(super) width: usize,
    /// `[tokens, width]`.
    pub(super) embedding: Matrix,
    pub(super) layers: Vec<ExportLayer>,
    pub(super) norm: Vec<f64>,
    /// `[tokens, width]`.
    pub(super) lm_head: Matrix,
    /// Epsilon of every norm of the residual stream.
    pub(super) epsilon: f64,
    /// `rope_theta`; `None` without rotary positions.
    pub(super) rope_theta: Option<f64>,
    pub(super) constant: Option<ConstantColumn>,
    /// The longest sequence.
    pub(super) max_length: usize,
}

pub(super) struct ExportLayer {
    pub(super) mixer_norm: Vec<f64>,
    pub(super) mixer: ExportMixer,
    pub(super) mlp_norm: Vec<f64>,
    pub(super) mlp: GatedMlp,
}

pub(super) enum ExportMixer {
    Attention(Attention),
    Mamba2(Mamba2),
    GatedDeltanet(GatedDeltanet),
    Rwkv7(Box<Rwkv7>),
}

/// Softmax attention with scores divided by the square root of the key width.
#[derive(Clone)]
pub(super) struct Attention {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) key_dim: usize,
    pub(super) value_dim: usize,
    pub(super) queries: Matrix,
    pub(super) keys: Matrix,
    pub(super) values: Matrix,
    pub(super) output: Matrix,
}

/// Mamba-2 with one norm over each group of heads, after the gate.
#[derive(Clone)]
pub(super) struct Mamba2 {
    pub(super) heads: usize,
    pub(super) head_dim: usize,
    pub(super) state: usize,
    pub(super) groups: usize,
    pub(super) kernel_size: usize,
    /// Rows: gate, values, B, C, dt.
    pub(super) input: Matrix,
    pub(super) convolution: Matrix,
    pub(super) convolution_bias: Vec<f64>,
    pub(super) dt_bias: Vec<f64>,
    pub(super) a_log: Vec<f64>,
    pub(super) skip: Vec<f64>,
    pub(super) norm: Vec<f64>,
    pub(super) output: Matrix,
}

/// Gated DeltaNet.
#[derive(Clone)]
pub(super) struct GatedDeltanet {
    pub(super) heads: usize,
    pub(super) value_heads: usize,
    pub(super) key_dim: usize,
    pub(super) value_dim: usize,
    pub(super) kernel_size: usize,
    /// Whether eigenvalues may be negative: beta is in 0 .. 2.
    pub(super) negative_eigenvalues: bool,
    pub(super) queries: Matrix,
    pub(super) keys: Matrix,
    pub(super) values: Matrix,
    /// Filters of queries, keys and values, in this order.
    pub(super) convolution: Matrix,
    pub(super) beta: Matrix,
    pub(super) dt_proj: Matrix,
    pub(super) dt_bias: Vec<f64>,
    pub(super) a_log: Vec<f64>,
    pub(super) gate: Matrix,
    pub(super) norm: Vec<f64>,
    pub(super) output: Matrix,
}

/// RWKV-7's time mixing.
pub(super) struct Rwkv7 {
    pub(super) heads: usize,
    pub(super) head_dim: usize,
    /// Token-shift weights (the fraction of the previous token per column) for r, w, k, v, a and g.
    pub(super) token_shift: [Vec<f64>; 6],
    pub(super) receptance: Matrix,
    pub(super) key: Matrix,
    pub(super) value: Matrix,
    pub(super) output: Matrix,
    /// Low-rank projections of the decay, the learning rate and the gate.
    pub(super) low_rank: [LowRank; 3],
    /// Low-rank projection of the mix with the first layer's values, in layers after the first.
    pub(super) value_mix: Option<LowRank>,
    pub(super) erase_scale: Vec<f64>,
    pub(super) key_scale: Vec<f64>,
    pub(super) bonus: Vec<f64>,
    /// Weight and bias of the norm over each head.
    pub(super) norm: [Vec<f64>; 2],
}

/// A low-rank pair of projections.
pub(super) struct LowRank {
    pub(super) down: Matrix,
    pub(super) up: Matrix,
    pub(super) bias: Option<Vec<f64>>,
}

impl Rwkv7 {
    /// The ranks of the decay, the learning rate and the gate.
    pub(super) fn ranks(&self) -> [usize; 3] {
        [0, 1, 2].map(|index| self.low_rank[index].down.rows)
    }
}

/// `down (silu(gate x) . up x)`.
pub(super) struct GatedMlp {
    pub(super) gate: Matrix,
    pub(super) up: Matrix,
    pub(super) down: Matrix,
}

impl ExportNetwork {
    /// Converts a network. `width` gives the width of the exported network for the smallest possible one: see [`Family`](super::Family).
    pub(super) fn from_network<S: Scalar>(
        network: &Network<S>,
        vocabulary: &Vocabulary,
        width: fn(&Plan, usize) -> usize,
    ) -> Result<Self, ExportError> {
        let config = &network.config;
        let rope_theta = rope_theta(config.positions)?;
        let reject = |part: &str, found: &str, expected: &str| Err(ExportError::unsupported(part, found, expected));
        if !config.causal {
            return reject("attention", "bidirectional attention", "a causal mask");
        }
        if network.chain_of_thought().is_some() {
            return reject(
                "chain of thought",
                "tokens that the network emits and reads again",
                "an answer in one pass",
            );
        }
        if config.precision != crate::precision::SimulatedPrecision::default() {
            return reject("precision", "numbers rounded to few bits", "numbers that are not rounded");
        }
        let needs_constant = match (config.norm, config.placement) {
            (NormConfig::None, _) => true,
            (NormConfig::Rms, NormPlacement::Pre) => false,
            (NormConfig::Rms, NormPlacement::Post) => {
                return reject("norms", "after the residual sum", "before each mixer and MLP");
            }
            (NormConfig::Layer, _) => {
                return reject("norms", "layer norms, which subtract the mean", "RMS norms or none");
            }
        };
        let reader = WeightReader::new(network, width, needs_constant);
        let layers = (0..network.plan.layers.len()).map(|index| reader.layer(index)).collect::<Result<_, _>>()?;
        let norm = reader.gain("norm.weight")?;
        let (embedding, lm_head) = reader.embedding_and_lm_head(vocabulary)?;
        reader.check_all_used()?;
        let max_length = network.task()?.length() + 64;
        let WeightReader { width, epsilon, constant, .. } = reader;
        Ok(Self { width, embedding, layers, norm, lm_head, epsilon, rope_theta, constant, max_length })
    }

    /// The hidden width of the MLPs.
    pub(super) fn hidden_width(&self) -> usize {
        self.layers.first().map_or(1, |layer| layer.mlp.gate.rows)
    }
}

/// `rope_theta` of rotary positions; `None` without positions.
fn rope_theta(positions: Positions) -> Result<Option<f64>, ExportError> {
    let found = match positions {
        Positions::None => return Ok(None),
        Positions::Rotary { base } => return Ok(Some(base)),
        Positions::Alibi => "a penalty on distance (ALiBi)",
        Positions::Relative => "learned numbers on the scores of the nearest tokens",
        Positions::Learned { .. } => "a learned table of positions",
    };
    Err(ExportError::unsupported("positions", found, "rotary positions or none"))
}

/// Reads the weights of a network and pads them to the width of the export.
struct WeightReader<'a, S: Scalar> {
    network: &'a Network<S>,
    /// Names of the weights that were read: every weight must be.
    used_weights: RefCell<BTreeSet<String>>,
    /// Width of the network's residual stream.
    network_width: usize,
    /// Width of the exported residual stream.
    width: usize,
    epsilon: f64,
    constant: Option<ConstantColumn>,
}

impl<'a, S: Scalar> WeightReader<'a, S> {
    fn new(network: &'a Network<S>, width: fn(&Plan, usize) -> usize, needs_constant: bool) -> Self {
        let network_width = network.plan.width as usize;
        let width = width(&network.plan, network_width + usize::from(needs_constant));
        let epsilon = Norm::EPSILON * if needs_constant { 1.0 } else { network_width as f64 / width as f64 };
        let constant =
            needs_constant.then(|| ConstantColumn { column: width - 1, value: NORM_DIVISOR * (width as f64).sqrt() });
        Self { network, used_weights: RefCell::default(), network_width, width, epsilon, constant }
    }

    /// A weight as a matrix; vectors have one row, convolutions one row per channel.
    fn weight(&self, name: &str) -> Result<Matrix, ExportError> {
        let weights = &self.network.weights;
        let missing = || ExportError::unsupported(format!("weight `{name}`"), "none", "a weight of that name");
        let id = weights.find(name).ok_or_else(missing)?;
        self.used_weights.borrow_mut().insert(name.to_owned());
        let (values, shape) = (weights.get(id), &weights.entry(id).shape);
        let columns = shape.width();
        let values: Vec<f64> = values.iter().map(|value| value.to_f64()).collect();
        Ok(Matrix { rows: values.len() / columns.max(1), columns, values })
    }

    fn vector(&self, name: &str) -> Result<Vec<f64>, ExportError> {
        Ok(self.weight(name)?.values)
    }

    /// A projection that reads the residual stream, padded to its width.
    fn input_projection(&self, name: &str) -> Result<Matrix, ExportError> {
        let matrix = self.weight(&format!("{name}.weight"))?;
        Ok(matrix.padded(matrix.rows, self.width))
    }

    /// A projection that writes to the residual stream, padded to its width.
    fn output_projection(&self, name: &str) -> Result<Matrix, ExportError> {
        let matrix = self.weight(&format!("{name}.weight"))?;
        Ok(matrix.padded(self.width, matrix.columns))
    }

    /// The weight of a norm of the residual stream, with which it gives the same numbers in the exported width.
    fn gain(&self, name: &str) -> Result<Vec<f64>, ExportError> {
        if let Some(constant) = self.constant {
            let length = (constant.value * constant.value / self.width as f64 + self.epsilon).sqrt();
            return Ok(vec![length; self.width]);
        }
        let padding_factor = (self.network_width as f64 / self.width as f64).sqrt();
        let mut gain = self.vector(name)?;
        for value in &mut gain {
            *value *= padding_factor;
        }
        gain.resize(self.width, 1.0);
        Ok(gain)
    }

    fn layer(&self, index: usize) -> Result<ExportLayer, ExportError> {
        let layer = &self.network.plan.layers[index];
        let layer_name = || format!("layer {index}");
        let mixer = match &layer.mixers[..] {
            [mixer] if !layer.shares_cache => mixer,
            [_] => {
                return Err(ExportError::unsupported(
                    layer_name(),
                    "keys and values of another layer",
                    "keys and values of its own",
                ));
            }
            mixers => {
                let found = format!("{} parallel mixers", mixers.len());
                return Err(ExportError::unsupported(layer_name(), found, "one mixer"));
            }
        };
        let prefix = names::mixer(index, 0, 1);
        let export_mixer = match mixer.name() {
            SoftmaxConfig::NAME => ExportMixer::Attention(self.attention(mixer, &prefix, index)?),
            Mamba2Config::NAME => ExportMixer::Mamba2(self.mamba2(mixer, &prefix)?),
            GatedDeltanetConfig::NAME => ExportMixer::GatedDeltanet(self.gated_deltanet(mixer, &prefix)?),
            Rwkv7Config::NAME => ExportMixer::Rwkv7(Box::new(self.rwkv7(mixer, &prefix)?)),
            other => {
                return Err(ExportError::unsupported(layer_name(), format!("`{other}`"), "full, mamba2, gdn or rwkv7"));
            }
        };
        let name = names::layer(index);
        let mlp = self.gated_mlp(&names::mlp(index))?;
        let mlp_norm = if self.network.config.feed_forward == FeedForwardConfig::None {
            vec![1.0; self.width]
        } else {
            self.gain(&format!("{name}.mlp_norm.weight"))?
        };
        Ok(ExportLayer {
            mixer_norm: self.gain(&format!("{name}.mixer_norm.weight"))?,
            mixer: export_mixer,
            mlp_norm,
            mlp,
        })
    }

    fn attention(&self, mixer: &Mixer, prefix: &str, index: usize) -> Result<Attention, ExportError> {
        let number = |option: &str| mixer.number(option).unwrap_or_default() as usize;
        let reject =
            |found: &str, expected: &str| Err(ExportError::unsupported(format!("layer {index}"), found, expected));
        if mixer.flag("tied") == Some(true) {
            return reject("one vector as key and value", "keys and values of their own");
        }
        if number("conv") > 0 {
            return reject("a convolution before full attention", "full attention alone");
        }
        if number("accumulator") > 0 {
            return reject("attention that sums in order, in an accumulator", "accumulator=0");
        }
        Ok(Attention {
            heads: number("heads"),
            kv_heads: number("kv"),
            key_dim: number("key"),
            value_dim: number("value"),
            queries: self.input_projection(&format!("{prefix}.q_proj"))?,
            keys: self.input_projection(&format!("{prefix}.k_proj"))?,
            values: self.input_projection(&format!("{prefix}.v_proj"))?,
            output: self.output_projection(&format!("{prefix}.o_proj"))?,
        })
    }

    fn mamba2(&self, mixer: &Mixer, prefix: &str) -> Result<Mamba2, ExportError> {
        let number = |option: &str| mixer.number(option).unwrap_or_default() as usize;
        let vector = |name: &str| self.vector(&format!("{prefix}.{name}"));
        Ok(Mamba2 {
            heads: number("heads"),
            head_dim: number("head"),
            state: number("state"),
            groups: number("groups"),
            kernel_size: number("conv"),
            input: self.input_projection(&format!("{prefix}.in_proj"))?,
            convolution: self.weight(&format!("{prefix}.conv1d.weight"))?,
            convolution_bias: vector("conv1d.bias")?,
            dt_bias: vector("dt_bias")?,
            a_log: vector("A_log")?,
            skip: vector("D")?,
            norm: vector("norm.weight")?,
            output: self.output_projection(&format!("{prefix}.out_proj"))?,
        })
    }

    fn gated_deltanet(&self, mixer: &Mixer, prefix: &str) -> Result<GatedDeltanet, ExportError> {
        let number = |option: &str| mixer.number(option).unwrap_or_default() as usize;
        let (projection, vector) = (
            |name: &str| self.input_projection(&format!("{prefix}.{name}")),
            |name: &str| self.vector(&format!("{prefix}.{name}")),
        );
        let (queries, keys, values) = (projection("q_proj")?, projection("k_proj")?, projection("v_proj")?);
        let kernel_size = number("conv");
        let convolution = if kernel_size == 0 {
            // A convolution with one tap of 1 is the identity.
            let channels = queries.rows + keys.rows + values.rows;
            Matrix { rows: channels, columns: 1, values: vec![1.0; channels] }
        } else {
            let convolution = |name: &str| self.weight(&format!("{prefix}.{name}_conv1d.weight"));
            Matrix::stack_rows(&[&convolution("q")?, &convolution("k")?, &convolution("v")?])
        };
        Ok(GatedDeltanet {
            heads: number("heads"),
            value_heads: number("value-heads"),
            key_dim: number("key"),
            value_dim: number("value"),
            kernel_size: kernel_size.max(1),
            negative_eigenvalues: mixer.flag("negative") == Some(true),
            queries,
            keys,
            values,
            convolution,
            beta: projection("b_proj")?,
            dt_proj: projection("a_proj")?,
            dt_bias: vector("dt_bias")?,
            a_log: vector("A_log")?,
            gate: projection("g_proj")?,
            norm: vector("o_norm.weight")?,
            output: self.output_projection(&format!("{prefix}.o_proj"))?,
        })
    }

    fn rwkv7(&self, mixer: &Mixer, prefix: &str) -> Result<Rwkv7, ExportError> {
        let number = |option: &str| mixer.number(option).unwrap_or_default() as usize;
        let (projection, vector) = (
            |name: &str| self.input_projection(&format!("{prefix}.{name}")),
            |name: &str| self.vector(&format!("{prefix}.{name}")),
        );
        let has = |name: &str| self.network.weights.find(&format!("{prefix}.{name}")).is_some();
        let low_rank = |name: &str| -> Result<LowRank, ExportError> {
            let bias = format!("{name}.1.bias");
            Ok(LowRank {
                down: projection(&format!("{name}.0"))?,
                up: self.weight(&format!("{prefix}.{name}.1.weight"))?,
                bias: if has(&bias) { Some(vector(&bias)?) } else { None },
            })
        };
        Ok(Rwkv7 {
            heads: number("heads"),
            head_dim: number("head"),
            token_shift: [
                vector("x_r")?,
                vector("x_w")?,
                vector("x_k")?,
                vector("x_v")?,
                vector("x_a")?,
                vector("x_g")?,
            ],
            receptance: projection("r_proj")?,
            key: projection("k_proj")?,
            value: projection("v_proj")?,
            output: self.output_projection(&format!("{prefix}.o_proj"))?,
            low_rank: [low_rank("w_proj")?, low_rank("a_proj")?, low_rank("g_proj")?],
            value_mix: if has("v_mix.0.weight") { Some(low_rank("v_mix")?) } else { None },
            erase_scale: vector("k_k")?,
            key_scale: vector("k_a")?,
            bonus: vector("r_k")?,
            norm: [vector("g_norm.weight")?, vector("g_norm.bias")?],
        })
    }

    /// The feed-forward network as a gated MLP.
    fn gated_mlp(&self, prefix: &str) -> Result<GatedMlp, ExportError> {
        let reject = |found: &str| {
            Err(ExportError::unsupported(
                "feed-forward network",
                found,
                "a gated one (`glu`), none, or ReLU without norms",
            ))
        };
        match (self.network.config.feed_forward, self.constant) {
            (FeedForwardConfig::None, _) => Ok(GatedMlp {
                gate: Matrix::zeros(1, self.width),
                up: Matrix::zeros(1, self.width),
                down: Matrix::zeros(self.width, 1),
            }),
            (FeedForwardConfig::Glu { .. }, _) => Ok(GatedMlp {
                gate: self.input_projection(&format!("{prefix}.gate_proj"))?,
                up: self.input_projection(&format!("{prefix}.up_proj"))?,
                down: self.output_projection(&format!("{prefix}.down_proj"))?,
            }),
            (FeedForwardConfig::Relu { .. }, Some(constant)) => {
                let gate = self.input_projection(&format!("{prefix}.up_proj"))?.scaled(STEEPNESS);
                let mut up = Matrix::zeros(gate.rows, self.width);
                (0..gate.rows).for_each(|row| up.set(row, constant.column, 1.0 / constant.value));
                let down = self.output_projection(&format!("{prefix}.down_proj"))?.scaled(1.0 / STEEPNESS);
                Ok(GatedMlp { gate, up, down })
            }
            (FeedForwardConfig::Relu { .. }, None) => reject("ReLU behind a norm"),
            (FeedForwardConfig::Mlp { .. }, _) => reject("GELU without a gate (`mlp`)"),
        }
    }

    /// The embeddings and unembeddings of all tokens.
    fn embedding_and_lm_head(&self, vocabulary: &Vocabulary) -> Result<(Matrix, Matrix), ExportError> {
        let (network, ops) = (self.network, self.network.executor());
        let prefixes = ["embeddings.", "lm_head."];
        let names = network.weights.entries().map(|(_, entry)| entry.name.clone());
        self.used_weights
            .borrow_mut()
            .extend(names.filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix))));
        let values = |tensor| ops.values(&tensor).iter().map(|value| value.to_f64()).collect::<Vec<f64>>();
        let unembedding_matrix = Matrix {
            rows: network.model.classes(),
            columns: self.network_width,
            values: values(network.model.unembedding_matrix(&ops)),
        };
        let mean_row: Vec<f64> = (0..self.network_width)
            .map(|column| {
                (0..unembedding_matrix.rows).map(|row| unembedding_matrix.get(row, column)).sum::<f64>()
                    / unembedding_matrix.rows as f64
            })
            .collect();
        let token_count = vocabulary.tokens.len();
        let (mut embedding, mut lm_head) =
            (Matrix::zeros(token_count, self.width), Matrix::zeros(token_count, self.width));
        for (id, token) in vocabulary.tokens.iter().enumerate() {
            let vector = match &token.meaning {
                TokenMeaning::Prompt(fields) => values(network.model.embed(&ops, fields)?),
                TokenMeaning::ExtraTableEntry(fields) => {
                    let (query_kind, flag_column) = self.query_kind()?;
                    let ids: Vec<u32> = std::iter::once(query_kind).chain(fields.iter().copied()).collect();
                    let mut vector = values(network.model.embed(&ops, &ids)?);
                    vector[flag_column] = -vector[flag_column];
                    vector
                }
                _ => Vec::new(),
            };
            vector.iter().enumerate().for_each(|(column, value)| embedding.set(id, column, *value));
            if let Some(constant) = self.constant {
                embedding.set(id, constant.column, constant.value);
            }
            match (&token.meaning, self.constant) {
                (TokenMeaning::Answer(class), _) => {
                    let row = unembedding_matrix.row(*class as usize).iter().enumerate();
                    row.for_each(|(column, value)| lm_head.set(id, column, *value));
                }
                (_, Some(constant)) => lm_head.set(id, constant.column, NON_ANSWER_LOGIT / constant.value),
                // The mean of all answers' logits is never the highest logit.
                (_, None) => mean_row.iter().enumerate().for_each(|(column, value)| lm_head.set(id, column, *value)),
            }
        }
        Ok((embedding, lm_head))
    }

    /// The id of the query's kind, and the column of the flag that only the query has: with that flag negated, a token has no kind. The
    /// kinds of tokens are an entry of each table, the start value, the query.
    fn query_kind(&self) -> Result<(u32, usize), ExportError> {
        let error = || {
            ExportError::unsupported(
                "--beyond",
                "a network without a register `is.query`",
                "a construction for `funccomp`",
            )
        };
        let info = self.network.construction().ok_or_else(error)?;
        let flag = info.registers.find("is.query").ok_or_else(error)?;
        let table_count = info.registers.iter().filter(|register| register.name.starts_with("is.")).count() - 2;
        Ok((table_count as u32 + 1, flag.start))
    }

    /// Checks that every weight of the network was read.
    fn check_all_used(&self) -> Result<(), ExportError> {
        let used = self.used_weights.borrow();
        match self.network.weights.entries().find(|(_, entry)| !used.contains(&entry.name)) {
            Some((_, entry)) => Err(ExportError::unsupported(
                format!("weight `{}`", entry.name),
                "a weight without a counterpart",
                "none",
            )),
            None => Ok(()),
        }
    }
}

impl Attention {
    /// The same attention with other numbers and widths of heads: zero heads and channels are added, and keys and values are repeated if
    /// fewer queries share them. Scores stay the same.
    pub(super) fn resized(&self, heads: usize, kv_heads: usize, width: usize) -> Self {
        let (old_group_size, group_size) = (self.heads / self.kv_heads, heads / kv_heads);
        // The old query head of a new one, and the old KV head of a new one.
        let query_head = |head: usize| (head < self.heads).then_some(head);
        let kv_head = |head: usize| {
            let old = if group_size == old_group_size { head } else { head * group_size / old_group_size };
            (old < self.kv_heads).then_some(old)
        };
        let old_row = |row: usize, old_width: usize, old_head: &dyn Fn(usize) -> Option<usize>| {
            let channel = row % width;
            old_head(row / width).filter(|_| channel < old_width).map(|head| head * old_width + channel)
        };
        let query_scale = (width as f64 / self.key_dim as f64).sqrt();
        Self {
            heads,
            kv_heads,
            key_dim: width,
            value_dim: width,
            queries: self
                .queries
                .map_rows(heads * width, |row| old_row(row, self.key_dim, &query_head))
                .scaled(query_scale),
            keys: self.keys.map_rows(kv_heads * width, |row| old_row(row, self.key_dim, &kv_head)),
            values: self.values.map_rows(kv_heads * width, |row| old_row(row, self.value_dim, &kv_head)),
            output: self.output.map_columns(heads * width, |column| old_row(column, self.value_dim, &query_head)),
        }
    }
}

/// Heads, KV heads and head width that fits all attention layers of a network.
pub(super) fn common_heads(network: &ExportNetwork) -> Result<[usize; 3], ExportError> {
    let layers = || {
        network.layers.iter().filter_map(|layer| match &layer.mixer {
            ExportMixer::Attention(attention) => Some(attention),
            _ => None,
        })
    };
    let largest = |size: fn(&Attention) -> usize| layers().map(size).max().unwrap_or(1).max(1);
    let width = largest(|layer| layer.key_dim.max(layer.value_dim)).next_multiple_of(2);
    if network.rope_theta.is_some() && layers().any(|layer| layer.key_dim != width) {
        let found = format!("rotary positions on key heads of other widths than {width}");
        return Err(ExportError::unsupported("positions", found, "one width of keys and values in all layers"));
    }
    let group_size = |layer: &Attention| layer.heads / layer.kv_heads;
    let first_group_size = layers().next().map_or(1, group_size);
    if layers().all(|layer| group_size(layer) == first_group_size) {
        let kv_heads = largest(|layer| layer.kv_heads);
        return Ok([kv_heads * first_group_size, kv_heads, width]);
    }
    let heads = largest(|layer| layer.heads);
    Ok([heads, heads, width])
}
