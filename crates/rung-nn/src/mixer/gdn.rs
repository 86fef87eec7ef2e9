//! Gated DeltaNet: the delta rule on a state that also decays.
//!
//! Definition, state and sources: `rung explain gdn`.
//!
//! # Computed as
//! DeltaNet's triangular solve with a decay mask, in chunks.

use rung_engine::{Ops, Parameter, Role, Scalar};
use rung_theory::stack::Mixer;

use super::deltanet::{Streams, strength};
use super::fenwick::RecurrenceInputs;
use super::mamba2::step_bias;
use super::{MixerConfig, State, TokenMixer, causal_only, flag, number, shared_evenly};
use crate::error::ModelError;
use crate::parts::{Convolution, NormGain, Linear, LinearRecurrence, join};
use crate::param_builder::{Init, ParamBuilder};

/// Sizes of Gated DeltaNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedDeltanetConfig {
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
    /// Whether beta reaches 2.
    pub negative: bool,
}

/// Gated DeltaNet's mixer.
pub struct GatedDeltanet {
    config: GatedDeltanetConfig,
    streams: Streams,
    beta: Linear,
    forget: DecayProjection,
    gate: Linear,
    norm: NormGain,
    /// Of the norm.
    epsilon: f64,
    output: Linear,
    recurrence: LinearRecurrence,
}

/// The weights of Gated DeltaNet as a checkpoint has them.
pub(crate) struct GatedDeltanetParts {
    /// Of queries, keys and values.
    pub(crate) projections: [Linear; 3],
    /// On what they give.
    pub(crate) convolutions: [Convolution; 3],
    /// Before the sigmoid of beta.
    pub(crate) beta: Linear,
    /// Before the softplus of the step.
    pub(crate) step: Linear,
    /// Added to it, `[value heads]`.
    pub(crate) step_bias: Parameter,
    /// Logarithms of the rates of decay, `[value heads]`.
    pub(crate) log_rate: Parameter,
    /// Of the output's gate.
    pub(crate) gate: Linear,
    /// Of the norm of a head's read, `[value]`.
    pub(crate) norm: Parameter,
    /// Added to its mean of squares.
    pub(crate) epsilon: f64,
    /// Back to the stream.
    pub(crate) output: Linear,
}

impl GatedDeltanetConfig {
    /// A mixer whose weights were read from a checkpoint.
    pub(crate) fn assemble(self, parts: &GatedDeltanetParts) -> GatedDeltanet {
        let GatedDeltanetParts { step, step_bias, log_rate, .. } = *parts;
        GatedDeltanet {
            config: self,
            streams: Streams::assemble(parts.projections, parts.convolutions, [self.heads, self.value_heads]),
            beta: parts.beta,
            forget: DecayProjection { step, step_bias, log_rate },
            gate: parts.gate,
            norm: NormGain { weight: parts.norm },
            epsilon: parts.epsilon,
            output: parts.output,
            recurrence: LinearRecurrence::PLAIN,
        }
    }
}

/// What makes the decay of a token.
pub(super) struct DecayProjection {
    step: Linear,
    step_bias: Parameter,
    log_rate: Parameter,
}

impl DecayProjection {
    pub(super) fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>, value_heads: usize) -> Self {
        // Away from zero itself, whose logarithm is none.
        let log_rate = |uniform: f64| (16.0 * uniform).max(1e-4).ln();
        Self {
            step: params.linear("a_proj", params.settings.width, value_heads),
            step_bias: params.weight_without_decay("dt_bias", &[value_heads], Init::FromUniform(&step_bias)),
            log_rate: params.weight_without_decay("A_log", &[value_heads], Init::FromUniform(&log_rate)),
        }
    }

    /// Log-decays, `[batch, time, value heads]`.
    pub(super) fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let step = ops.softplus(&ops.add(&self.step.apply(ops, x), &ops.parameter(self.step_bias)));
        ops.neg(&ops.mul(&step, &ops.exp(&ops.parameter(self.log_rate))))
    }
}

impl MixerConfig for GatedDeltanetConfig {
    type Mixer = GatedDeltanet;
    const NAME: &'static str = "gdn";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, value_heads] = ["heads", "value-heads"].map(|option| number(mixer, option));
        shared_evenly(Self::NAME, "query and key heads", value_heads, heads)?;
        let [key, value, taps] = ["key", "value", "conv"].map(|option| number(mixer, option));
        Ok(Self { heads, value_heads, key, value, taps, negative: flag(mixer, "negative") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<GatedDeltanet, ModelError> {
        causal_only(Self::NAME, params)?;
        let Self { heads, value_heads, key, value, taps, .. } = *self;
        let width = params.settings.width;
        Ok(GatedDeltanet {
            config: *self,
            streams: Streams::init(params, taps, (heads, key), (value_heads, value)),
            beta: params.linear("b_proj", width, value_heads),
            forget: DecayProjection::init(params, value_heads),
            gate: params.role(Role::Gate).linear("g_proj", width, value_heads * value),
            norm: params.gain("o_norm", value),
            epsilon: NormGain::EPSILON,
            output: params.role(Role::Output).linear("o_proj", value_heads * value, width),
            recurrence: params.recurrence(),
        })
    }
}

impl GatedDeltanet {
    /// The read of every head before norm and gate, and the state. `run` is the memory.
    pub(super) fn read_with<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
        run: impl FnOnce(&RecurrenceInputs<'_, O::Tensor>) -> (O::Tensor, O::Tensor),
    ) -> (O::Tensor, State<O::Tensor>) {
        let ([query, key, value], [first, second, third]) = self.streams.apply(ops, x, state);
        let beta = strength(ops, &self.beta, x, self.config.negative);
        let decay = self.forget.apply(ops, x);
        let writes = RecurrenceInputs { query: &query, key: &key, value: &value, decay: &decay, beta: Some(&beta) };
        let (out, matrix) = run(&writes);
        (out, State::new(State::seen(state) + ops.shape(x)[1], [Some(matrix), first, second, third]))
    }

    /// The same with a single state.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        self.read_with(ops, x, state, |writes| writes.run(ops, self.recurrence, state))
    }

    /// What stands after a read.
    pub(super) fn after<O: Ops>(&self, ops: &O, x: &O::Tensor, read: &O::Tensor) -> O::Tensor {
        let out = self.norm.norm_with(ops, read, self.epsilon);
        let gate = self.gate.heads(ops, x, self.config.value_heads);
        self.output.apply(ops, &join(ops, &ops.silu_gate(&gate, &out)))
    }
}

impl TokenMixer for GatedDeltanet {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.read(ops, x, state);
        (self.after(ops, x, &out), state)
    }
}
