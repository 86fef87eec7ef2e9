//! Mamba: a selective state space with its own decay for every channel and state index.
//!
//! Definition, state and sources: `rung explain mamba1`.
//!
//! # Computed as
//! Every channel is a head of gated linear attention: its key is B and its query C, which all channels share, its
//! value is the scalar `dt x`, and its log-decays are `dt A`. So the chunked recurrence of gated linear attention computes it.

use std::cell::Cell;

use rung_engine::{Decay, Ops, Parameter, Role, Scalar};
use rung_theory::stack::Mixer;

use super::mamba2::initial_dt_bias;
use super::{MixerConfig, State, TokenMixer, number, require_causal};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::{Init, ParamBuilder};
use crate::submodules::{Convolution, Linear, LinearRecurrence};

/// Sizes of Mamba.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mamba1Config {
    /// Number of channels after expansion (`d_inner`).
    pub inner_dim: usize,
    /// Size of the state of each channel (`d_state`).
    pub state: usize,
    /// Kernel size of the convolution.
    pub kernel_size: usize,
    /// Rank of the projection to dt.
    pub rank: usize,
}

/// Mamba's mixer.
pub struct Mamba1 {
    config: Mamba1Config,
    /// Projection to x and the gate.
    input: Linear,
    convolution: Convolution,
    /// `x_proj`: projection to the low-rank dt, B and C.
    x_proj: Linear,
    /// From the low rank to dt.
    dt_proj: Linear,
    /// `A_log`: logarithms of the decay rates.
    a_log: Parameter,
    /// `D`: factor of x in the output.
    skip: Parameter,
    output: Linear,
    recurrence: LinearRecurrence,
    norms: Option<XProjNorms>,
}

/// RMS norms of the low-rank dt, B and C, with or without gains.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XProjNorms {
    pub(crate) gains: [Option<Parameter>; 3],
    pub(crate) epsilon: f64,
}

/// The weights of the mixer, as read from a checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct Mamba1Weights {
    /// Projection to x and the gate.
    pub(crate) input: Linear,
    /// Weight and bias.
    pub(crate) convolution: (Parameter, Option<Parameter>),
    /// `x_proj`: projection to the low-rank dt, B and C.
    pub(crate) x_proj: Linear,
    pub(crate) dt_proj: Linear,
    pub(crate) a_log: Parameter,
    pub(crate) skip: Parameter,
    pub(crate) output: Linear,
    pub(crate) norms: Option<XProjNorms>,
}

impl Mamba1Config {
    /// Largest number of tokens per chunk. Values are scalars, so longer chunks spend more on scores between tokens than on the state.
    const CHUNK: usize = 16;

    /// A mixer whose weights were read from a checkpoint.
    pub(crate) fn assemble(self, weights: Mamba1Weights) -> Mamba1 {
        let (weight, bias) = weights.convolution;
        let convolution =
            Convolution { weight, bias, channels: self.inner_dim, kernel_size: self.kernel_size, rounding: None };
        Mamba1 {
            config: self,
            input: weights.input,
            convolution,
            x_proj: weights.x_proj,
            dt_proj: weights.dt_proj,
            a_log: weights.a_log,
            skip: weights.skip,
            output: weights.output,
            recurrence: LinearRecurrence { chunk: Self::CHUNK, rounding: None },
            norms: weights.norms,
        }
    }
}

impl MixerConfig for Mamba1Config {
    type Mixer = Mamba1;
    const NAME: &'static str = "mamba1";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::mamba1);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [inner_dim, state, kernel_size, rank] =
            ["inner", "state", "conv", "rank"].map(|option| number(mixer, option));
        Ok(Self { inner_dim, state, kernel_size, rank })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Mamba1, ModelError> {
        require_causal(Self::NAME, params)?;
        let Self { inner_dim, state, kernel_size, rank } = *self;
        let width = params.settings.width;
        // PyTorch's initial values of a convolution.
        let bound = (kernel_size as f64).powf(-0.5);
        let init = Init::Uniform(-bound, bound);
        let dt_bound = (rank as f64).powf(-0.5);
        // The initial decay rates of every channel are 1, 2, .. for its state indices.
        let index = Cell::new(0);
        let initial_a_log = |_: f64| ((index.replace(index.get() + 1) % state + 1) as f64).ln();
        let recurrence = params.recurrence();
        Ok(Mamba1 {
            config: *self,
            input: params.linear("in_proj", width, 2 * inner_dim),
            convolution: params.convolution_with_bias("conv1d", inner_dim, kernel_size, [init; 2]),
            x_proj: params.linear("x_proj", inner_dim, rank + 2 * state),
            dt_proj: Linear {
                bias: Some(params.parameter_without_weight_decay(
                    "dt_proj.bias",
                    &[inner_dim],
                    Init::FromUniform(&initial_dt_bias),
                )),
                ..params.linear_with_init("dt_proj", rank, inner_dim, Init::Uniform(-dt_bound, dt_bound))
            },
            a_log: params.parameter_without_weight_decay(
                "A_log",
                &[inner_dim, state],
                Init::FromUniform(&initial_a_log),
            ),
            skip: params.parameter_without_weight_decay("D", &[inner_dim], Init::Constant(1.0)),
            output: params.role(Role::Output).linear("out_proj", inner_dim, width),
            recurrence: LinearRecurrence { chunk: recurrence.chunk.min(Self::CHUNK), ..recurrence },
            norms: None,
        })
    }
}

impl Mamba1 {
    /// The output of every channel before the gate, `[batch, time, inner_dim]`, and the state. `x` is the projected input without the gate, of
    /// the same shape.
    fn ungated_output<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let Mamba1Config { inner_dim, state: state_size, rank, .. } = self.config;
        let (batch, time) = (ops.shape(x)[0], ops.shape(x)[1]);
        let (x, conv_state) = self.convolution.apply(ops, x, State::tensor(state, 1));
        let x = ops.silu(&x);
        let x_proj = self.x_proj.apply(ops, &x);
        let slice_and_norm = |index: usize, range: std::ops::Range<usize>| {
            let channels = ops.slice(&x_proj, 2, range);
            let Some(XProjNorms { gains, epsilon }) = &self.norms else { return channels };
            let gain = gains[index].map(|gain| ops.parameter(gain));
            ops.rms_norm(&channels, gain.as_ref(), *epsilon)
        };
        let as_one_head = |x: O::Tensor| ops.reshape(&x, &[batch, time, 1, state_size]);
        let b = as_one_head(slice_and_norm(1, rank..rank + state_size));
        let c = as_one_head(slice_and_norm(2, rank + state_size..rank + 2 * state_size));
        let dt = ops.softplus(&self.dt_proj.apply(ops, &slice_and_norm(0, 0..rank)));
        let value = ops.reshape(&ops.mul(&dt, &x), &[batch, time, inner_dim, 1]);
        let rate = ops.exp(&ops.parameter(self.a_log));
        let decay = ops.neg(&ops.mul(&ops.reshape(&dt, &[batch, time, inner_dim, 1]), &rate));
        let (out, matrix) = self.recurrence.run(ops, [&c, &b, &value], Decay::Vector(&decay), None, state);
        let out = ops.reshape(&out, &[batch, time, inner_dim]);
        let out = ops.add(&out, &ops.mul(&x, &ops.parameter(self.skip)));
        (out, State::new(State::past_len(state) + time, [Some(matrix), conv_state]))
    }
}

impl TokenMixer for Mamba1 {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (projected, inner_dim) = (self.input.apply(ops, x), self.config.inner_dim);
        let (out, state) = self.ungated_output(ops, &ops.slice(&projected, 2, 0..inner_dim), state);
        let gate = ops.slice(&projected, 2, inner_dim..2 * inner_dim);
        (self.output.apply(ops, &ops.silu_gate(&gate, &out)), state)
    }
}
