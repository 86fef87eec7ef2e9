//! What softmax attention and its window share: projections, positions, the cache, one read.
//!
//! [`MultiHeadAttention`] makes queries, keys and values of tokens. A [`KvCache`] is the keys and values that queries read, with the places in the
//! text they stand for. A [`QueryHeads`] asks and reads; alone it is the mixer of a layer that has no keys and values of its own and
//! reads those of an earlier layer.

use std::ops::Range;

use rung_engine::{AccumulatorRounding, AttentionInputs, AttentionMask, Ops, Parameter, Role, Rounding, Scalar};
use rung_theory::stack::Mixer;

use super::head_options::{HeadOptions, project};
use super::{SharedTensor, State, TokenMixer, grown, number, shared_evenly};
use crate::error::ModelError;
use crate::param_builder::{Init, ParamBuilder};
use crate::parts::Linear;
use crate::position::{Positions, Rotation, alibi};
use crate::precision::rounded;

/// Stands for minus infinity: its exponential is zero, and no arithmetic on it makes a NaN.
pub(super) const MASKED: f64 = -1e30;

/// Sizes of the heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadsConfig {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Width of a key head.
    pub key: usize,
    /// Width of a value head.
    pub value: usize,
    /// Whether one vector, kept as it was before any turning, serves as key and value.
    pub tied: bool,
    /// How sums are taken.
    pub accumulator: Accumulator,
}

/// How attention takes its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulator {
    /// In whatever order is fast, in the machine's own numbers.
    Fast,
    /// From the first key to the last, in the machine's own numbers.
    Ordered,
    /// From the first key to the last, in numbers of so many bits.
    Bits(u32),
}

impl Accumulator {
    /// Channels of the running mean lie between minus this and this.
    const MEAN_RANGE: f64 = 8.0;
    /// So does the running log of the sum of weights: scores of sharp look-ups grow in training.
    const LOG_RANGE: f64 = 128.0;
    /// Bits of the machine's own numbers.
    const MACHINE: u64 = 32;

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        match mixer.number("accumulator").unwrap_or(0) {
            0 => Ok(Self::Fast),
            Self::MACHINE => Ok(Self::Ordered),
            bits if bits <= Rounding::MOST_BITS.into() => Ok(Self::Bits(bits as u32)),
            found => {
                let expected = format!("1 to {}, {} or 0 for none", Rounding::MOST_BITS, Self::MACHINE);
                Err(ModelError::Shape { place: mixer.name(), what: "bits of an accumulator", found, expected })
            }
        }
    }

    /// Attention with sums taken this way. Gradients are those of exact sums.
    fn read<O: Ops>(self, ops: &O, attention: &AttentionInputs<'_, O::Tensor>) -> O::Tensor {
        let fast = ops.attention(attention);
        let rounding = match self {
            Self::Fast => return fast,
            Self::Ordered => None,
            Self::Bits(bits) => Some(AccumulatorRounding {
                mean: Rounding { bits, range: Self::MEAN_RANGE },
                log_sum: Rounding { bits, range: Self::LOG_RANGE },
            }),
        };
        // The difference is zero, so that no more than the accumulators' bits get through.
        let none = ops.sub(&fast, &ops.detach(&fast));
        ops.add(&ops.left_to_right_attention(attention, rounding), &none)
    }
}

/// Which tokens a query reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Every token.
    All,
    /// Itself and those before.
    Past,
    /// Itself, those just before, and the first of the text.
    Window {
        /// Tokens in the window, the query's own included.
        size: usize,
        /// First tokens that are always read.
        sinks: usize,
    },
}

/// The positions of cached tokens: some of the first, then a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachePositions {
    /// Tokens from the start of the text.
    pub first: usize,
    /// The range after them.
    pub rest: Range<usize>,
}

impl CachePositions {
    /// The tokens that remain of a text of `seen` if one keeps the first `sinks` and the last `recent`.
    pub fn kept(seen: usize, sinks: usize, recent: usize) -> Self {
        let first = sinks.min(seen);
        Self { first, rest: seen.saturating_sub(recent).max(first)..seen }
    }

    fn iter(&self) -> impl Iterator<Item = usize> + Clone {
        (0..self.first).chain(self.rest.clone())
    }

    fn len(&self) -> usize {
        self.first + self.rest.len()
    }
}

/// Keys and values as queries read them: `[batch, tokens, kv heads, width]`.
#[derive(Clone, Debug)]
pub struct KvCache<T> {
    /// Turned by position, if the model turns them.
    pub key: T,
    /// The values.
    pub value: T,
    /// The tokens they are of.
    pub places: CachePositions,
}

/// Asks and reads.
pub struct QueryHeads {
    config: HeadsConfig,
    reach: Visibility,
    query: Linear,
    output: Linear,
    rotation: Option<Rotation>,
    alibi: bool,
    /// What is added to the scores of the nearest tokens, over [`NEAREST_SCALE`].
    nearest: Option<Parameter>,
    options: HeadOptions,
}

/// Tokens with a learned number on their scores, the query's own first.
const NEAREST: usize = 3;

/// Those numbers, over their weights: an optimiser's steps are small beside the scores of a sharp look-up.
const NEAREST_SCALE: f64 = 16.0;

/// Asks and reads, with keys and values of its own.
pub struct MultiHeadAttention {
    reader: QueryHeads,
    key: Linear,
    value: Option<Linear>,
    rounding: Option<Rounding>,
}

impl HeadsConfig {
    pub(crate) fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, kv_heads, key, value] = ["heads", "kv", "key", "value"].map(|option| number(mixer, option));
        shared_evenly(mixer.name(), "key/value heads", heads, kv_heads)?;
        let tied = mixer.flag("tied") == Some(true);
        if tied && key != value {
            let expected = format!("{key}, the width of the keys that serve as values");
            return Err(ModelError::Shape { place: mixer.name(), what: "value width", found: value as u64, expected });
        }
        Ok(Self { heads, kv_heads, key, value, tied, accumulator: Accumulator::resolve(mixer)? })
    }

    /// Adds the weights. `rounding` is that of the keys and values that are kept.
    pub(super) fn init<S: Scalar>(
        self,
        name: &'static str,
        params: &mut ParamBuilder<'_, S>,
        reach: Visibility,
        rounding: Option<Rounding>,
    ) -> Result<MultiHeadAttention, ModelError> {
        let width = params.settings.width;
        let rotation = self.rotation(name, params.settings.positions)?;
        let query = params.role(Role::Query).linear("q_proj", width, self.heads * self.key);
        let key = params.role(Role::Key).linear("k_proj", width, self.kv_heads * self.key);
        params.tie(&query, &key, self.heads, self.kv_heads);
        if !matches!(reach, Visibility::Window { .. }) {
            params.oppose(&key);
        }
        let value = (!self.tied).then(|| params.role(Role::Value).linear("v_proj", width, self.kv_heads * self.value));
        let output = params.role(Role::Output).linear("o_proj", self.heads * self.value, width);
        let alibi = params.settings.positions == Positions::Alibi;
        let (nearest, options) = (nearest(params, reach), HeadOptions::default());
        let reader = QueryHeads { config: self, reach, query, output, rotation, alibi, nearest, options };
        Ok(MultiHeadAttention { reader, key, value, rounding })
    }

    /// Adds the weights of a layer that reads another's keys and values.
    pub(super) fn init_reader<S: Scalar>(
        self,
        name: &'static str,
        params: &mut ParamBuilder<'_, S>,
        reach: Visibility,
    ) -> Result<QueryHeads, ModelError> {
        let width = params.settings.width;
        let rotation = self.rotation(name, params.settings.positions)?;
        let query = params.role(Role::Query).linear("q_proj", width, self.heads * self.key);
        let output = params.role(Role::Output).linear("o_proj", self.heads * self.value, width);
        let alibi = params.settings.positions == Positions::Alibi;
        let (nearest, options) = (nearest(params, reach), HeadOptions::default());
        Ok(QueryHeads { config: self, reach, query, output, rotation, alibi, nearest, options })
    }

    /// Heads whose weights were read from a checkpoint: queries, keys, values (none where keys serve as such) and the output.
    pub(crate) fn assemble(
        self,
        reach: Visibility,
        [query, key, output]: [Linear; 3],
        value: Option<Linear>,
        rotation: Option<Rotation>,
        options: HeadOptions,
    ) -> MultiHeadAttention {
        let reader = QueryHeads { config: self, reach, query, output, rotation, alibi: false, nearest: None, options };
        MultiHeadAttention { reader, key, value, rounding: None }
    }

    /// Factor on scores.
    pub(super) fn scale(self) -> f64 {
        (self.key as f64).powf(-0.5)
    }

    fn rotation(self, name: &'static str, positions: Positions) -> Result<Option<Rotation>, ModelError> {
        Rotation::of_keys(name, "key width", self.key, positions)
    }
}

impl QueryHeads {
    fn turned<O: Ops>(&self, ops: &O, x: &O::Tensor, seen: usize) -> O::Tensor {
        self.rotation.as_ref().map_or_else(|| x.clone(), |turn| turn.apply(ops, x, seen))
    }

    /// The queries of tokens that come after `seen` others.
    pub(super) fn project_query<O: Ops>(&self, ops: &O, x: &O::Tensor, seen: usize) -> O::Tensor {
        let query = project(ops, &self.query, self.options.query_norm.as_ref(), x, self.config.heads);
        self.turned(ops, &query, seen)
    }

    /// What the heads of tokens `x` read, put together.
    pub(super) fn project_output<O: Ops>(&self, ops: &O, x: &O::Tensor, read: &O::Tensor) -> O::Tensor {
        self.output.apply(ops, &self.options.gated(ops, x, read))
    }

    /// Attention of new tokens over a cache that ends with them, and the output projection.
    fn read<O: Ops>(&self, ops: &O, x: &O::Tensor, seen: usize, cache: &KvCache<O::Tensor>) -> O::Tensor {
        let query = self.project_query(ops, x, seen);
        let mask = match self.reach {
            Visibility::All => AttentionMask::None,
            Visibility::Window { size, sinks: 0 } => AttentionMask::Window(size),
            Visibility::Past | Visibility::Window { .. } => AttentionMask::Causal,
        };
        let scale = self.options.scale.unwrap_or_else(|| self.config.scale());
        if !self.options.plain_scores() {
            let read = self.options.read(ops, self.config, &query, cache, mask, scale);
            return self.project_output(ops, x, &read);
        }
        let bias = self.bias(ops, seen..seen + ops.shape(x)[1], &cache.places);
        let (key, value) = (&cache.key, &cache.value);
        let attention = AttentionInputs { query: &query, key, value, bias: bias.as_ref(), mask, scale };
        self.project_output(ops, x, &self.config.accumulator.read(ops, &attention))
    }

    /// Penalties on distance, and on what lies between the sinks and the window.
    fn bias<O: Ops>(&self, ops: &O, readers: Range<usize>, places: &CachePositions) -> Option<O::Tensor> {
        let bidirectional = self.reach == Visibility::All;
        let far = self.alibi.then(|| alibi(ops, self.config.heads, readers.clone(), places.iter(), bidirectional));
        let near = self.nearest.map(|numbers| {
            let numbers = ops.scale(&ops.reshape(&ops.parameter(numbers), &[NEAREST, 1]), NEAREST_SCALE);
            let numbers = ops.concat(&[numbers, ops.zeros(&[1, 1])], 0);
            let distance = |reader: usize, place: usize| reader.checked_sub(place).map_or(NEAREST, |d| d.min(NEAREST));
            let cells = readers.clone().flat_map(|reader| places.iter().map(move |place| distance(reader, place)));
            let rows: Vec<usize> = cells.collect();
            ops.reshape(&ops.gather_rows(&numbers, &rows), &[1, 1, readers.len(), places.len()])
        });
        let gone = match self.reach {
            Visibility::Window { size, sinks } if sinks > 0 => {
                let hidden = move |reader: usize, place: usize| place >= sinks && place + size <= reader;
                let cells = readers.clone().flat_map(|reader| places.iter().map(move |place| (reader, place)));
                let values = cells.map(|(reader, place)| if hidden(reader, place) { MASKED } else { 0.0 });
                let values: Vec<O::Scalar> = values.map(O::Scalar::from_f64).collect();
                Some(ops.constant(&[1, 1, readers.len(), places.len()], &values))
            }
            _ => None,
        };
        [far, near, gone].into_iter().flatten().reduce(|sum, term| ops.add(&sum, &term))
    }
}

/// The weight behind [`Positions::Relative`].
fn nearest<S: Scalar>(params: &mut ParamBuilder<'_, S>, reach: Visibility) -> Option<Parameter> {
    let wanted = params.settings.positions == Positions::Relative && !matches!(reach, Visibility::Window { .. });
    wanted.then(|| params.weight_without_decay("nearest", &[NEAREST], Init::Constant(0.0)))
}

/// Reads what an earlier layer shares; see [`State::shared`].
impl TokenMixer for QueryHeads {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let Some(SharedTensor::Cache(cache)) = state.and_then(|state| state.shared.as_ref()) else {
            panic!("a layer that reads another's cache is given it by the model");
        };
        let seen = State::seen(state);
        (self.read(ops, x, seen, cache), State::new(seen + ops.shape(x)[1], []))
    }
}

impl MultiHeadAttention {
    /// The part that asks and reads.
    pub(super) fn reader(&self) -> &QueryHeads {
        &self.reader
    }

    /// Attention of a span of tokens, from and to a state whose first two slots hold keys and values.
    pub(super) fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (cache, mut next) = self.append_to_cache(ops, x, state);
        let out = self.reader.read(ops, x, State::seen(state), &cache);
        next.shared = Some(SharedTensor::Cache(cache));
        (out, next)
    }

    /// Keys and values alone: what the queries of these tokens read, and what the next tokens find.
    pub(super) fn append_to_cache<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (KvCache<O::Tensor>, State<O::Tensor>) {
        let seen = State::seen(state);
        let (key, value) = self.made(ops, x, seen);
        let (key, value) = (grown(ops, state, 0, &key), value.map(|value| grown(ops, state, 1, &value)));
        let now = seen + ops.shape(x)[1];
        let before = self.places(seen);
        let places = CachePositions { rest: before.rest.start..now, ..before };
        let kept = |x: &O::Tensor| kept_of(ops, x, &places, &self.places(now));
        let next = State::new(now, [kept(&key), value.as_ref().and_then(kept)]);
        let cache = match value {
            Some(value) => KvCache { key, value, places },
            None => KvCache { key: self.turned_in_place(ops, &key, &places), value: key, places },
        };
        (cache, next)
    }

    /// Keys and values of tokens after `seen` others, as they are kept; no values where keys serve as such.
    pub(super) fn made<O: Ops>(&self, ops: &O, x: &O::Tensor, seen: usize) -> (O::Tensor, Option<O::Tensor>) {
        let kv_heads = self.reader.config.kv_heads;
        let key = project(ops, &self.key, self.reader.options.key_norm.as_ref(), x, kv_heads);
        // One that is tied is kept unturned, since it is a value too.
        let key = if self.value.is_some() { self.reader.turned(ops, &key, seen) } else { key };
        let kept = |x: &O::Tensor| rounded(ops, x, self.rounding);
        (kept(&key), self.value.as_ref().map(|value| kept(&value.heads(ops, x, kv_heads))))
    }

    /// What is kept after `seen` tokens.
    fn places(&self, seen: usize) -> CachePositions {
        match self.reader.reach {
            Visibility::All | Visibility::Past => CachePositions { first: 0, rest: 0..seen },
            Visibility::Window { size, sinks } => CachePositions::kept(seen, sinks, size - 1),
        }
    }

    fn turned_in_place<O: Ops>(&self, ops: &O, x: &O::Tensor, places: &CachePositions) -> O::Tensor {
        let (first, last) = (places.first, places.len());
        if first == 0 || self.reader.rotation.is_none() {
            return self.reader.turned(ops, x, places.rest.start);
        }
        let turned = |range: Range<usize>, seen| self.reader.turned(ops, &ops.slice(x, 1, range), seen);
        ops.concat(&[turned(0..first, 0), turned(first..last, places.rest.start)], 1)
    }
}

/// The tokens of `wanted`, out of those of `places`; nothing if there are none.
fn kept_of<O: Ops>(ops: &O, x: &O::Tensor, places: &CachePositions, wanted: &CachePositions) -> Option<O::Tensor> {
    let (total, recent) = (places.len(), wanted.rest.len());
    match (wanted.first, recent) {
        (0, 0) => None,
        (first, recent) if first + recent == total => Some(x.clone()),
        (0, recent) => Some(ops.slice(x, 1, total - recent..total)),
        (first, 0) => Some(ops.slice(x, 1, 0..first)),
        (first, recent) => Some(ops.concat(&[ops.slice(x, 1, 0..first), ops.slice(x, 1, total - recent..total)], 1)),
    }
}
