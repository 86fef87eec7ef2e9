//! Kimi Delta Attention: Gated DeltaNet with a decay per key channel.
//!
//! Definition, state and sources: `rung explain kda`.
//!
//! # Computed as
//! Gated DeltaNet's triangular solve with the decays of the channels inside of the products, in chunks.

use rung_engine::{Decay, Ops, Parameter, Role, Scalar};
use rung_theory::stack::Mixer;

use super::deltanet::{Streams, strength};
use super::mamba2::step_bias;
use super::{MixerConfig, State, TokenMixer, causal_only, number, shared_evenly};
use crate::error::ModelError;
use crate::parts::{Convolution, NormGain, Linear, LinearRecurrence, join, split};
use crate::param_builder::{Init, ParamBuilder};

/// Sizes of Kimi Delta Attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KimiDeltaConfig {
    /// Query and key heads.
    pub heads: usize,
    /// Value heads, each with its own state.
    pub value_heads: usize,
    /// Width of a key head.
    pub key: usize,
    /// Width of a value head, and the rank of the decay and of the output's gate.
    pub value: usize,
    /// Taps of the short convolution; 0 for none.
    pub taps: usize,
}

/// Kimi Delta Attention's mixer.
pub struct KimiDelta {
    config: KimiDeltaConfig,
    streams: Streams,
    beta: Linear,
    /// Down to the rank, then up to the key channels of every value head.
    step: [Linear; 2],
    step_bias: Parameter,
    log_rate: Parameter,
    /// Down to the rank, then up to the value channels with a bias.
    gate: [Linear; 2],
    norm: NormGain,
    /// Of the norm.
    epsilon: f64,
    output: Linear,
    recurrence: LinearRecurrence,
}

/// The weights of Kimi Delta Attention as a checkpoint has them.
pub(crate) struct KimiDeltaParts {
    /// Of queries, keys and values.
    pub(crate) projections: [Linear; 3],
    /// On what they give.
    pub(crate) convolutions: [Convolution; 3],
    /// Before the sigmoid of beta.
    pub(crate) beta: Linear,
    /// Before the softplus of the step: down to the rank, then up to the key channels.
    pub(crate) step: [Linear; 2],
    /// Added to it, `[value heads * key]`.
    pub(crate) step_bias: Parameter,
    /// Logarithms of the rates of decay, `[value heads]`.
    pub(crate) log_rate: Parameter,
    /// Of the output's gate: down to the rank, then up to the value channels.
    pub(crate) gate: [Linear; 2],
    /// Of the norm of a head's read, `[value]`.
    pub(crate) norm: Parameter,
    /// Added to its mean of squares.
    pub(crate) epsilon: f64,
    /// Back to the stream.
    pub(crate) output: Linear,
}

impl KimiDeltaConfig {
    /// A mixer whose weights were read from a checkpoint.
    pub(crate) fn assemble(self, parts: &KimiDeltaParts) -> KimiDelta {
        KimiDelta {
            config: self,
            streams: Streams::assemble(parts.projections, parts.convolutions, [self.heads, self.value_heads]),
            beta: parts.beta,
            step: parts.step,
            step_bias: parts.step_bias,
            log_rate: parts.log_rate,
            gate: parts.gate,
            norm: NormGain { weight: parts.norm },
            epsilon: parts.epsilon,
            output: parts.output,
            recurrence: LinearRecurrence::PLAIN,
        }
    }
}

impl MixerConfig for KimiDeltaConfig {
    type Mixer = KimiDelta;
    const NAME: &'static str = "kda";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [heads, value_heads] = ["heads", "value-heads"].map(|option| number(mixer, option));
        shared_evenly(Self::NAME, "query and key heads", value_heads, heads)?;
        let [key, value, taps] = ["key", "value", "conv"].map(|option| number(mixer, option));
        Ok(Self { heads, value_heads, key, value, taps })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<KimiDelta, ModelError> {
        causal_only(Self::NAME, params)?;
        let Self { heads, value_heads, key, value, taps } = *self;
        let width = params.settings.width;
        Ok(KimiDelta {
            config: *self,
            streams: Streams::init(params, taps, (heads, key), (value_heads, value)),
            beta: params.linear("b_proj", width, value_heads),
            step: [params.linear("f_proj.0", width, value), params.linear("f_proj.1", value, value_heads * key)],
            step_bias: params.weight_without_decay("dt_bias", &[value_heads * key], Init::FromUniform(&step_bias)),
            log_rate: params.weight_without_decay("A_log", &[value_heads], Init::FromUniform(&|uniform| (1.0 + 15.0 * uniform).ln())),
            gate: [
                params.linear("g_proj.0", width, value),
                params.linear_with_bias("g_proj.1", value, value_heads * value),
            ],
            norm: params.gain("o_norm", value),
            epsilon: NormGain::EPSILON,
            output: params.role(Role::Output).linear("o_proj", value_heads * value, width),
            recurrence: params.recurrence(),
        })
    }
}

impl KimiDelta {
    /// The read of every head before norm and gate, and the state.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let ([query, key, value], [first, second, third]) = self.streams.apply(ops, x, state);
        let beta = strength(ops, &self.beta, x, false);
        let decay = self.decay(ops, x);
        let (out, matrix) = self.recurrence.run(ops, [&query, &key, &value], Decay::Vector(&decay), Some(&beta), state);
        (out, State::new(State::seen(state) + ops.shape(x)[1], [Some(matrix), first, second, third]))
    }

    /// Log-decays of the key channels, `[batch, time, value heads, key]`.
    fn decay<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let heads = self.config.value_heads;
        let raw = self.step[1].apply(ops, &self.step[0].apply(ops, x));
        let step = split(ops, &ops.softplus(&ops.add(&raw, &ops.parameter(self.step_bias))), heads);
        let rate = ops.reshape(&ops.exp(&ops.parameter(self.log_rate)), &[heads, 1]);
        ops.neg(&ops.mul(&step, &rate))
    }
}

impl TokenMixer for KimiDelta {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.read(ops, x, state);
        let out = self.norm.norm_with(ops, &out, self.epsilon);
        let gate = self.gate[1].heads(ops, &self.gate[0].apply(ops, x), self.config.value_heads);
        (self.output.apply(ops, &join(ops, &ops.mul(&ops.sigmoid(&gate), &out))), state)
    }
}
