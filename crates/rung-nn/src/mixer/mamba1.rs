//! Mamba: a selective state space with its own decay for every channel and state index.
//!
//! Definition, state and sources: `rung explain mamba1`.
//!
//! # Computed as
//! Every channel is a head of gated linear attention: its key is B and its query C, which all channels share, its
//! value is the one number `dt x`, and its decays are `dt A`. So the recurrence in chunks serves it as it is.

use std::cell::Cell;

use rung_engine::{Decay, Ops, Parameter, Role, Scalar};
use rung_theory::stack::Mixer;

use super::mamba2::step_bias;
use super::{MixerConfig, State, TokenMixer, causal_only, number};
use crate::error::ModelError;
use crate::parts::{Convolution, Linear, LinearRecurrence};
use crate::param_builder::{Init, ParamBuilder};

/// Sizes of Mamba.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mamba1Config {
    /// Channels after expansion.
    pub inner: usize,
    /// State indices per channel.
    pub state: usize,
    /// Taps of the convolution.
    pub taps: usize,
    /// Rank of the step size's projection.
    pub rank: usize,
}

/// Mamba's mixer.
pub struct Mamba1 {
    config: Mamba1Config,
    /// Into x and the gate.
    input: Linear,
    convolution: Convolution,
    /// Into the low rank of the step, B and C.
    select: Linear,
    step: Linear,
    log_rate: Parameter,
    skip: Parameter,
    output: Linear,
    recurrence: LinearRecurrence,
    norms: Option<SelectNorms>,
}

/// RMS norms of the low-rank step, B and C, each with a gain or without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SelectNorms {
    pub(crate) gains: [Option<Parameter>; 3],
    pub(crate) epsilon: f64,
}

/// The weights of a mixer that were read from a checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct Mamba1Parts {
    /// Into x and the gate.
    pub(crate) input: Linear,
    /// Weight and bias.
    pub(crate) convolution: (Parameter, Option<Parameter>),
    /// Into the low rank of the step, B and C.
    pub(crate) select: Linear,
    pub(crate) step: Linear,
    pub(crate) log_rate: Parameter,
    pub(crate) skip: Parameter,
    pub(crate) output: Linear,
    pub(crate) norms: Option<SelectNorms>,
}

impl Mamba1Config {
    /// Tokens per chunk at most. A value is one number wide, so that scores between tokens cost as much as the state itself
    /// already in short chunks.
    const CHUNK: usize = 16;

    /// A mixer with weights that exist.
    pub(crate) fn assemble(self, parts: Mamba1Parts) -> Mamba1 {
        let (weight, bias) = parts.convolution;
        let convolution = Convolution { weight, bias, channels: self.inner, taps: self.taps, rounding: None };
        Mamba1 {
            config: self,
            input: parts.input,
            convolution,
            select: parts.select,
            step: parts.step,
            log_rate: parts.log_rate,
            skip: parts.skip,
            output: parts.output,
            recurrence: LinearRecurrence { chunk: Self::CHUNK, rounding: None },
            norms: parts.norms,
        }
    }
}

impl MixerConfig for Mamba1Config {
    type Mixer = Mamba1;
    const NAME: &'static str = "mamba1";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [inner, state, taps, rank] = ["inner", "state", "conv", "rank"].map(|option| number(mixer, option));
        Ok(Self { inner, state, taps, rank })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Mamba1, ModelError> {
        causal_only(Self::NAME, params)?;
        let Self { inner, state, taps, rank } = *self;
        let width = params.settings.width;
        // PyTorch's own start of a convolution: uniform within the root of the number of taps.
        let reach = (taps as f64).powf(-0.5);
        let init = Init::Uniform(-reach, reach);
        let up = (rank as f64).powf(-0.5);
        // Every channel starts with the rates 1, 2, .. of its state indices.
        let cell = Cell::new(0);
        let log_rate = |_: f64| ((cell.replace(cell.get() + 1) % state + 1) as f64).ln();
        let recurrence = params.recurrence();
        Ok(Mamba1 {
            config: *self,
            input: params.linear("in_proj", width, 2 * inner),
            convolution: Convolution {
                weight: params.weight("conv1d.weight", &[inner, 1, taps], init),
                bias: Some(params.weight_without_decay("conv1d.bias", &[inner], init)),
                channels: inner,
                taps,
                rounding: params.settings.precision.state,
            },
            select: params.linear("x_proj", inner, rank + 2 * state),
            step: Linear {
                bias: Some(params.weight_without_decay("dt_proj.bias", &[inner], Init::FromUniform(&step_bias))),
                ..params.linear_from("dt_proj", rank, inner, Init::Uniform(-up, up))
            },
            log_rate: params.weight_without_decay("A_log", &[inner, state], Init::FromUniform(&log_rate)),
            skip: params.weight_without_decay("D", &[inner], Init::Constant(1.0)),
            output: params.role(Role::Output).linear("out_proj", inner, width),
            recurrence: LinearRecurrence { chunk: recurrence.chunk.min(Self::CHUNK), ..recurrence },
            norms: None,
        })
    }
}

impl Mamba1 {
    /// The read of every channel before the gate, `[batch, time, inner]`, and the state. `x` is the token's content through the
    /// input projection, of the same shape.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let Mamba1Config { inner, state: size, rank, .. } = self.config;
        let (batch, time) = (ops.shape(x)[0], ops.shape(x)[1]);
        let (x, tail) = self.convolution.apply(ops, x, State::part(state, 1));
        let x = ops.silu(&x);
        let select = self.select.apply(ops, &x);
        let selected = |part: usize, range: std::ops::Range<usize>| {
            let part_of_select = ops.slice(&select, 2, range);
            let Some(SelectNorms { gains, epsilon }) = &self.norms else { return part_of_select };
            let gain = gains[part].map(|gain| ops.parameter(gain));
            ops.rms_norm(&part_of_select, gain.as_ref(), *epsilon)
        };
        let shared = |x: O::Tensor| ops.reshape(&x, &[batch, time, 1, size]);
        let entry = shared(selected(1, rank..rank + size));
        let exit = shared(selected(2, rank + size..rank + 2 * size));
        let step = ops.softplus(&self.step.apply(ops, &selected(0, 0..rank)));
        let value = ops.reshape(&ops.mul(&step, &x), &[batch, time, inner, 1]);
        let rate = ops.exp(&ops.parameter(self.log_rate));
        let decay = ops.neg(&ops.mul(&ops.reshape(&step, &[batch, time, inner, 1]), &rate));
        let (read, matrix) = self.recurrence.run(ops, [&exit, &entry, &value], Decay::Vector(&decay), None, state);
        let read = ops.reshape(&read, &[batch, time, inner]);
        let out = ops.add(&read, &ops.mul(&x, &ops.parameter(self.skip)));
        (out, State::new(State::seen(state) + time, [Some(matrix), tail]))
    }
}

impl TokenMixer for Mamba1 {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (all, inner) = (self.input.apply(ops, x), self.config.inner);
        let (out, state) = self.read(ops, &ops.slice(&all, 2, 0..inner), state);
        let gate = ops.slice(&all, 2, inner..2 * inner);
        (self.output.apply(ops, &ops.silu_gate(&gate, &out)), state)
    }
}
