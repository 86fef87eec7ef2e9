//! RG-LRU: a gated linear recurrence on vectors, as in Griffin and RecurrentGemma.
//!
//! Definition, state and sources: `rung explain rglru`.
//!
//! # Computed as
//! Per channel a recurrence with a state of one number and a scalar decay, in short chunks.

use rung_engine::{Decay, Ops, Parameter, Role, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, causal_only, number, shared_evenly};
use crate::error::ModelError;
use crate::parts::{Convolution, Linear, LinearRecurrence, by_head, join, split};
use crate::param_builder::{Init, ParamBuilder};

/// Sizes of an RG-LRU block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RgLruConfig {
    /// Channels of the recurrence.
    pub inner: usize,
    /// Groups of channels whose gates see each other.
    pub heads: usize,
    /// Taps of the convolution.
    pub taps: usize,
}

/// An RG-LRU with the projections, the convolution and the gate around it.
pub struct RgLru {
    config: RgLruConfig,
    gate: Linear,
    input: Linear,
    convolution: Convolution,
    /// How much of the token is written.
    input_gate: HeadGate,
    /// How fast a channel forgets, between not at all and its own fastest.
    recurrence_gate: HeadGate,
    rate: Parameter,
    output: Linear,
    recurrence: LinearRecurrence,
}

/// A gate of every head's channels by themselves.
struct HeadGate {
    /// `[heads, in, out]`.
    weight: Parameter,
    /// `[heads, out]`.
    bias: Parameter,
}

/// The weights of a mixer that were read from a checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct RgLruParts {
    pub(crate) gate: Linear,
    pub(crate) input: Linear,
    /// Weight and bias.
    pub(crate) convolution: (Parameter, Option<Parameter>),
    /// Weight and bias of the gate on what enters.
    pub(crate) entry: (Parameter, Parameter),
    /// Weight and bias of the gate on what is forgotten.
    pub(crate) forget: (Parameter, Parameter),
    pub(crate) rate: Parameter,
    pub(crate) output: Linear,
}

impl HeadGate {
    fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>, name: &str, heads: usize, width: usize) -> Self {
        let init = Init::Normal((width as f64).powf(-0.5));
        let weight = params.weight(&format!("rg_lru.{name}_weight"), &[heads, width, width], init);
        let bias = params.weight_without_decay(&format!("rg_lru.{name}_bias"), &[heads, width], Init::Constant(0.0));
        Self { weight, bias }
    }

    /// `[batch, time, heads, width]` to `[batch, time, heads * width]`.
    fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let raw = by_head(ops, x, &ops.parameter(self.weight), false);
        join(ops, &ops.sigmoid(&ops.add(&raw, &ops.parameter(self.bias))))
    }
}

/// The constant c of the paper: a channel's log-decay is at most c times its rate.
const DECAY_SCALE: f64 = 8.0;
/// Added under the square root: too small to show in a result, and enough for a finite derivative where nothing is forgotten.
const SQRT_EPSILON: f64 = 1e-30;

/// A parameter with `exp(-softplus)` from 0.9 to 0.999, as a function of a uniform number: the published start.
fn rate(uniform: f64) -> f64 {
    let (low, high) = (0.9_f64.powi(2), 0.999_f64.powi(2));
    let kept = low + uniform * (high - low);
    (-0.5 * kept.ln()).exp_m1().ln()
}

impl RgLruConfig {
    /// Tokens per chunk at most: a state is one number wide.
    const CHUNK: usize = 16;

    /// A mixer with weights that exist.
    pub(crate) fn assemble(self, parts: RgLruParts) -> RgLru {
        let (weight, bias) = parts.convolution;
        let gate = |(weight, bias): (Parameter, Parameter)| HeadGate { weight, bias };
        RgLru {
            config: self,
            gate: parts.gate,
            input: parts.input,
            convolution: Convolution { weight, bias, channels: self.inner, taps: self.taps, rounding: None },
            input_gate: gate(parts.entry),
            recurrence_gate: gate(parts.forget),
            rate: parts.rate,
            output: parts.output,
            recurrence: LinearRecurrence { chunk: Self::CHUNK, rounding: None },
        }
    }
}

impl MixerConfig for RgLruConfig {
    type Mixer = RgLru;
    const NAME: &'static str = "rglru";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [inner, heads, taps] = ["inner", "heads", "conv"].map(|option| number(mixer, option));
        shared_evenly(Self::NAME, "heads", inner, heads)?;
        Ok(Self { inner, heads, taps })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<RgLru, ModelError> {
        causal_only(Self::NAME, params)?;
        let Self { inner, heads, taps } = *self;
        let width = params.settings.width;
        let recurrence = params.recurrence();
        Ok(RgLru {
            config: *self,
            gate: params.linear_with_bias("linear_y", width, inner),
            input: params.linear_with_bias("linear_x", width, inner),
            convolution: Convolution {
                weight: params.weight("conv_1d.weight", &[inner, 1, taps], Init::Normal((taps as f64).powf(-0.5))),
                bias: Some(params.weight_without_decay("conv_1d.bias", &[inner], Init::Constant(0.0))),
                channels: inner,
                taps,
                rounding: params.settings.precision.state,
            },
            input_gate: HeadGate::init(params, "input_gate", heads, inner / heads),
            recurrence_gate: HeadGate::init(params, "recurrent_gate", heads, inner / heads),
            rate: params.weight_without_decay("rg_lru.recurrent_param", &[inner], Init::FromUniform(&rate)),
            output: params.role(Role::Output).linear_with_bias("linear_out", inner, width),
            recurrence: LinearRecurrence { chunk: recurrence.chunk.min(Self::CHUNK), ..recurrence },
        })
    }
}

impl RgLru {
    /// The state of every channel at every token, `[batch, time, inner]`, and the last one. `x` is the token's content through the
    /// input projection, of the same shape.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let RgLruConfig { inner, heads, .. } = self.config;
        let (batch, time, seen) = (ops.shape(x)[0], ops.shape(x)[1], State::seen(state));
        let (x, tail) = self.convolution.apply(ops, x, State::part(state, 1));
        let by_head = split(ops, &x, heads);
        let [input_gate, recurrence_gate] = [&self.input_gate, &self.recurrence_gate].map(|gate| gate.apply(ops, &by_head));
        let rate = ops.scale(&ops.softplus(&ops.parameter(self.rate)), -DECAY_SCALE);
        let decay = ops.mul(&recurrence_gate, &rate);
        let input_gate = ops.mul(&input_gate, &self.input_scale(ops, &decay, seen));
        let value = ops.reshape(&ops.mul(&input_gate, &x), &[batch, time, inner, 1]);
        let one = ops.full(&[batch, time, 1, 1], 1.0);
        let (read, last) = self.recurrence.run(ops, [&one, &one, &value], Decay::Scalar(&decay), None, state);
        (ops.reshape(&read, &[batch, time, inner]), State::new(seen + time, [Some(last), tail]))
    }

    /// `sqrt(1 - a^2)` from `log a`, which keeps the size of a state whatever is forgotten; 1 for the first token of a sequence.
    fn input_scale<O: Ops>(&self, ops: &O, decay: &O::Tensor, seen: usize) -> O::Tensor {
        // 1 - exp(2u) is -tanh(u) (1 + exp(2u)), without a difference of near numbers.
        let kept = ops.exp(&ops.scale(decay, 2.0));
        let rest = ops.mul(&ops.neg(&ops.tanh(decay)), &ops.affine(&kept, 1.0, 1.0));
        let root = ops.sqrt(&ops.affine(&rest, 1.0, SQRT_EPSILON));
        if seen > 0 {
            return root;
        }
        let (batch, time, inner) = (ops.shape(decay)[0], ops.shape(decay)[1], self.config.inner);
        let first = ops.full(&[batch, 1, inner], 1.0);
        ops.concat(&[first, ops.slice(&root, 1, 1..time)], 1)
    }
}

impl TokenMixer for RgLru {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.read(ops, &self.input.apply(ops, x), state);
        let gate = ops.gelu(&self.gate.apply(ops, x));
        (self.output.apply(ops, &ops.mul(&gate, &out)), state)
    }
}
