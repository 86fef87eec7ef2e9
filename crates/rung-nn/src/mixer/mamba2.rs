//! Mamba-2: a state space with one decay per head.
//!
//! Definition, state and sources: `rung explain mamba2`.
//!
//! # Computed as
//! `(C B' . L)(dt . X)` with `L_ts = exp(sum of dt a over s+1..t)`, in chunks.

use rung_engine::{Ops, Parameter, Role, Scalar};
use rung_theory::stack::Mixer;

use super::fenwick::RecurrenceInputs;
use super::{MixerConfig, State, TokenMixer, number, require_causal, require_divisor};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::{Init, ParamBuilder};
use crate::submodules::{Convolution, Linear, LinearRecurrence, NormGain, clamp, merge_heads, split_heads};

/// Sizes of Mamba-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mamba2Config {
    /// Number of heads.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Size of the state of each channel (`d_state`).
    pub state: usize,
    /// Number of groups of heads that share B and C.
    pub groups: usize,
    /// Kernel size of the convolution.
    pub kernel_size: usize,
}

/// Mamba-2's mixer.
pub struct Mamba2 {
    config: Mamba2Config,
    /// Projection to the gate, x, B, C and dt.
    input: Linear,
    /// Over x, B and C.
    convolution: Convolution,
    dt_bias: Parameter,
    /// `A_log`: logarithms of the decay rates.
    a_log: Parameter,
    /// `D`: factor of x in the output.
    skip: Parameter,
    norm: Option<GatedNorm>,
    output: Linear,
    recurrence: LinearRecurrence,
    /// dt is clamped to this range.
    dt_limit: Option<[f64; 2]>,
}

/// The norm of the head outputs, over each group of heads separately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatedNorm {
    pub(crate) gain: NormGain,
    pub(crate) epsilon: f64,
    /// Whether the norm comes before the gate.
    pub(crate) before_gate: bool,
}

/// The weights of the mixer, as read from a checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct Mamba2Weights {
    /// Projection to the gate, x, B, C and dt.
    pub(crate) input: Linear,
    /// Over x, B and C: weight and bias.
    pub(crate) convolution: (Parameter, Option<Parameter>),
    pub(crate) dt_bias: Parameter,
    pub(crate) a_log: Parameter,
    pub(crate) skip: Parameter,
    pub(crate) norm: Option<GatedNorm>,
    pub(crate) output: Linear,
    pub(crate) dt_limit: Option<[f64; 2]>,
}

impl Mamba2Config {
    /// Channels of x: all heads together.
    pub(crate) fn inner_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Channels that the convolution runs over: x, B and C.
    pub(crate) fn channels(&self) -> usize {
        self.inner_dim() + 2 * self.group_channels()
    }

    /// A mixer whose weights were read from a checkpoint.
    pub(crate) fn assemble(self, weights: Mamba2Weights) -> Mamba2 {
        let (weight, bias) = weights.convolution;
        let convolution =
            Convolution { weight, bias, channels: self.channels(), kernel_size: self.kernel_size, rounding: None };
        Mamba2 {
            config: self,
            input: weights.input,
            convolution,
            dt_bias: weights.dt_bias,
            a_log: weights.a_log,
            skip: weights.skip,
            norm: weights.norm,
            output: weights.output,
            recurrence: LinearRecurrence { chunk: 64, rounding: None },
            dt_limit: weights.dt_limit,
        }
    }

    /// Channels of B, which are as many as those of C.
    fn group_channels(&self) -> usize {
        self.groups * self.state
    }
}

/// The initial bias of dt: its softplus is log-uniform from 1/1000 to 1/10, as a function of a uniform number.
pub(super) fn initial_dt_bias(uniform: f64) -> f64 {
    let dt = (1e-3_f64.ln() + uniform * 100_f64.ln()).exp().max(1e-4);
    dt + (-(-dt).exp_m1()).ln()
}

impl MixerConfig for Mamba2Config {
    type Mixer = Mamba2;
    const NAME: &'static str = "mamba2";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::mamba2);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, head_dim, state] = ["heads", "head", "state"].map(|option| number(mixer, option));
        let groups = number(mixer, "groups");
        require_divisor(Self::NAME, "groups", heads, groups)?;
        Ok(Self { heads, head_dim, state, groups, kernel_size: number(mixer, "conv") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Mamba2, ModelError> {
        require_causal(Self::NAME, params)?;
        let (width, inner_dim, heads) = (params.settings.width, self.inner_dim(), self.heads);
        let channels = self.channels();
        // PyTorch's initial values of a convolution.
        let bound = (self.kernel_size as f64).powf(-0.5);
        let init = Init::Uniform(-bound, bound);
        Ok(Mamba2 {
            config: *self,
            input: params.linear("in_proj", width, inner_dim + channels + heads),
            convolution: params.convolution_with_bias("conv1d", channels, self.kernel_size, [init; 2]),
            dt_bias: params.parameter_without_weight_decay("dt_bias", &[heads], Init::FromUniform(&initial_dt_bias)),
            a_log: params.parameter_without_weight_decay(
                "A_log",
                &[heads],
                Init::FromUniform(&|uniform| (1.0 + 15.0 * uniform).ln()),
            ),
            skip: params.parameter_without_weight_decay("D", &[heads], Init::Constant(1.0)),
            norm: Some(GatedNorm {
                gain: params.gain("norm", inner_dim),
                epsilon: NormGain::EPSILON,
                before_gate: false,
            }),
            output: params.role(Role::Output).linear("out_proj", inner_dim, width),
            recurrence: params.recurrence(),
            dt_limit: None,
        })
    }
}

impl Mamba2 {
    /// The output of every head before gate and norm, `[batch, time, heads * head_dim]`, and the state. `projected` is the projected input;
    /// `recurrence` runs on the inputs it is given and returns its output and its state.
    pub(super) fn head_outputs_with<O: Ops>(
        &self,
        ops: &O,
        projected: &O::Tensor,
        state: Option<&State<O::Tensor>>,
        recurrence: impl FnOnce(&RecurrenceInputs<'_, O::Tensor>) -> (O::Tensor, O::Tensor),
    ) -> (O::Tensor, State<O::Tensor>) {
        let (config, inner_dim, group_channels) = (&self.config, self.config.inner_dim(), self.config.group_channels());
        let (batch, time) = (ops.shape(projected)[0], ops.shape(projected)[1]);
        let channels = self.convolution.channels;
        let dt = ops.slice(projected, 2, inner_dim + channels..inner_dim + channels + config.heads);
        let xbc = ops.slice(projected, 2, inner_dim..inner_dim + channels);
        let (xbc, conv_state) = self.convolution.apply(ops, &xbc, State::tensor(state, 1));
        let xbc = ops.silu(&xbc);
        let value = split_heads(ops, &ops.slice(&xbc, 2, 0..inner_dim), config.heads);
        let key = split_heads(ops, &ops.slice(&xbc, 2, inner_dim..inner_dim + group_channels), config.groups);
        let query = split_heads(ops, &ops.slice(&xbc, 2, inner_dim + group_channels..channels), config.groups);
        let dt = ops.softplus(&ops.add(&dt, &ops.parameter(self.dt_bias)));
        let dt = self.dt_limit.map_or(dt.clone(), |range| clamp(ops, &dt, range));
        let decay = ops.neg(&ops.mul(&dt, &ops.exp(&ops.parameter(self.a_log))));
        let dt_value = ops.mul(&value, &ops.reshape(&dt, &[batch, time, config.heads, 1]));
        let inputs = RecurrenceInputs { query: &query, key: &key, value: &dt_value, decay: &decay, beta: None };
        let (out, matrix) = recurrence(&inputs);
        let skip = ops.reshape(&ops.parameter(self.skip), &[config.heads, 1]);
        let out = merge_heads(ops, &ops.add(&out, &ops.mul(&value, &skip)));
        (out, State::new(State::past_len(state) + time, [Some(matrix), conv_state]))
    }

    /// The output of every head before gate and norm, and the state.
    pub(super) fn head_outputs<O: Ops>(
        &self,
        ops: &O,
        projected: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        self.head_outputs_with(ops, projected, state, |inputs| inputs.run(ops, self.recurrence, state))
    }

    /// Input projection, then `recurrence` on the projected input, then gate, norm and output projection.
    pub(super) fn project_and_gate<O: Ops, R>(
        &self,
        ops: &O,
        x: &O::Tensor,
        recurrence: impl FnOnce(&O::Tensor) -> (O::Tensor, R),
    ) -> (O::Tensor, R) {
        let projected = self.input.apply(ops, x);
        let (out, state) = recurrence(&projected);
        let gate = ops.slice(&projected, 2, 0..self.config.inner_dim());
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
        (self.output.apply(ops, &out), state)
    }
}

impl TokenMixer for Mamba2 {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        self.project_and_gate(ops, x, |projected| self.head_outputs(ops, projected, state))
    }
}
