//! InLine attention: linear attention normalised by subtraction, with a local term.
//!
//! Definition, state and sources: `rung explain inline`.
//!
//! # Computed as
//! Two sums in chunks. The mean is a row of S under a key of 1, so that one read with the query `[q, 1 - q.z / n] / n`
//! gives both terms. A bidirectional model sums over all tokens, puts the token in the middle of the local term, and
//! takes the taps from the mean of all tokens, as the paper has it.

use rung_engine::{Decay, Ops, Parameter, Recurrence, Role, Scalar};
use rung_theory::stack::Mixer;

use super::linear::sum_of_all;
use super::{MixerConfig, State, TokenMixer, number, shared_evenly};
use crate::error::ModelError;
use crate::parts::{Linear, LinearRecurrence, Projections, by_head, join, scaled, split};
use crate::precision::rounded;
use crate::param_builder::{Init, ParamBuilder};

/// Sizes of InLine attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineConfig {
    /// Heads.
    pub heads: usize,
    /// Width of a key head.
    pub key: usize,
    /// Width of a value head.
    pub value: usize,
    /// Taps of the local term.
    pub local: usize,
}

/// InLine attention.
pub struct Inline {
    config: InlineConfig,
    projections: Projections,
    /// To a head's width, then to a tap for every channel and place of the head.
    taps: [HeadLinear; 2],
    output: Linear,
    recurrence: LinearRecurrence,
    causal: bool,
}

/// A projection of every head's channels by themselves: `Conv1d` over one place with as many groups as heads.
struct HeadLinear {
    /// `[heads * out, in, 1]`.
    weight: Parameter,
    /// `[heads * out]`.
    bias: Parameter,
    heads: usize,
}

impl HeadLinear {
    fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>, name: &str, heads: usize, inputs: usize, outputs: usize) -> Self {
        let init = Init::Normal(params.settings.deviation);
        let weight = params.weight(&format!("{name}.weight"), &[heads * outputs, inputs, 1], init);
        let bias = params.weight_without_decay(&format!("{name}.bias"), &[heads * outputs], Init::Constant(0.0));
        Self { weight, bias, heads }
    }

    /// `[batch, time, heads, in]` to `[batch, time, heads, out]`.
    fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let weight = ops.parameter(self.weight);
        let (outputs, inputs) = (ops.shape(&weight)[0] / self.heads, ops.shape(&weight)[1]);
        let out = by_head(ops, x, &ops.reshape(&weight, &[self.heads, outputs, inputs]), true);
        ops.add(&out, &ops.reshape(&ops.parameter(self.bias), &[self.heads, outputs]))
    }
}

impl MixerConfig for InlineConfig {
    type Mixer = Inline;
    const NAME: &'static str = "inline";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, key, value, local] = ["heads", "key", "value", "local"].map(|option| number(mixer, option));
        Ok(Self { heads, key, value, local })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Inline, ModelError> {
        let Self { heads, key, value, local } = *self;
        let width = params.settings.width;
        shared_evenly(Self::NAME, "heads", width, heads)?;
        let init = Init::Normal(params.settings.deviation);
        Ok(Inline {
            config: *self,
            projections: Projections::init(params, [heads, key, value], |_| init),
            taps: [
                HeadLinear::init(params, "residual.0", heads, width / heads, value),
                HeadLinear::init(params, "residual.2", heads, value, value * local),
            ],
            output: params.role(Role::Output).linear("o_proj", heads * value, width),
            recurrence: params.recurrence(),
            causal: params.settings.causal,
        })
    }
}

impl Inline {
    /// The read of every head with its local term, before the projection, and the state.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (batch, time, heads) = (ops.shape(x)[0], ops.shape(x)[1], self.config.heads);
        let seen = State::seen(state);
        let share = |token: usize| 1.0 / if self.causal { seen + token + 1 } else { time } as f64;
        let shares: Vec<O::Scalar> = (0..time).map(|token| O::Scalar::from_f64(share(token))).collect();
        let share = ops.constant(&[time, 1, 1], &shares);
        let [query, key, value] = self.projections.apply(ops, x);
        let query = ops.mul(&scaled(ops, &query), &share);
        let one = ops.full(&[batch, time, heads, 1], 1.0);
        let (agreed, keys) = self.sum(ops, [&query, &key, &one], State::part(state, 0));
        let rest = ops.mul(&ops.affine(&agreed, -1.0, 1.0), &share);
        let (query, key) = (ops.concat(&[query, rest], 3), ops.concat(&[key, one], 3));
        let (out, values) = self.sum(ops, [&query, &key, &value], State::part(state, 1));
        let (near, tail) = self.near(ops, x, &join(ops, &value), State::part(state, 2));
        let out = ops.add(&out, &split(ops, &near, heads));
        (out, State::new(seen + time, [Some(keys), Some(values), tail]))
    }

    /// The sum of values that a query reads, and the matrix that holds it.
    fn sum<O: Ops>(
        &self,
        ops: &O,
        [query, key, value]: [&O::Tensor; 3],
        state: Option<&O::Tensor>,
    ) -> (O::Tensor, O::Tensor) {
        let LinearRecurrence { chunk, rounding } = self.recurrence;
        if self.causal {
            let decay = Decay::None;
            return ops.recurrence(&Recurrence { query, key, value, decay, beta: None, state, chunk, rounding });
        }
        sum_of_all(ops, [query, key, value], self.recurrence)
    }

    /// The local term, and the values that the next call needs.
    fn near<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        value: &O::Tensor,
        state: Option<&O::Tensor>,
    ) -> (O::Tensor, Option<O::Tensor>) {
        let (time, local) = (ops.shape(x)[1], self.config.local);
        let [batch, _, channels] = ops.shape(value)[..] else { panic!("channels of {}", ops.shape(value)) };
        let source = if self.causal { x.clone() } else { ops.mean(x, 1) };
        let taps = self.taps[0].apply(ops, &split(ops, &source, self.config.heads));
        let taps = self.taps[1].apply(ops, &ops.gelu_exact(&taps));
        let tokens = ops.shape(&source)[1];
        let taps = ops.reshape(&taps, &[batch, tokens, channels, local]);
        let mut value = rounded(ops, value, self.recurrence.rounding);
        // Those after a token are reached by looking back from as many places later.
        let ahead = if self.causal { 0 } else { local - 1 - local / 2 };
        if ahead > 0 {
            value = ops.concat(&[value, ops.zeros(&[batch, ahead, channels])], 1);
        }
        let (mut sum, mut tail) = (None, None);
        for place in 0..local {
            let chosen: Vec<O::Scalar> =
                (0..channels * local).map(|cell| O::Scalar::from_f64(f64::from(u8::from(cell % local == place)))).collect();
            let filters = ops.constant(&[channels, local], &chosen);
            let (moved, next) = ops.short_convolution(&value, &filters, None, state);
            let tap = ops.reshape(&ops.slice(&taps, 3, place..place + 1), &[batch, tokens, channels]);
            let term = ops.mul(&ops.slice(&moved, 1, ahead..ahead + time), &tap);
            sum = Some(sum.map_or(term.clone(), |sum| ops.add(&sum, &term)));
            tail = (local > 1).then_some(next);
        }
        (sum.expect("at least one tap"), tail)
    }
}

impl TokenMixer for Inline {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.read(ops, x, state);
        (self.output.apply(ops, &join(ops, &out)), state)
    }
}
