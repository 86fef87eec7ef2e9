//! The network in the form that targets share: an RMS norm before every part, gated networks, one vocabulary.
//!
//! What a target has and the network lacks is given weights that make it do nothing:
//!
//! - **The norm of a stream without norms.** A column that always holds [`ballast`](Constant) makes the length of every vector the same
//!   to a few parts in a million, and the norm's gain undoes it. So the norm is the identity.
//! - **A gated network for a ReLU.** `max(x, 0)` is `silu(k x) / k` for a large k; the other factor reads the ballast, which is constant.
//! - **Widths.** Columns of zeros are added where a target wants a multiple of something; the norm's gain and epsilon are changed so that it
//!   gives the same numbers.

use std::cell::RefCell;
use std::collections::BTreeSet;

use rung_engine::{Ops as _, Scalar};
use rung_theory::stack::{Mixer, Plan};

use super::ExportError;
use super::matrix::Matrix;
use super::vocabulary::{TokenMeaning, Vocabulary};
use crate::model::{FeedForwardConfig, Norm, NormConfig, NormPlacement, names};
use crate::network::Network;
use crate::position::Positions;

/// What a norm divides by, in a stream that had none. Far larger than what a token's own columns add to it, and small enough for half
/// precision.
const LENGTH: f64 = 512.0;

/// How steep a SiLU must be to be a ReLU: its error is below 0.28 of one over this, and only beside the kink.
const STEEPNESS: f64 = 1024.0;

/// The score of tokens that are no answers, in a network that has a constant column.
const NEVER: f64 = -100.0;

/// A column of the stream that holds the same number at every token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constant {
    pub(super) column: usize,
    pub(super) value: f64,
}

/// A network, ready to be written.
pub(super) struct ExportNetwork {
    pub(super) width: usize,
    /// `[tokens, width]`.
    pub(super) embedding: Matrix,
    pub(super) layers: Vec<ExportLayer>,
    pub(super) norm: Vec<f64>,
    /// `[tokens, width]`.
    pub(super) head: Matrix,
    /// Of every norm of the stream.
    pub(super) epsilon: f64,
    /// The base of rotary positions; none where nothing turns.
    pub(super) rotary: Option<f64>,
    pub(super) constant: Option<Constant>,
    /// Tokens that a sequence may have.
    pub(super) length: usize,
}

pub(super) struct ExportLayer {
    pub(super) mixer_norm: Vec<f64>,
    pub(super) mixer: ExportMixer,
    pub(super) network_norm: Vec<f64>,
    pub(super) network: GatedNetwork,
}

pub(super) enum ExportMixer {
    Attention(Attention),
    Mamba2(Mamba2),
    GatedDeltanet(GatedDeltanet),
    Rwkv7(Box<Rwkv7>),
}

/// Softmax attention whose scores are divided by the root of the key width.
#[derive(Clone)]
pub(super) struct Attention {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) key: usize,
    pub(super) value: usize,
    pub(super) queries: Matrix,
    pub(super) keys: Matrix,
    pub(super) values: Matrix,
    pub(super) output: Matrix,
}

/// Mamba-2 with one norm over each group of heads, after the gate.
#[derive(Clone)]
pub(super) struct Mamba2 {
    pub(super) heads: usize,
    pub(super) head: usize,
    pub(super) state: usize,
    pub(super) groups: usize,
    pub(super) taps: usize,
    /// Rows: gate, values, B, C, step.
    pub(super) input: Matrix,
    pub(super) convolution: Matrix,
    pub(super) convolution_bias: Vec<f64>,
    pub(super) step_bias: Vec<f64>,
    pub(super) log_rate: Vec<f64>,
    pub(super) skip: Vec<f64>,
    pub(super) norm: Vec<f64>,
    pub(super) output: Matrix,
}

/// Gated DeltaNet.
#[derive(Clone)]
pub(super) struct GatedDeltanet {
    pub(super) heads: usize,
    pub(super) value_heads: usize,
    pub(super) key: usize,
    pub(super) value: usize,
    pub(super) taps: usize,
    pub(super) negative: bool,
    pub(super) queries: Matrix,
    pub(super) keys: Matrix,
    pub(super) values: Matrix,
    /// Of queries, keys and values, one below the other.
    pub(super) convolution: Matrix,
    pub(super) strength: Matrix,
    pub(super) step: Matrix,
    pub(super) step_bias: Vec<f64>,
    pub(super) log_rate: Vec<f64>,
    pub(super) gate: Matrix,
    pub(super) norm: Vec<f64>,
    pub(super) output: Matrix,
}

/// RWKV-7's time mixing.
pub(super) struct Rwkv7 {
    pub(super) heads: usize,
    pub(super) head: usize,
    /// The earlier token's share per column, for r, w, k, v, a and g.
    pub(super) shares: [Vec<f64>; 6],
    pub(super) receptance: Matrix,
    pub(super) key: Matrix,
    pub(super) value: Matrix,
    pub(super) output: Matrix,
    /// Of the decay, the learning rate and the gate.
    pub(super) low_rank: [LowRank; 3],
    /// Of the share of the first layer's values, in layers after the first.
    pub(super) mix: Option<LowRank>,
    pub(super) erase_scale: Vec<f64>,
    pub(super) key_scale: Vec<f64>,
    pub(super) bonus: Vec<f64>,
    /// Gain and offset of the norm per head.
    pub(super) norm: [Vec<f64>; 2],
}

/// Two projections, one after the other.
pub(super) struct LowRank {
    pub(super) down: Matrix,
    pub(super) up: Matrix,
    pub(super) bias: Option<Vec<f64>>,
}

impl Rwkv7 {
    /// Of the decay, the learning rate and the gate.
    pub(super) fn ranks(&self) -> [usize; 3] {
        [0, 1, 2].map(|at| self.low_rank[at].down.rows)
    }
}

/// `down (silu(gate x) . up x)`.
pub(super) struct GatedNetwork {
    pub(super) gate: Matrix,
    pub(super) up: Matrix,
    pub(super) down: Matrix,
}

impl ExportNetwork {
    /// Reads a network. Its stream gets the width that `width` gives for the least possible one.
    pub(super) fn read<S: Scalar>(
        network: &Network<S>,
        vocabulary: &Vocabulary,
        width: fn(&Plan, usize) -> usize,
    ) -> Result<Self, ExportError> {
        let config = &network.config;
        let rotary = positions(config.positions)?;
        let refuse = |part: &str, found: &str, expected: &str| Err(ExportError::unfit(part, found, expected));
        if !config.causal {
            return refuse("attention", "tokens that see every other", "a causal mask");
        }
        if network.chain_of_thought().is_some() {
            return refuse(
                "chain of thought",
                "tokens that the network emits and reads again",
                "an answer in one pass",
            );
        }
        if config.precision != crate::precision::Precision::default() {
            return refuse("precision", "numbers rounded to few bits", "the machine's own");
        }
        let constant = match (config.norm, config.placement) {
            (NormConfig::None, _) => true,
            (NormConfig::Rms, NormPlacement::Pre) => false,
            (NormConfig::Rms, NormPlacement::Post) => return refuse("norms", "after the sum", "before each part"),
            (NormConfig::Layer, _) => {
                return refuse("norms", "layer norms, which subtract the mean", "RMS norms or none");
            }
        };
        let reader = Reader::new(network, width, constant);
        let layers = (0..network.plan.layers.len()).map(|index| reader.layer(index)).collect::<Result<_, _>>()?;
        let norm = reader.gain("norm.weight")?;
        let (embedding, head) = reader.ends(vocabulary)?;
        reader.finish()?;
        let length = network.task()?.length() + 64;
        let Reader { width, epsilon, constant, .. } = reader;
        Ok(Self { width, embedding, layers, norm, head, epsilon, rotary, constant, length })
    }

    /// The hidden width of the gated networks.
    pub(super) fn hidden(&self) -> usize {
        self.layers.first().map_or(1, |layer| layer.network.gate.rows)
    }
}

fn positions(positions: Positions) -> Result<Option<f64>, ExportError> {
    let found = match positions {
        Positions::None => return Ok(None),
        Positions::Rotary { base } => return Ok(Some(base)),
        Positions::Alibi => "a penalty on distance (ALiBi)",
        Positions::Relative => "learned numbers on the scores of the nearest tokens",
        Positions::Learned { .. } => "a learned table of positions",
    };
    Err(ExportError::unfit("positions", found, "rotary positions or none"))
}

struct Reader<'a, S: Scalar> {
    network: &'a Network<S>,
    /// Weights that were written somewhere: every one must be.
    used: RefCell<BTreeSet<String>>,
    own_width: usize,
    width: usize,
    epsilon: f64,
    constant: Option<Constant>,
}

impl<'a, S: Scalar> Reader<'a, S> {
    fn new(network: &'a Network<S>, width: fn(&Plan, usize) -> usize, constant: bool) -> Self {
        let own_width = network.plan.width as usize;
        let width = width(&network.plan, own_width + usize::from(constant));
        let epsilon = Norm::EPSILON * if constant { 1.0 } else { own_width as f64 / width as f64 };
        let constant = constant.then(|| Constant { column: width - 1, value: LENGTH * (width as f64).sqrt() });
        Self { network, used: RefCell::default(), own_width, width, epsilon, constant }
    }

    /// A weight; vectors are one row, convolutions have a row for each channel.
    fn weight(&self, name: &str) -> Result<Matrix, ExportError> {
        let weights = &self.network.weights;
        let missing = || ExportError::unfit(format!("weight `{name}`"), "none", "a weight of that name");
        let id = weights.find(name).ok_or_else(missing)?;
        self.used.borrow_mut().insert(name.to_owned());
        let (values, shape) = (weights.get(id), &weights.entry(id).shape);
        let columns = shape.width();
        let values: Vec<f64> = values.iter().map(|value| value.to_f64()).collect();
        Ok(Matrix { rows: values.len() / columns.max(1), columns, values })
    }

    fn vector(&self, name: &str) -> Result<Vec<f64>, ExportError> {
        Ok(self.weight(name)?.values)
    }

    /// A projection that reads the stream.
    fn reading(&self, name: &str) -> Result<Matrix, ExportError> {
        let own = self.weight(&format!("{name}.weight"))?;
        Ok(own.padded(own.rows, self.width))
    }

    /// A projection that writes to the stream.
    fn writing(&self, name: &str) -> Result<Matrix, ExportError> {
        let own = self.weight(&format!("{name}.weight"))?;
        Ok(own.padded(self.width, own.columns))
    }

    fn gain(&self, name: &str) -> Result<Vec<f64>, ExportError> {
        if let Some(constant) = self.constant {
            let length = (constant.value * constant.value / self.width as f64 + self.epsilon).sqrt();
            return Ok(vec![length; self.width]);
        }
        let shorter = (self.own_width as f64 / self.width as f64).sqrt();
        let mut gain = self.vector(name)?;
        for value in &mut gain {
            *value *= shorter;
        }
        gain.resize(self.width, 1.0);
        Ok(gain)
    }

    fn layer(&self, index: usize) -> Result<ExportLayer, ExportError> {
        let layer = &self.network.plan.layers[index];
        let place = || format!("layer {index}");
        let mixer = match &layer.mixers[..] {
            [mixer] if !layer.shares_cache => mixer,
            [_] => {
                return Err(ExportError::unfit(
                    place(),
                    "keys and values of another layer",
                    "keys and values of its own",
                ));
            }
            mixers => {
                let found = format!("{} mixers side by side", mixers.len());
                return Err(ExportError::unfit(place(), found, "one mixer"));
            }
        };
        let prefix = names::mixer(index, 0, 1);
        let plain = match mixer.name() {
            "full" => ExportMixer::Attention(self.attention(mixer, &prefix, index)?),
            "mamba2" => ExportMixer::Mamba2(self.mamba2(mixer, &prefix)?),
            "gdn" => ExportMixer::GatedDeltanet(self.gated_deltanet(mixer, &prefix)?),
            "rwkv7" => ExportMixer::Rwkv7(Box::new(self.rwkv7(mixer, &prefix)?)),
            other => return Err(ExportError::unfit(place(), format!("`{other}`"), "full, mamba2, gdn or rwkv7")),
        };
        let name = names::layer(index);
        let network = self.network(&names::mlp(index))?;
        let network_norm = if self.network.config.feed_forward == FeedForwardConfig::None {
            vec![1.0; self.width]
        } else {
            self.gain(&format!("{name}.mlp_norm.weight"))?
        };
        Ok(ExportLayer {
            mixer_norm: self.gain(&format!("{name}.mixer_norm.weight"))?,
            mixer: plain,
            network_norm,
            network,
        })
    }

    fn attention(&self, mixer: &Mixer, prefix: &str, index: usize) -> Result<Attention, ExportError> {
        let number = |option: &str| mixer.number(option).unwrap_or_default() as usize;
        let refuse = |found: &str, expected: &str| Err(ExportError::unfit(format!("layer {index}"), found, expected));
        if mixer.flag("tied") == Some(true) {
            return refuse("one vector as key and value", "keys and values of their own");
        }
        if number("conv") > 0 {
            return refuse("a convolution before full attention", "full attention alone");
        }
        if number("accumulator") > 0 {
            return refuse("attention that sums in order, in an accumulator", "the machine's own sums");
        }
        Ok(Attention {
            heads: number("heads"),
            kv_heads: number("kv"),
            key: number("key"),
            value: number("value"),
            queries: self.reading(&format!("{prefix}.q_proj"))?,
            keys: self.reading(&format!("{prefix}.k_proj"))?,
            values: self.reading(&format!("{prefix}.v_proj"))?,
            output: self.writing(&format!("{prefix}.o_proj"))?,
        })
    }

    fn mamba2(&self, mixer: &Mixer, prefix: &str) -> Result<Mamba2, ExportError> {
        let number = |option: &str| mixer.number(option).unwrap_or_default() as usize;
        let vector = |name: &str| self.vector(&format!("{prefix}.{name}"));
        Ok(Mamba2 {
            heads: number("heads"),
            head: number("head"),
            state: number("state"),
            groups: number("groups"),
            taps: number("conv"),
            input: self.reading(&format!("{prefix}.in_proj"))?,
            convolution: self.weight(&format!("{prefix}.conv1d.weight"))?,
            convolution_bias: vector("conv1d.bias")?,
            step_bias: vector("dt_bias")?,
            log_rate: vector("A_log")?,
            skip: vector("D")?,
            norm: vector("norm.weight")?,
            output: self.writing(&format!("{prefix}.out_proj"))?,
        })
    }

    fn gated_deltanet(&self, mixer: &Mixer, prefix: &str) -> Result<GatedDeltanet, ExportError> {
        let number = |option: &str| mixer.number(option).unwrap_or_default() as usize;
        let (reading, vector) = (
            |name: &str| self.reading(&format!("{prefix}.{name}")),
            |name: &str| self.vector(&format!("{prefix}.{name}")),
        );
        let (queries, keys, values) = (reading("q_proj")?, reading("k_proj")?, reading("v_proj")?);
        let taps = number("conv");
        let convolution = if taps == 0 {
            // One tap of one is no convolution.
            let channels = queries.rows + keys.rows + values.rows;
            Matrix { rows: channels, columns: 1, values: vec![1.0; channels] }
        } else {
            let convolution = |name: &str| self.weight(&format!("{prefix}.{name}_conv1d.weight"));
            Matrix::stacked(&[&convolution("q")?, &convolution("k")?, &convolution("v")?])
        };
        Ok(GatedDeltanet {
            heads: number("heads"),
            value_heads: number("value-heads"),
            key: number("key"),
            value: number("value"),
            taps: taps.max(1),
            negative: mixer.flag("negative") == Some(true),
            queries,
            keys,
            values,
            convolution,
            strength: reading("b_proj")?,
            step: reading("a_proj")?,
            step_bias: vector("dt_bias")?,
            log_rate: vector("A_log")?,
            gate: reading("g_proj")?,
            norm: vector("o_norm.weight")?,
            output: self.writing(&format!("{prefix}.o_proj"))?,
        })
    }

    fn rwkv7(&self, mixer: &Mixer, prefix: &str) -> Result<Rwkv7, ExportError> {
        let number = |option: &str| mixer.number(option).unwrap_or_default() as usize;
        let (reading, vector) = (
            |name: &str| self.reading(&format!("{prefix}.{name}")),
            |name: &str| self.vector(&format!("{prefix}.{name}")),
        );
        let has = |name: &str| self.network.weights.find(&format!("{prefix}.{name}")).is_some();
        let low_rank = |name: &str| -> Result<LowRank, ExportError> {
            let bias = format!("{name}.1.bias");
            Ok(LowRank {
                down: reading(&format!("{name}.0"))?,
                up: self.weight(&format!("{prefix}.{name}.1.weight"))?,
                bias: if has(&bias) { Some(vector(&bias)?) } else { None },
            })
        };
        Ok(Rwkv7 {
            heads: number("heads"),
            head: number("head"),
            shares: [vector("x_r")?, vector("x_w")?, vector("x_k")?, vector("x_v")?, vector("x_a")?, vector("x_g")?],
            receptance: reading("r_proj")?,
            key: reading("k_proj")?,
            value: reading("v_proj")?,
            output: self.writing(&format!("{prefix}.o_proj"))?,
            low_rank: [low_rank("w_proj")?, low_rank("a_proj")?, low_rank("g_proj")?],
            mix: if has("v_mix.0.weight") { Some(low_rank("v_mix")?) } else { None },
            erase_scale: vector("k_k")?,
            key_scale: vector("k_a")?,
            bonus: vector("r_k")?,
            norm: [vector("g_norm.weight")?, vector("g_norm.bias")?],
        })
    }

    fn network(&self, prefix: &str) -> Result<GatedNetwork, ExportError> {
        let refuse = |found: &str| {
            Err(ExportError::unfit("feed-forward network", found, "a gated one (`glu`), none, or ReLU without norms"))
        };
        match (self.network.config.feed_forward, self.constant) {
            (FeedForwardConfig::None, _) => Ok(GatedNetwork {
                gate: Matrix::zeros(1, self.width),
                up: Matrix::zeros(1, self.width),
                down: Matrix::zeros(self.width, 1),
            }),
            (FeedForwardConfig::Glu { .. }, _) => Ok(GatedNetwork {
                gate: self.reading(&format!("{prefix}.gate_proj"))?,
                up: self.reading(&format!("{prefix}.up_proj"))?,
                down: self.writing(&format!("{prefix}.down_proj"))?,
            }),
            (FeedForwardConfig::Relu { .. }, Some(constant)) => {
                let gate = self.reading(&format!("{prefix}.up_proj"))?.scaled(STEEPNESS);
                let mut up = Matrix::zeros(gate.rows, self.width);
                (0..gate.rows).for_each(|row| up.set(row, constant.column, 1.0 / constant.value));
                let down = self.writing(&format!("{prefix}.down_proj"))?.scaled(1.0 / STEEPNESS);
                Ok(GatedNetwork { gate, up, down })
            }
            (FeedForwardConfig::Relu { .. }, None) => refuse("ReLU behind a norm"),
            (FeedForwardConfig::Mlp { .. }, _) => refuse("GELU without a gate (`mlp`)"),
        }
    }

    /// The vectors of all tokens, and the vectors that score them.
    fn ends(&self, vocabulary: &Vocabulary) -> Result<(Matrix, Matrix), ExportError> {
        let (network, ops) = (self.network, self.network.executor());
        let prefixes = ["embeddings.", "lm_head."];
        let ends = network.weights.entries().map(|(_, entry)| entry.name.clone());
        self.used.borrow_mut().extend(ends.filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix))));
        let values = |tensor| ops.values(&tensor).iter().map(|value| value.to_f64()).collect::<Vec<f64>>();
        let classes = Matrix {
            rows: network.model.classes(),
            columns: self.own_width,
            values: values(network.model.class_vectors(&ops)),
        };
        let mean: Vec<f64> = (0..self.own_width)
            .map(|column| (0..classes.rows).map(|row| classes.get(row, column)).sum::<f64>() / classes.rows as f64)
            .collect();
        let count = vocabulary.tokens.len();
        let (mut embedding, mut head) = (Matrix::zeros(count, self.width), Matrix::zeros(count, self.width));
        for (id, token) in vocabulary.tokens.iter().enumerate() {
            let own = match &token.meaning {
                TokenMeaning::Prompt(fields) => values(network.model.embed(&ops, fields)?),
                TokenMeaning::FurtherEntry(fields) => {
                    let query = self.query_kind()?;
                    let whole: Vec<u32> = std::iter::once(query.0).chain(fields.iter().copied()).collect();
                    let mut vector = values(network.model.embed(&ops, &whole)?);
                    vector[query.1] = -vector[query.1];
                    vector
                }
                _ => Vec::new(),
            };
            own.iter().enumerate().for_each(|(column, value)| embedding.set(id, column, *value));
            if let Some(constant) = self.constant {
                embedding.set(id, constant.column, constant.value);
            }
            match (&token.meaning, self.constant) {
                (TokenMeaning::Answer(class), _) => {
                    let row = classes.row(*class as usize).iter().enumerate();
                    row.for_each(|(column, value)| head.set(id, column, *value));
                }
                (_, Some(constant)) => head.set(id, constant.column, NEVER / constant.value),
                // The mean of all answers' scores is never the highest.
                (_, None) => mean.iter().enumerate().for_each(|(column, value)| head.set(id, column, *value)),
            }
        }
        Ok((embedding, head))
    }

    /// The kind of the query, and the column of the flag that it alone has: without that flag a token is of no kind at all.
    fn query_kind(&self) -> Result<(u32, usize), ExportError> {
        let unfit = || {
            ExportError::unfit("--beyond", "a network without a register `is.query`", "a construction for `funccomp`")
        };
        let info = self.network.construction().ok_or_else(unfit)?;
        let flag = info.registers.find("is.query").ok_or_else(unfit)?;
        let entries = info.registers.iter().filter(|register| register.name.starts_with("is.")).count() - 2;
        Ok((entries as u32 + 1, flag.start))
    }

    /// Nothing of the network may be lost.
    fn finish(&self) -> Result<(), ExportError> {
        let used = self.used.borrow();
        match self.network.weights.entries().find(|(_, entry)| !used.contains(&entry.name)) {
            Some((_, entry)) => {
                Err(ExportError::unfit(format!("weight `{}`", entry.name), "a weight without a counterpart", "none"))
            }
            None => Ok(()),
        }
    }
}

impl Attention {
    /// The same heads in other numbers and widths: empty heads and channels are added, and keys and values are repeated where
    /// fewer queries share them. Scores stay what they were.
    pub(super) fn resized(&self, heads: usize, kv_heads: usize, width: usize) -> Self {
        let (own_group, group) = (self.heads / self.kv_heads, heads / kv_heads);
        // The own query head that stands at a head, and the own key/value head at a key/value head.
        let query_head = |head: usize| (head < self.heads).then_some(head);
        let kv_head = |head: usize| {
            let own = if group == own_group { head } else { head * group / own_group };
            (own < self.kv_heads).then_some(own)
        };
        let place = |at: usize, own_width: usize, head: &dyn Fn(usize) -> Option<usize>| {
            let channel = at % width;
            head(at / width).filter(|_| channel < own_width).map(|head| head * own_width + channel)
        };
        let root = (width as f64 / self.key as f64).sqrt();
        Self {
            heads,
            kv_heads,
            key: width,
            value: width,
            queries: self.queries.rows_by(heads * width, |row| place(row, self.key, &query_head)).scaled(root),
            keys: self.keys.rows_by(kv_heads * width, |row| place(row, self.key, &kv_head)),
            values: self.values.rows_by(kv_heads * width, |row| place(row, self.value, &kv_head)),
            output: self.output.columns_by(heads * width, |column| place(column, self.value, &query_head)),
        }
    }
}

/// Heads, key/value heads and head width that hold all attention layers of a network.
pub(super) fn common_heads(plain: &ExportNetwork) -> Result<[usize; 3], ExportError> {
    let layers = || {
        plain.layers.iter().filter_map(|layer| match &layer.mixer {
            ExportMixer::Attention(attention) => Some(attention),
            _ => None,
        })
    };
    let most = |of: fn(&Attention) -> usize| layers().map(of).max().unwrap_or(1).max(1);
    let width = most(|layer| layer.key.max(layer.value)).next_multiple_of(2);
    if plain.rotary.is_some() && layers().any(|layer| layer.key != width) {
        let found = format!("rotary positions on key heads of other widths than {width}");
        return Err(ExportError::unfit("positions", found, "one width of keys and values in all layers"));
    }
    let group = |layer: &Attention| layer.heads / layer.kv_heads;
    let first = layers().next().map_or(1, group);
    if layers().all(|layer| group(layer) == first) {
        let kv_heads = most(|layer| layer.kv_heads);
        return Ok([kv_heads * first, kv_heads, width]);
    }
    let heads = most(|layer| layer.heads);
    Ok([heads, heads, width])
}
