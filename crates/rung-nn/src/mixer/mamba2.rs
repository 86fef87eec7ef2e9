//! Mamba-2: a state space with one decay per head.
//!
//! Definition, state and sources: `rung explain mamba2`.
//!
//! # Computed as
//! `(C B' . L)(dt . X)` with `L_ts = exp(sum of dt a over s+1..t)`, in chunks.

use rung_engine::{Ops, Parameter, Role, Scalar};
use rung_theory::stack::Mixer;

use super::fenwick::RecurrenceInputs;
use super::{MixerConfig, State, TokenMixer, causal_only, number, shared_evenly};
use crate::error::ModelError;
use crate::parts::{Convolution, NormGain, Linear, LinearRecurrence, clamp, join, split};
use crate::param_builder::{Init, ParamBuilder};

/// Sizes of Mamba-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mamba2Config {
    /// Heads.
    pub heads: usize,
    /// Width of a head.
    pub head: usize,
    /// State indices per channel.
    pub state: usize,
    /// Groups of heads that share B and C.
    pub groups: usize,
    /// Taps of the convolution.
    pub taps: usize,
}

/// Mamba-2's mixer.
pub struct Mamba2 {
    config: Mamba2Config,
    input: Linear,
    convolution: Convolution,
    step_bias: Parameter,
    log_rate: Parameter,
    skip: Parameter,
    norm: Option<GatedNorm>,
    output: Linear,
    recurrence: LinearRecurrence,
    /// Steps are kept within it.
    step_range: Option<[f64; 2]>,
}

/// The norm of what the heads read, over each group by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatedNorm {
    pub(crate) gain: NormGain,
    pub(crate) epsilon: f64,
    /// Whether the gate comes after it.
    pub(crate) before_gate: bool,
}

/// The weights of a mixer that were read from a checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct Mamba2Parts {
    /// Into the gate, x, B, C and the step.
    pub(crate) input: Linear,
    /// Over x, B and C: weight and bias.
    pub(crate) convolution: (Parameter, Option<Parameter>),
    pub(crate) step_bias: Parameter,
    pub(crate) log_rate: Parameter,
    pub(crate) skip: Parameter,
    pub(crate) norm: Option<GatedNorm>,
    pub(crate) output: Linear,
    pub(crate) step_range: Option<[f64; 2]>,
}

impl Mamba2Config {
    /// Channels of all heads.
    pub(crate) fn inner(&self) -> usize {
        self.heads * self.head
    }

    /// Channels that the convolution runs over: x, B and C.
    pub(crate) fn channels(&self) -> usize {
        self.inner() + 2 * self.shared()
    }

    /// A mixer with weights that exist.
    pub(crate) fn assemble(self, parts: Mamba2Parts) -> Mamba2 {
        let (weight, bias) = parts.convolution;
        let convolution = Convolution { weight, bias, channels: self.channels(), taps: self.taps, rounding: None };
        Mamba2 {
            config: self,
            input: parts.input,
            convolution,
            step_bias: parts.step_bias,
            log_rate: parts.log_rate,
            skip: parts.skip,
            norm: parts.norm,
            output: parts.output,
            recurrence: LinearRecurrence { chunk: 64, rounding: None },
            step_range: parts.step_range,
        }
    }

    /// Channels of B, and of C.
    fn shared(&self) -> usize {
        self.groups * self.state
    }
}

/// A bias whose softplus is log-uniform from 1/1000 to 1/10, as a function of a uniform number.
pub(super) fn step_bias(uniform: f64) -> f64 {
    let step = (1e-3_f64.ln() + uniform * 100_f64.ln()).exp().max(1e-4);
    step + (-(-step).exp_m1()).ln()
}

impl MixerConfig for Mamba2Config {
    type Mixer = Mamba2;
    const NAME: &'static str = "mamba2";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, head, state] = ["heads", "head", "state"].map(|option| number(mixer, option));
        let groups = number(mixer, "groups");
        shared_evenly(Self::NAME, "groups", heads, groups)?;
        Ok(Self { heads, head, state, groups, taps: number(mixer, "conv") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Mamba2, ModelError> {
        causal_only(Self::NAME, params)?;
        let (width, inner, heads) = (params.settings.width, self.inner(), self.heads);
        let channels = self.channels();
        // PyTorch's own start of a convolution: uniform within the root of the number of taps.
        let reach = (self.taps as f64).powf(-0.5);
        let init = Init::Uniform(-reach, reach);
        Ok(Mamba2 {
            config: *self,
            input: params.linear("in_proj", width, inner + channels + heads),
            convolution: Convolution {
                weight: params.weight("conv1d.weight", &[channels, 1, self.taps], init),
                bias: Some(params.weight_without_decay("conv1d.bias", &[channels], init)),
                channels,
                taps: self.taps,
                rounding: params.settings.precision.state,
            },
            step_bias: params.weight_without_decay("dt_bias", &[heads], Init::FromUniform(&step_bias)),
            log_rate: params.weight_without_decay("A_log", &[heads], Init::FromUniform(&|uniform| (1.0 + 15.0 * uniform).ln())),
            skip: params.weight_without_decay("D", &[heads], Init::Constant(1.0)),
            norm: Some(GatedNorm { gain: params.gain("norm", inner), epsilon: NormGain::EPSILON, before_gate: false }),
            output: params.role(Role::Output).linear("out_proj", inner, width),
            recurrence: params.recurrence(),
            step_range: None,
        })
    }
}

impl Mamba2 {
    /// The read of every head before gate and norm, `[batch, time, heads * head]`, and the state. `projected` is the token through the
    /// input projection; `run` is the recurrence.
    pub(super) fn read_with<O: Ops>(
        &self,
        ops: &O,
        projected: &O::Tensor,
        state: Option<&State<O::Tensor>>,
        run: impl FnOnce(&RecurrenceInputs<'_, O::Tensor>) -> (O::Tensor, O::Tensor),
    ) -> (O::Tensor, State<O::Tensor>) {
        let (config, inner, shared) = (&self.config, self.config.inner(), self.config.shared());
        let (batch, time) = (ops.shape(projected)[0], ops.shape(projected)[1]);
        let channels = self.convolution.channels;
        let step = ops.slice(projected, 2, inner + channels..inner + channels + config.heads);
        let mixed = ops.slice(projected, 2, inner..inner + channels);
        let (mixed, tail) = self.convolution.apply(ops, &mixed, State::part(state, 1));
        let mixed = ops.silu(&mixed);
        let value = split(ops, &ops.slice(&mixed, 2, 0..inner), config.heads);
        let key = split(ops, &ops.slice(&mixed, 2, inner..inner + shared), config.groups);
        let query = split(ops, &ops.slice(&mixed, 2, inner + shared..channels), config.groups);
        let step = ops.softplus(&ops.add(&step, &ops.parameter(self.step_bias)));
        let step = self.step_range.map_or(step.clone(), |range| clamp(ops, &step, range));
        let decay = ops.neg(&ops.mul(&step, &ops.exp(&ops.parameter(self.log_rate))));
        let stepped = ops.mul(&value, &ops.reshape(&step, &[batch, time, config.heads, 1]));
        let (read, matrix) = run(&RecurrenceInputs { query: &query, key: &key, value: &stepped, decay: &decay, beta: None });
        let skip = ops.reshape(&ops.parameter(self.skip), &[config.heads, 1]);
        let out = join(ops, &ops.add(&read, &ops.mul(&value, &skip)));
        (out, State::new(State::seen(state) + time, [Some(matrix), tail]))
    }

    /// The same with a single state.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        projected: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        self.read_with(ops, projected, state, |writes| writes.run(ops, self.recurrence, state))
    }

    /// The whole mixer around a read of the projected token.
    pub(super) fn project_and_gate<O: Ops, R>(
        &self,
        ops: &O,
        x: &O::Tensor,
        read: impl FnOnce(&O::Tensor) -> (O::Tensor, R),
    ) -> (O::Tensor, R) {
        let projected = self.input.apply(ops, x);
        let (out, rest) = read(&projected);
        let gate = ops.slice(&projected, 2, 0..self.config.inner());
        let groups = self.config.groups;
        let out = match &self.norm {
            None => ops.silu_gate(&gate, &out),
            Some(GatedNorm { gain, epsilon, before_gate: true }) => {
                ops.silu_gate(&gate, &gain.norm_groups(ops, &out, groups, *epsilon))
            }
            Some(GatedNorm { gain, epsilon, before_gate: false }) => {
                gain.norm_groups(ops, &ops.silu_gate(&gate, &out), groups, *epsilon)
            }
        };
        (self.output.apply(ops, &out), rest)
    }
}

impl TokenMixer for Mamba2 {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        self.project_and_gate(ops, x, |projected| self.read(ops, projected, state))
    }
}
