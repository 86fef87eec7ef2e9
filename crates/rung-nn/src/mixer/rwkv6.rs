//! RWKV-6: a gated recurrence that is read before it is written, after a token shift that depends on the token.
//!
//! Definition, state and sources: `rung explain rwkv6`.
//!
//! # Computed as
//! GLA's chunks, with keys and values one token late: the write of token t - 1 goes with the query of token t, so that token t
//! reads the state without itself. Its own contribution, `(r_t . u . k_t) v_t`, is added separately.

use std::cell::Cell;

use rung_engine::{Decay, Ops, Parameter, Role, Rounding, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, number, require_causal, shift};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::{Init, ParamBuilder};
use crate::submodules::{Linear, LinearRecurrence, merge_heads, split_heads};

/// Sizes of RWKV-6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rwkv6Config {
    /// Number of heads.
    pub heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Rank of the token-dependent part of the token shift.
    pub mix_rank: usize,
    /// Rank of the token-dependent part of the decay.
    pub decay_rank: usize,
}

/// RWKV-6's time mixing.
pub struct Rwkv6 {
    heads: usize,
    shift: TokenShift,
    /// `lambda`, and the two factors of its token-dependent part.
    decay: [Parameter; 3],
    /// `u`: weight of a token's own contribution.
    bonus: Parameter,
    receptance: Linear,
    key: Linear,
    value: Linear,
    gate: Linear,
    norm: [Parameter; 2],
    output: Linear,
    recurrence: LinearRecurrence,
}

/// Names of the inputs that the token shift computes: for decay, key, value, receptance and gate.
const SHIFTED_INPUTS: [&str; 5] = ["w", "k", "v", "r", "g"];

/// The token shift: five interpolations of each token with the one before it.
struct TokenShift {
    /// Interpolation weight of the input from which the low-rank change of the other five is computed.
    mu_x: Parameter,
    /// Interpolation weight of each input, before that change.
    mu: [Parameter; 5],
    /// `[width, 5 * rank]` and `[5, rank, width]`.
    factors: [Parameter; 2],
    rank: usize,
    rounding: Option<Rounding>,
}

impl TokenShift {
    /// Initial interpolation weights vary over channels from the token alone to the token before it alone; deeper layers favour the token.
    fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>, rank: usize) -> Self {
        let width = params.settings.width;
        let [depth, remaining_depth] = relative_depth(params);
        let mut init_mu = |input: &str| {
            let (exponent, offset) = match input {
                "r" | "g" => (0.5 * remaining_depth, 0.0),
                "v" => (remaining_depth, 0.3 * depth),
                _ => (remaining_depth, 0.0),
            };
            let initial = |channel: usize| 1.0 - (channel as f64 / width as f64).powf(exponent) - offset;
            init_per_channel(params, &format!("time_maa_{input}"), &[width], initial)
        };
        let (mu_x, mu) = (init_mu("x"), SHIFTED_INPUTS.map(&mut init_mu));
        let (input_count, up_init) = (SHIFTED_INPUTS.len(), Init::Uniform(-0.01, 0.01));
        let down = params.weight("time_maa_w1", &[width, input_count * rank], Init::Constant(0.0));
        let up = params.weight("time_maa_w2", &[input_count, rank, width], up_init);
        Self { mu_x, mu, factors: [down, up], rank, rounding: params.settings.precision.state }
    }

    /// The five interpolated inputs, and the last token, which is the state of the next call.
    fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor, previous_token: Option<&O::Tensor>) -> ([O::Tensor; 5], O::Tensor) {
        let (width, rank) = (ops.shape(x)[2], self.rank);
        let (difference, last) = shift::previous_minus_current(ops, x, previous_token, self.rounding);
        let [down, up] = self.factors.map(|factor| ops.parameter(factor));
        let input = shift::interpolate(ops, x, &difference, &ops.parameter(self.mu_x));
        let low_rank = ops.tanh(&ops.matmul(&input, &down));
        let inputs = std::array::from_fn(|index| {
            let up = ops.reshape(&ops.slice(&up, 0, index..index + 1), &[rank, width]);
            let mu_change = ops.matmul(&ops.slice(&low_rank, 2, index * rank..(index + 1) * rank), &up);
            shift::interpolate(ops, x, &difference, &ops.add(&mu_change, &ops.parameter(self.mu[index])))
        });
        (inputs, last)
    }
}

/// How deep a layer is, from 0 at the first to 1 at the last; and from 1 at the first down to almost 0.
fn relative_depth<S: Scalar>(params: &ParamBuilder<'_, S>) -> [f64; 2] {
    let (layer, layers) = (params.depth.layer as f64, params.depth.layers as f64);
    [layer / (layers - 1.0).max(1.0), 1.0 - layer / layers]
}

/// A parameter without weight decay whose initial value is a function of the channel.
fn init_per_channel<S: Scalar>(
    params: &mut ParamBuilder<'_, S>,
    name: &str,
    shape: &[usize],
    initial: impl Fn(usize) -> f64,
) -> Parameter {
    let channel = Cell::new(0);
    params.parameter_without_weight_decay(
        name,
        shape,
        Init::FromUniform(&|_| initial(channel.replace(channel.get() + 1))),
    )
}

impl MixerConfig for Rwkv6Config {
    type Mixer = Rwkv6;
    const NAME: &'static str = "rwkv6";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::rwkv6);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        shift::reject_channel_shift(Self::NAME, mixer)?;
        let [heads, head_dim] = ["heads", "head"].map(|option| number(mixer, option));
        let [mix_rank, decay_rank] = ["mix-rank", "decay-rank"].map(|option| number(mixer, option));
        Ok(Self { heads, head_dim, mix_rank, decay_rank })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Rwkv6, ModelError> {
        require_causal(Self::NAME, params)?;
        let Self { heads, head_dim, mix_rank, decay_rank } = *self;
        let (width, inner) = (params.settings.width, heads * head_dim);
        let [depth, _] = relative_depth(params);
        // Initial half-lives vary over channels from hundreds of tokens to less than two; deep layers have more of the long ones.
        let fraction = |channel: usize| channel as f64 / (inner as f64 - 1.0).max(1.0);
        let rate = |channel: usize| -6.0 + 5.0 * fraction(channel).powf(0.7 + 1.3 * depth);
        let bonus = |channel: usize| depth * (1.0 - fraction(channel)) + 0.1 * ((channel + 1) % 3) as f64 - 0.1;
        let shift = TokenShift::init(params, mix_rank);
        Ok(Rwkv6 {
            heads,
            shift,
            decay: [
                init_per_channel(params, "time_decay", &[inner], rate),
                params.weight("time_decay_w1", &[width, decay_rank], Init::Constant(0.0)),
                params.weight("time_decay_w2", &[decay_rank, inner], Init::Uniform(-0.01, 0.01)),
            ],
            bonus: init_per_channel(params, "time_faaaa", &[heads, head_dim], bonus),
            receptance: params.role(Role::Query).linear("r_proj", width, inner),
            key: params.role(Role::Key).linear("k_proj", width, inner),
            value: params.role(Role::Value).linear("v_proj", width, inner),
            gate: params.role(Role::Gate).linear("g_proj", width, inner),
            norm: [
                params.parameter_without_weight_decay("ln_x.weight", &[inner], Init::Constant(1.0)),
                params.parameter_without_weight_decay("ln_x.bias", &[inner], Init::Constant(0.0)),
            ],
            output: params.role(Role::Output).linear("o_proj", inner, width),
            recurrence: params.recurrence(),
        })
    }
}

impl Rwkv6 {
    /// Epsilon of the norm of each head.
    const EPSILON: f64 = 64e-5;
    /// Log-decays are at least minus the exponential of this. One token of such a decay erases the state in single and double precision,
    /// and sums of log-decays stay accurate enough for later tokens.
    const MAX_LOG_RATE: f64 = 5.0;

    /// The output of every head before norm and gate, the input of the gate, and the state.
    pub(super) fn head_outputs<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> ([O::Tensor; 2], State<O::Tensor>) {
        let ([decay_input, key_input, value_input, query_input, gate_input], last) =
            self.shift.apply(ops, x, State::tensor(state, 1));
        let [rate, down, up] = self.decay.map(|weight| ops.parameter(weight));
        let rate_change = ops.matmul(&ops.tanh(&ops.matmul(&decay_input, &down)), &up);
        let below_max = ops.relu(&ops.affine(&ops.add(&rate_change, &rate), -1.0, Self::MAX_LOG_RATE));
        let decay = split_heads(ops, &ops.neg(&ops.exp(&ops.affine(&below_max, -1.0, Self::MAX_LOG_RATE))), self.heads);
        let query = self.receptance.apply_and_split_heads(ops, &query_input, self.heads);
        let key = self.key.apply_and_split_heads(ops, &key_input, self.heads);
        let value = self.value.apply_and_split_heads(ops, &value_input, self.heads);
        let time = ops.shape(x)[1];
        // One token late: zeros are written before the first query, and a query of zeros follows the last write.
        let zeros = ops.zeros(&ops.shape(&ops.slice(&key, 1, 0..1)));
        let shift_by_one = |x: &O::Tensor| ops.concat(&[zeros.clone(), x.clone()], 1);
        let inputs = [&ops.concat(&[query.clone(), zeros.clone()], 1), &shift_by_one(&key), &shift_by_one(&value)];
        let (out, matrix) = self.recurrence.run(ops, inputs, Decay::Vector(&shift_by_one(&decay)), None, state);
        let bonus = ops.sum(&ops.mul(&ops.mul(&query, &key), &ops.parameter(self.bonus)), 3);
        let out = ops.add(&ops.slice(&out, 1, 0..time), &ops.mul(&value, &bonus));
        ([out, gate_input], State::new(State::past_len(state) + time, [Some(matrix), Some(last)]))
    }
}

impl TokenMixer for Rwkv6 {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let ([out, gate_input], state) = self.head_outputs(ops, x, state);
        let out = merge_heads(ops, &ops.layer_norm(&out, None, None, Self::EPSILON));
        let [gain, bias] = self.norm.map(|weight| ops.parameter(weight));
        let out = ops.add(&ops.mul(&out, &gain), &bias);
        (self.output.apply(ops, &ops.silu_gate(&self.gate.apply(ops, &gate_input), &out)), state)
    }
}
