//! Multi-head softmax attention, which full and windowed attention share: projections, position encodings, the KV cache.
//!
//! [`MultiHeadAttention`] projects tokens to queries, keys and values. A [`KvCache`] has the keys and values that queries attend to,
//! with their positions. [`QueryHeads`] has the query and output projections; alone it is the mixer of a layer without keys and values
//! of its own, which attends to the cache of an earlier layer.

use std::ops::Range;

use rung_engine::{AccumulatorRounding, AttentionInputs, AttentionMask, Ops, Parameter, Role, Rounding, Scalar};
use rung_theory::stack::Mixer;

use super::head_options::{HeadOptions, project};
use super::{SharedTensor, State, TokenMixer, append_to_state_tensor, number, require_divisor};
use crate::error::ModelError;
use crate::param_builder::{Init, ParamBuilder};
use crate::position::{Positions, Rotation, alibi_bias, apply_rope};
use crate::precision::apply_rounding;
pub use crate::state::{CachePositions, KvCache};
use crate::submodules::Linear;

/// Used as minus infinity in masks: its exponential is zero, and sums and differences of it are not NaN.
pub(super) const MASKED: f64 = -1e30;

/// Sizes of the heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadsConfig {
    /// Number of query heads.
    pub heads: usize,
    /// Number of key/value heads.
    pub kv_heads: usize,
    /// Width of a key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
    /// Whether one vector serves as key and value. It is cached before its rotation.
    pub tied: bool,
    /// Order and precision of the sums over keys.
    pub accumulator: Accumulator,
}

/// Order and precision of attention's sums over keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulator {
    /// The fused kernel: any order, floating point.
    Fast,
    /// From the first key to the last, in floating point.
    Ordered,
    /// From the first key to the last, in accumulators of this many bits.
    Bits(u32),
}

impl Accumulator {
    /// Channels of the running mean are clamped to plus or minus this.
    const MEAN_RANGE: f64 = 8.0;
    /// The running logarithm of the sum of weights is clamped to plus or minus this. Scores of sharp lookups grow in training.
    const LOG_RANGE: f64 = 128.0;
    /// The number of bits that selects [`Accumulator::Ordered`].
    const FLOAT_BITS: u64 = 32;

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        match mixer.number("accumulator").unwrap_or(0) {
            0 => Ok(Self::Fast),
            Self::FLOAT_BITS => Ok(Self::Ordered),
            bits if bits <= Rounding::MAX_BITS.into() => Ok(Self::Bits(bits as u32)),
            found => {
                let expected = format!("1 to {}, {} or 0 for none", Rounding::MAX_BITS, Self::FLOAT_BITS);
                Err(ModelError::InvalidSize {
                    component: mixer.name(),
                    what: "bits of an accumulator",
                    found,
                    expected,
                })
            }
        }
    }

    /// Attention with these sums. Gradients are those of exact sums.
    fn attend<O: Ops>(self, ops: &O, inputs: &AttentionInputs<'_, O::Tensor>) -> O::Tensor {
        let exact = ops.attention(inputs);
        let rounding = match self {
            Self::Fast => return exact,
            Self::Ordered => None,
            Self::Bits(bits) => Some(AccumulatorRounding {
                mean: Rounding { bits, range: Self::MEAN_RANGE },
                log_sum: Rounding { bits, range: Self::LOG_RANGE },
            }),
        };
        // Its value is zero and its gradient that of the exact sums.
        let exact_gradient = ops.sub(&exact, &ops.detach(&exact));
        ops.add(&ops.left_to_right_attention(inputs, rounding), &exact_gradient)
    }
}

/// Which tokens a query attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Every token.
    All,
    /// The query's own token and all before it.
    Past,
    /// The query's own token, those just before it, and the first of the sequence.
    Window {
        /// Tokens in the window, including the query's own.
        size: usize,
        /// Attention sinks: the first tokens, which are always visible.
        sinks: usize,
    },
}

/// The query and output projections of attention, which attend to a given [`KvCache`].
pub struct QueryHeads {
    config: HeadsConfig,
    visibility: Visibility,
    query: Linear,
    output: Linear,
    rotation: Option<Rotation>,
    alibi: bool,
    /// Learned bias on the scores of the nearest tokens, divided by [`RELATIVE_BIAS_SCALE`]: see [`Positions::Relative`].
    relative_bias: Option<Parameter>,
    options: HeadOptions,
}

/// Number of nearest tokens with a learned bias on their scores, including the query's own.
const RELATIVE_BIAS_TOKENS: usize = 3;

/// The bias is this times its weight, because an optimiser's steps are small compared to the scores of a sharp lookup.
const RELATIVE_BIAS_SCALE: f64 = 16.0;

/// Multi-head attention with its own key and value projections.
pub struct MultiHeadAttention {
    query_heads: QueryHeads,
    key: Linear,
    value: Option<Linear>,
    rounding: Option<Rounding>,
}

impl HeadsConfig {
    pub(crate) fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, kv_heads, key_dim, value_dim] = ["heads", "kv", "key", "value"].map(|option| number(mixer, option));
        require_divisor(mixer.name(), "key/value heads", heads, kv_heads)?;
        let tied = mixer.flag("tied") == Some(true);
        if tied && key_dim != value_dim {
            let expected = format!("{key_dim}, the width of the keys that serve as values");
            return Err(ModelError::InvalidSize {
                component: mixer.name(),
                what: "value width",
                found: value_dim as u64,
                expected,
            });
        }
        Ok(Self { heads, kv_heads, key_dim, value_dim, tied, accumulator: Accumulator::resolve(mixer)? })
    }

    /// Adds the weights. `rounding` is applied to cached keys and values.
    pub(super) fn init<S: Scalar>(
        self,
        name: &'static str,
        params: &mut ParamBuilder<'_, S>,
        visibility: Visibility,
        rounding: Option<Rounding>,
    ) -> Result<MultiHeadAttention, ModelError> {
        let width = params.settings.width;
        let rotation = self.rotation(name, params.settings.positions)?;
        let query = params.role(Role::Query).linear("q_proj", width, self.heads * self.key_dim);
        let key = params.role(Role::Key).linear("k_proj", width, self.kv_heads * self.key_dim);
        params.copy_query_to_key(&query, &key, self.heads, self.kv_heads);
        if !matches!(visibility, Visibility::Window { .. }) {
            params.negate_key(&key);
        }
        let value =
            (!self.tied).then(|| params.role(Role::Value).linear("v_proj", width, self.kv_heads * self.value_dim));
        let output = params.role(Role::Output).linear("o_proj", self.heads * self.value_dim, width);
        let alibi = params.settings.positions == Positions::Alibi;
        let (relative_bias, options) = (add_relative_bias(params, visibility), HeadOptions::default());
        let query_heads =
            QueryHeads { config: self, visibility, query, output, rotation, alibi, relative_bias, options };
        Ok(MultiHeadAttention { query_heads, key, value, rounding })
    }

    /// Adds the weights of a layer that attends to the KV cache of another.
    pub(super) fn init_with_shared_cache<S: Scalar>(
        self,
        name: &'static str,
        params: &mut ParamBuilder<'_, S>,
        visibility: Visibility,
    ) -> Result<QueryHeads, ModelError> {
        let width = params.settings.width;
        let rotation = self.rotation(name, params.settings.positions)?;
        let query = params.role(Role::Query).linear("q_proj", width, self.heads * self.key_dim);
        let output = params.role(Role::Output).linear("o_proj", self.heads * self.value_dim, width);
        let alibi = params.settings.positions == Positions::Alibi;
        let (relative_bias, options) = (add_relative_bias(params, visibility), HeadOptions::default());
        Ok(QueryHeads { config: self, visibility, query, output, rotation, alibi, relative_bias, options })
    }

    /// Attention whose weights were read from a checkpoint. There is no value projection where keys serve as values.
    pub(crate) fn assemble(
        self,
        visibility: Visibility,
        [query, key, output]: [Linear; 3],
        value: Option<Linear>,
        rotation: Option<Rotation>,
        options: HeadOptions,
    ) -> MultiHeadAttention {
        let (alibi, relative_bias) = (false, None);
        let query_heads =
            QueryHeads { config: self, visibility, query, output, rotation, alibi, relative_bias, options };
        MultiHeadAttention { query_heads, key, value, rounding: None }
    }

    /// Scale of the scores: one over the root of the key width.
    pub(super) fn scale(self) -> f64 {
        (self.key_dim as f64).powf(-0.5)
    }

    fn rotation(self, name: &'static str, positions: Positions) -> Result<Option<Rotation>, ModelError> {
        Rotation::for_keys(name, "key width", self.key_dim, positions)
    }
}

impl QueryHeads {
    fn apply_rope<O: Ops>(&self, ops: &O, x: &O::Tensor, past_len: usize) -> O::Tensor {
        apply_rope(ops, self.rotation.as_ref(), x, past_len)
    }

    /// The rotated queries of a span whose first token is at position `past_len`.
    pub(super) fn project_query<O: Ops>(&self, ops: &O, x: &O::Tensor, past_len: usize) -> O::Tensor {
        let query = project(ops, &self.query, self.options.query_norm.as_ref(), x, self.config.heads);
        self.apply_rope(ops, &query, past_len)
    }

    /// Applies gate and output projection to the attention output of every head; `x` is the mixer's input.
    pub(super) fn project_output<O: Ops>(&self, ops: &O, x: &O::Tensor, head_outputs: &O::Tensor) -> O::Tensor {
        self.output.apply(ops, &self.options.gate_heads(ops, x, head_outputs))
    }

    /// Attention of new tokens over a cache that ends with them, and the output projection.
    fn attend<O: Ops>(&self, ops: &O, x: &O::Tensor, past_len: usize, cache: &KvCache<O::Tensor>) -> O::Tensor {
        let query = self.project_query(ops, x, past_len);
        let mask = match self.visibility {
            Visibility::All => AttentionMask::None,
            Visibility::Window { size, sinks: 0 } => AttentionMask::Window(size),
            Visibility::Past | Visibility::Window { .. } => AttentionMask::Causal,
        };
        let scale = self.options.scale.unwrap_or_else(|| self.config.scale());
        if !self.options.supports_fused_kernel() {
            let head_outputs = self.options.attend(ops, self.config, &query, cache, mask, scale);
            return self.project_output(ops, x, &head_outputs);
        }
        let bias = self.bias(ops, past_len..past_len + ops.shape(x)[1], &cache.positions);
        let (key, value) = (&cache.key, &cache.value);
        let inputs = AttentionInputs { query: &query, key, value, bias: bias.as_ref(), mask, scale };
        self.project_output(ops, x, &self.config.accumulator.attend(ops, &inputs))
    }

    /// The sum of all biases on scores: ALiBi, learned relative bias, and the mask of tokens between the sinks and the window.
    fn bias<O: Ops>(&self, ops: &O, queries: Range<usize>, keys: &CachePositions) -> Option<O::Tensor> {
        let bidirectional = self.visibility == Visibility::All;
        let alibi = self.alibi.then(|| alibi_bias(ops, self.config.heads, queries.clone(), keys.iter(), bidirectional));
        let relative = self.relative_bias.map(|weight| {
            let biases =
                ops.scale(&ops.reshape(&ops.parameter(weight), &[RELATIVE_BIAS_TOKENS, 1]), RELATIVE_BIAS_SCALE);
            let biases = ops.concat(&[biases, ops.zeros(&[1, 1])], 0);
            let row = |query: usize, key: usize| {
                query.checked_sub(key).map_or(RELATIVE_BIAS_TOKENS, |distance| distance.min(RELATIVE_BIAS_TOKENS))
            };
            let rows = queries.clone().flat_map(|query| keys.iter().map(move |key| row(query, key)));
            let rows: Vec<usize> = rows.collect();
            ops.reshape(&ops.gather_rows(&biases, &rows), &[1, 1, queries.len(), keys.len()])
        });
        let window_mask = match self.visibility {
            Visibility::Window { size, sinks } if sinks > 0 => {
                let masked = move |query: usize, key: usize| key >= sinks && key + size <= query;
                let pairs = queries.clone().flat_map(|query| keys.iter().map(move |key| (query, key)));
                let values = pairs.map(|(query, key)| if masked(query, key) { MASKED } else { 0.0 });
                let values: Vec<O::Scalar> = values.map(O::Scalar::from_f64).collect();
                Some(ops.constant(&[1, 1, queries.len(), keys.len()], &values))
            }
            _ => None,
        };
        [alibi, relative, window_mask].into_iter().flatten().reduce(|sum, term| ops.add(&sum, &term))
    }
}

/// Adds the weight of [`Positions::Relative`], which windowed attention does not have. Its name in checkpoints is `nearest`.
fn add_relative_bias<S: Scalar>(params: &mut ParamBuilder<'_, S>, visibility: Visibility) -> Option<Parameter> {
    let has_bias = params.settings.positions == Positions::Relative && !matches!(visibility, Visibility::Window { .. });
    has_bias.then(|| params.parameter_without_weight_decay("nearest", &[RELATIVE_BIAS_TOKENS], Init::Constant(0.0)))
}

/// Attends to the cache that an earlier layer shares; see [`State::shared`].
impl TokenMixer for QueryHeads {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let Some(SharedTensor::Cache(cache)) = state.and_then(|state| state.shared.as_ref()) else {
            panic!("the model passes the shared cache in the state");
        };
        let past_len = State::past_len(state);
        (self.attend(ops, x, past_len, cache), State::new(past_len + ops.shape(x)[1], []))
    }
}

impl MultiHeadAttention {
    /// The query and output projections.
    pub(super) fn query_heads(&self) -> &QueryHeads {
        &self.query_heads
    }

    /// Attention of a span of tokens. The first two tensors of the state hold keys and values.
    pub(super) fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (cache, mut next_state) = self.append_to_cache(ops, x, state);
        let out = self.query_heads.attend(ops, x, State::past_len(state), &cache);
        next_state.shared = Some(SharedTensor::Cache(cache));
        (out, next_state)
    }

    /// Appends the keys and values of a span: the cache that its queries attend to, and the state after the span.
    pub(super) fn append_to_cache<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (KvCache<O::Tensor>, State<O::Tensor>) {
        let past_len = State::past_len(state);
        let (key, value) = self.project_kv(ops, x, past_len);
        let (key, value) = (
            append_to_state_tensor(ops, state, 0, &key),
            value.map(|value| append_to_state_tensor(ops, state, 1, &value)),
        );
        let next_len = past_len + ops.shape(x)[1];
        let past_positions = self.cached_positions(past_len);
        let positions = CachePositions { recent: past_positions.recent.start..next_len, ..past_positions };
        let evict = |x: &O::Tensor| select_positions(ops, x, &positions, &self.cached_positions(next_len));
        let next_state = State::new(next_len, [evict(&key), value.as_ref().and_then(evict)]);
        let cache = match value {
            Some(value) => KvCache { key, value, positions },
            None => KvCache { key: self.apply_rope_to_cache(ops, &key, &positions), value: key, positions },
        };
        (cache, next_state)
    }

    /// Keys and values of a span whose first token is at position `past_len`, as they are cached; no values where keys serve as such.
    pub(super) fn project_kv<O: Ops>(&self, ops: &O, x: &O::Tensor, past_len: usize) -> (O::Tensor, Option<O::Tensor>) {
        let kv_heads = self.query_heads.config.kv_heads;
        let key = project(ops, &self.key, self.query_heads.options.key_norm.as_ref(), x, kv_heads);
        // A key that is also the value is rotated only after it is taken from the cache.
        let key = if self.value.is_some() { self.query_heads.apply_rope(ops, &key, past_len) } else { key };
        let round = |x: &O::Tensor| apply_rounding(ops, x, self.rounding);
        (round(&key), self.value.as_ref().map(|value| round(&value.apply_and_split_heads(ops, x, kv_heads))))
    }

    /// The positions in the cache after `past_len` tokens.
    fn cached_positions(&self, past_len: usize) -> CachePositions {
        match self.query_heads.visibility {
            Visibility::All | Visibility::Past => CachePositions { sinks: 0, recent: 0..past_len },
            Visibility::Window { size, sinks } => CachePositions::new(past_len, sinks, size - 1),
        }
    }

    /// Rotates cached keys, each by its own position.
    fn apply_rope_to_cache<O: Ops>(&self, ops: &O, x: &O::Tensor, positions: &CachePositions) -> O::Tensor {
        let (sinks, recent_start) = (positions.sinks, positions.recent.start);
        if sinks == 0 || self.query_heads.rotation.is_none() {
            return self.query_heads.apply_rope(ops, x, recent_start);
        }
        let rotate = |range: Range<usize>, start| self.query_heads.apply_rope(ops, &ops.slice(x, 1, range), start);
        ops.concat(&[rotate(0..sinks, 0), rotate(sinks..positions.len(), recent_start)], 1)
    }
}

/// The rows of `x`, which are at `positions`, that are also at `remaining`; `None` if there are none.
fn select_positions<O: Ops>(
    ops: &O,
    x: &O::Tensor,
    positions: &CachePositions,
    remaining: &CachePositions,
) -> Option<O::Tensor> {
    let total = positions.len();
    match (remaining.sinks, remaining.recent.len()) {
        (0, 0) => None,
        (sinks, recent) if sinks + recent == total => Some(x.clone()),
        (0, recent) => Some(ops.slice(x, 1, total - recent..total)),
        (sinks, 0) => Some(ops.slice(x, 1, 0..sinks)),
        (sinks, recent) => Some(ops.concat(&[ops.slice(x, 1, 0..sinks), ops.slice(x, 1, total - recent..total)], 1)),
    }
}
