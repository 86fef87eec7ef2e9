//! DeltaNet: linear attention that corrects what it stored instead of adding to it.
//!
//! Definition, state and sources: `rung explain deltanet`.
//!
//! # Computed as
//! `tril(Q K') (I + stril(Diag(beta) K K'))^-1 Diag(beta) V`, in chunks.

use rung_engine::{Decay, Ops, Role, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, causal_only, flag, number};
use crate::error::ModelError;
use crate::parts::{Convolution, NormGain, Linear, LinearRecurrence, Stream, join, scaled};
use crate::param_builder::ParamBuilder;

/// Sizes of DeltaNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltanetConfig {
    /// Heads.
    pub heads: usize,
    /// Width of a key head.
    pub key: usize,
    /// Width of a value head.
    pub value: usize,
    /// Taps of the short convolution; 0 for none.
    pub taps: usize,
    /// Whether beta reaches 2.
    pub negative: bool,
}

/// DeltaNet's mixer.
pub struct Deltanet {
    config: DeltanetConfig,
    streams: Streams,
    beta: Linear,
    norm: NormGain,
    output: Linear,
    recurrence: LinearRecurrence,
}

/// Queries, keys and values of the delta family.
pub(super) struct Streams {
    query: Stream,
    key: Stream,
    value: Stream,
}

impl Streams {
    /// Epsilon under the root of a unit vector's length.
    const EPSILON: f64 = 1e-6;

    pub(super) fn init<S: Scalar>(
        params: &mut ParamBuilder<'_, S>,
        taps: usize,
        (heads, key): (usize, usize),
        (value_heads, value): (usize, usize),
    ) -> Self {
        Self::init_repeated(params, taps, (heads, key), (value_heads, value), 1)
    }

    /// The same with `steps` keys and values for every query. The heads of a step stand together.
    pub(super) fn init_repeated<S: Scalar>(
        params: &mut ParamBuilder<'_, S>,
        taps: usize,
        (heads, key): (usize, usize),
        (value_heads, value): (usize, usize),
        steps: usize,
    ) -> Self {
        let width = params.settings.width;
        let mut stream = |role: Role, name: &str, heads: usize, head: usize| Stream {
            projection: params.role(role).linear(&format!("{name}_proj"), width, heads * head),
            convolution: params.convolution(&format!("{name}_conv1d"), heads * head, taps),
            heads,
        };
        let streams = Self {
            query: stream(Role::Query, "q", heads, key),
            key: stream(Role::Key, "k", steps * heads, key),
            value: stream(Role::Value, "v", steps * value_heads, value),
        };
        params.tie(&streams.query.projection, &streams.key.projection, heads, heads);
        streams
    }

    /// Streams whose weights were read from a checkpoint, with the heads of keys and of values.
    pub(super) fn assemble(
        [query, key, value]: [Linear; 3],
        [query_taps, key_taps, value_taps]: [Convolution; 3],
        [heads, value_heads]: [usize; 2],
    ) -> Self {
        let stream = |projection, taps, heads| Stream { projection, convolution: Some(taps), heads };
        Self {
            query: stream(query, query_taps, heads),
            key: stream(key, key_taps, heads),
            value: stream(value, value_taps, value_heads),
        }
    }

    /// Unit queries over the root of their width, unit keys, values; then the states of the convolutions, which live in slots
    /// 1 to 3 of the mixer's state.
    pub(super) fn apply<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> ([O::Tensor; 3], [Option<O::Tensor>; 3]) {
        let (query, query_tail) = self.query.apply(ops, x, State::part(state, 1));
        let (key, key_tail) = self.key.apply(ops, x, State::part(state, 2));
        let (value, value_tail) = self.value.apply(ops, x, State::part(state, 3));
        let query = scaled(ops, &ops.l2_norm(&query, Self::EPSILON));
        ([query, ops.l2_norm(&key, Self::EPSILON), value], [query_tail, key_tail, value_tail])
    }
}

/// `sigmoid(..)` per head, doubled where negative eigenvalues are allowed.
pub(super) fn strength<O: Ops>(ops: &O, projection: &Linear, x: &O::Tensor, negative: bool) -> O::Tensor {
    let beta = ops.sigmoid(&projection.apply(ops, x));
    if negative { ops.scale(&beta, 2.0) } else { beta }
}

impl MixerConfig for DeltanetConfig {
    type Mixer = Deltanet;
    const NAME: &'static str = "deltanet";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, key, value, taps] = ["heads", "key", "value", "conv"].map(|option| number(mixer, option));
        Ok(Self { heads, key, value, taps, negative: flag(mixer, "negative") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Deltanet, ModelError> {
        causal_only(Self::NAME, params)?;
        let Self { heads, key, value, taps, .. } = *self;
        let width = params.settings.width;
        Ok(Deltanet {
            config: *self,
            streams: Streams::init(params, taps, (heads, key), (heads, value)),
            beta: params.linear("b_proj", width, heads),
            norm: params.gain("o_norm", value),
            output: params.role(Role::Output).linear("o_proj", heads * value, width),
            recurrence: params.recurrence(),
        })
    }
}

impl Deltanet {
    /// The read of every head before the norm, and the state.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let ([query, key, value], [first, second, third]) = self.streams.apply(ops, x, state);
        let beta = strength(ops, &self.beta, x, self.config.negative);
        let (out, matrix) = self.recurrence.run(ops, [&query, &key, &value], Decay::None, Some(&beta), state);
        (out, State::new(State::seen(state) + ops.shape(x)[1], [Some(matrix), first, second, third]))
    }
}

impl TokenMixer for Deltanet {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.read(ops, x, state);
        (self.output.apply(ops, &join(ops, &self.norm.norm(ops, &out))), state)
    }
}
