//! RG-LRU: a gated linear recurrence on vectors, as in Griffin and RecurrentGemma.
//!
//! Definition, state and sources: `rung explain rglru`.
//!
//! # Computed as
//! Per channel a recurrence with a state of one element and a scalar decay, in short chunks.

use rung_engine::{Decay, Ops, Parameter, Role, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, number, require_causal, require_divisor};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::{Init, ParamBuilder};
use crate::submodules::{Convolution, Linear, LinearRecurrence, merge_heads, per_head_matmul, split_heads};

/// Sizes of an RG-LRU block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RgLruConfig {
    /// Number of channels of the recurrence.
    pub inner: usize,
    /// Number of blocks of the block-diagonal gate projections.
    pub heads: usize,
    /// Kernel size of the convolution.
    pub kernel_size: usize,
}

/// An RG-LRU with its input projection, convolution, output gate and output projection.
pub struct RgLru {
    config: RgLruConfig,
    gate: Linear,
    input: Linear,
    convolution: Convolution,
    /// Gate of the recurrence's input.
    input_gate: HeadGate,
    /// Scales the decay rate of a channel between zero and its maximum.
    recurrence_gate: HeadGate,
    /// Logits of the largest decay rate of each channel.
    rate_logits: Parameter,
    output: Linear,
    recurrence: LinearRecurrence,
}

/// A gate whose projection is block-diagonal: each head's channels are projected separately.
struct HeadGate {
    /// `[heads, in, out]`.
    weight: Parameter,
    /// `[heads, out]`.
    bias: Parameter,
}

/// The weights of the mixer, as read from a checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct RgLruWeights {
    pub(crate) gate: Linear,
    pub(crate) input: Linear,
    /// Weight and bias.
    pub(crate) convolution: (Parameter, Option<Parameter>),
    /// Weight and bias of the gate of the recurrence's input.
    pub(crate) input_gate: (Parameter, Parameter),
    /// Weight and bias of the gate of the decay.
    pub(crate) recurrence_gate: (Parameter, Parameter),
    pub(crate) rate_logits: Parameter,
    pub(crate) output: Linear,
}

impl HeadGate {
    fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>, name: &str, heads: usize, width: usize) -> Self {
        let init = Init::Normal((width as f64).powf(-0.5));
        let weight = params.weight(&format!("rg_lru.{name}_weight"), &[heads, width, width], init);
        let bias =
            params.parameter_without_weight_decay(&format!("rg_lru.{name}_bias"), &[heads, width], Init::Constant(0.0));
        Self { weight, bias }
    }

    /// `[batch, time, heads, width]` to `[batch, time, heads * width]`.
    fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let logits = per_head_matmul(ops, x, &ops.parameter(self.weight), false);
        merge_heads(ops, &ops.sigmoid(&ops.add(&logits, &ops.parameter(self.bias))))
    }
}

/// The constant c of the paper: a channel's log-decay is at most c times its rate.
const DECAY_SCALE: f64 = 8.0;
/// Added under the square root: too small to change a result, and enough for a finite derivative where the decay is zero.
const SQRT_EPSILON: f64 = 1e-30;

/// The published initial value of the rate logits as a function of a uniform number: `exp(-softplus)` is from 0.9 to 0.999.
fn initial_rate_logit(uniform: f64) -> f64 {
    let (low, high) = (0.9_f64.powi(2), 0.999_f64.powi(2));
    let squared_decay = low + uniform * (high - low);
    (-0.5 * squared_decay.ln()).exp_m1().ln()
}

impl RgLruConfig {
    /// Largest number of tokens per chunk. The state of a channel is a scalar, so longer chunks cost more.
    const CHUNK: usize = 16;

    /// A mixer whose weights were read from a checkpoint.
    pub(crate) fn assemble(self, weights: RgLruWeights) -> RgLru {
        let (weight, bias) = weights.convolution;
        let gate = |(weight, bias): (Parameter, Parameter)| HeadGate { weight, bias };
        RgLru {
            config: self,
            gate: weights.gate,
            input: weights.input,
            convolution: Convolution {
                weight,
                bias,
                channels: self.inner,
                kernel_size: self.kernel_size,
                rounding: None,
            },
            input_gate: gate(weights.input_gate),
            recurrence_gate: gate(weights.recurrence_gate),
            rate_logits: weights.rate_logits,
            output: weights.output,
            recurrence: LinearRecurrence { chunk: Self::CHUNK, rounding: None },
        }
    }
}

impl MixerConfig for RgLruConfig {
    type Mixer = RgLru;
    const NAME: &'static str = "rglru";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::rglru);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [inner, heads, kernel_size] = ["inner", "heads", "conv"].map(|option| number(mixer, option));
        require_divisor(Self::NAME, "heads", inner, heads)?;
        Ok(Self { inner, heads, kernel_size })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<RgLru, ModelError> {
        require_causal(Self::NAME, params)?;
        let Self { inner, heads, kernel_size } = *self;
        let width = params.settings.width;
        let recurrence = params.recurrence();
        Ok(RgLru {
            config: *self,
            gate: params.linear_with_bias("linear_y", width, inner),
            input: params.linear_with_bias("linear_x", width, inner),
            convolution: params.convolution_with_bias(
                "conv_1d",
                inner,
                kernel_size,
                [Init::Normal((kernel_size as f64).powf(-0.5)), Init::Constant(0.0)],
            ),
            input_gate: HeadGate::init(params, "input_gate", heads, inner / heads),
            recurrence_gate: HeadGate::init(params, "recurrent_gate", heads, inner / heads),
            rate_logits: params.parameter_without_weight_decay(
                "rg_lru.recurrent_param",
                &[inner],
                Init::FromUniform(&initial_rate_logit),
            ),
            output: params.role(Role::Output).linear_with_bias("linear_out", inner, width),
            recurrence: LinearRecurrence { chunk: recurrence.chunk.min(Self::CHUNK), ..recurrence },
        })
    }
}

impl RgLru {
    /// The recurrent state of every channel after every token, `[batch, time, inner]`, and the mixer's state. `x` is the projected input, of
    /// the same shape.
    pub(super) fn channel_states<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let RgLruConfig { inner, heads, .. } = self.config;
        let (batch, time, past_len) = (ops.shape(x)[0], ops.shape(x)[1], State::past_len(state));
        let (x, conv_state) = self.convolution.apply(ops, x, State::tensor(state, 1));
        let head_inputs = split_heads(ops, &x, heads);
        let [input_gate, recurrence_gate] =
            [&self.input_gate, &self.recurrence_gate].map(|gate| gate.apply(ops, &head_inputs));
        let rate = ops.scale(&ops.softplus(&ops.parameter(self.rate_logits)), -DECAY_SCALE);
        let decay = ops.mul(&recurrence_gate, &rate);
        let input_gate = ops.mul(&input_gate, &self.input_scale(ops, &decay, past_len));
        let value = ops.reshape(&ops.mul(&input_gate, &x), &[batch, time, inner, 1]);
        let ones = ops.full(&[batch, time, 1, 1], 1.0);
        let (states, last) = self.recurrence.run(ops, [&ones, &ones, &value], Decay::Scalar(&decay), None, state);
        (ops.reshape(&states, &[batch, time, inner]), State::new(past_len + time, [Some(last), conv_state]))
    }

    /// `sqrt(1 - a^2)` of the decay a, given its logarithm. It keeps the variance of the state constant; 1 for the first token.
    fn input_scale<O: Ops>(&self, ops: &O, decay: &O::Tensor, past_len: usize) -> O::Tensor {
        // 1 - exp(2u) is -tanh(u) (1 + exp(2u)), without a difference of nearly equal numbers.
        let squared_decay = ops.exp(&ops.scale(decay, 2.0));
        let complement = ops.mul(&ops.neg(&ops.tanh(decay)), &ops.affine(&squared_decay, 1.0, 1.0));
        let root = ops.sqrt(&ops.affine(&complement, 1.0, SQRT_EPSILON));
        if past_len > 0 {
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
        let (out, state) = self.channel_states(ops, &self.input.apply(ops, x), state);
        let gate = ops.gelu(&self.gate.apply(ops, x));
        (self.output.apply(ops, &ops.mul(&gate, &out)), state)
    }
}
