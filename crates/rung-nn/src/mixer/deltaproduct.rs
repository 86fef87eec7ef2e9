//! DeltaProduct: several delta steps per token, with or without a decay.
//!
//! Definition, state and sources: `rung explain deltaproduct`.
//!
//! # Computed as
//! The gated delta rule on a text `steps` times as long, in chunks: the decay stands on the first step of a token, the
//! query on its last, and only the outputs of last steps are kept.

use rung_engine::{Decay, Ops, Recurrence, Role, Scalar};
use rung_theory::stack::Mixer;

use super::deltanet::{Streams, strength};
use super::gdn::DecayProjection;
use super::{MixerConfig, State, TokenMixer, causal_only, flag, number, shared_evenly};
use crate::error::ModelError;
use crate::parts::{NormGain, Linear, LinearRecurrence, join};
use crate::param_builder::ParamBuilder;

/// Sizes of DeltaProduct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaProductConfig {
    /// Query and key heads.
    pub heads: usize,
    /// Value heads, each with its own state.
    pub value_heads: usize,
    /// Width of a key head.
    pub key: usize,
    /// Width of a value head.
    pub value: usize,
    /// Taps of the short convolution; 0 for none.
    pub taps: usize,
    /// Delta steps per token.
    pub steps: usize,
    /// Whether the state decays.
    pub gated: bool,
    /// Whether beta reaches 2.
    pub negative: bool,
}

/// DeltaProduct's mixer.
pub struct DeltaProduct {
    config: DeltaProductConfig,
    streams: Streams,
    beta: Linear,
    forget: Option<DecayProjection>,
    gate: Linear,
    norm: NormGain,
    output: Linear,
    recurrence: LinearRecurrence,
}

impl MixerConfig for DeltaProductConfig {
    type Mixer = DeltaProduct;
    const NAME: &'static str = "deltaproduct";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, value_heads] = ["heads", "value-heads"].map(|option| number(mixer, option));
        shared_evenly(Self::NAME, "query and key heads", value_heads, heads)?;
        let [key, value, taps, steps] = ["key", "value", "conv", "steps"].map(|option| number(mixer, option));
        // Of the words of these options, "yes" is the first.
        let [gated, negative] = ["gate", "negative"].map(|option| flag(mixer, option));
        Ok(Self { heads, value_heads, key, value, taps, steps, gated, negative })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<DeltaProduct, ModelError> {
        causal_only(Self::NAME, params)?;
        let Self { heads, value_heads, key, value, taps, steps, .. } = *self;
        let width = params.settings.width;
        Ok(DeltaProduct {
            config: *self,
            streams: Streams::init_repeated(params, taps, (heads, key), (value_heads, value), steps),
            beta: params.linear("b_proj", width, steps * value_heads),
            forget: self.gated.then(|| DecayProjection::init(params, value_heads)),
            gate: params.role(Role::Gate).linear("g_proj", width, value_heads * value),
            norm: params.gain("o_norm", value),
            output: params.role(Role::Output).linear("o_proj", value_heads * value, width),
            recurrence: params.recurrence(),
        })
    }
}

impl DeltaProduct {
    /// The read of every head before norm and gate, and the state.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let DeltaProductConfig { heads, value_heads, key: key_width, value: value_width, steps, .. } = self.config;
        let (batch, time) = (ops.shape(x)[0], ops.shape(x)[1]);
        let ([query, key, value], [first, second, third]) = self.streams.apply(ops, x, state);
        let beta = strength(ops, &self.beta, x, self.config.negative);
        let decay = self.forget.as_ref().map(|forget| forget.apply(ops, x));
        // A token's steps stand side by side; so they follow each other when time is cut finer.
        let finer = |x: &O::Tensor, rest: &[usize]| ops.reshape(x, &[&[batch, time * steps], rest].concat());
        let among = |x: &O::Tensor, place: usize, rest: &[usize]| {
            let row = |count: usize| [&[batch, time, count], rest].concat();
            let nothing = |count: usize| (count > 0).then(|| ops.zeros(&row(count)));
            let parts = [nothing(place), Some(ops.reshape(x, &row(1))), nothing(steps - 1 - place)];
            finer(&ops.concat(&parts.into_iter().flatten().collect::<Vec<_>>(), 2), rest)
        };
        let query = among(&query, steps - 1, &[heads, key_width]);
        let decay = decay.map(|decay| among(&decay, 0, &[value_heads]));
        let (out, matrix) = ops.recurrence(&Recurrence {
            query: &query,
            key: &finer(&key, &[heads, key_width]),
            value: &finer(&value, &[value_heads, value_width]),
            decay: decay.as_ref().map_or(Decay::None, Decay::Scalar),
            beta: Some(&finer(&beta, &[value_heads])),
            state: State::part(state, 0),
            chunk: self.recurrence.chunk,
            rounding: self.recurrence.rounding,
        });
        let out = ops.reshape(&out, &[batch, time, steps, value_heads * value_width]);
        let out = ops.reshape(&ops.slice(&out, 2, steps - 1..steps), &[batch, time, value_heads, value_width]);
        (out, State::new(State::seen(state) + time, [Some(matrix), first, second, third]))
    }
}

impl TokenMixer for DeltaProduct {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.read(ops, x, state);
        let out = self.norm.norm(ops, &out);
        let gate = self.gate.heads(ops, x, self.config.value_heads);
        (self.output.apply(ops, &join(ops, &ops.silu_gate(&gate, &out))), state)
    }
}
