//! RWKV-7: a generalised delta rule with vector gates, after a token shift.
//!
//! Definition, state and sources: `rung explain rwkv7`.
//!
//! # Computed as
//! Token by token, in one kernel.

use rung_engine::{GeneralDelta, Ops, Parameter, Role, Rounding, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, SharedTensor, State, TokenMixer, number, require_causal, shift};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::{Init, ParamBuilder};
use crate::submodules::{Linear, LinearRecurrence, merge_heads, split_heads};

/// Sizes of RWKV-7's time mixing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rwkv7Config {
    /// Number of heads, each with its own state.
    pub heads: usize,
    /// Width of a head's keys and values.
    pub head_dim: usize,
    /// Rank of the decay and of the learning rate; the gate has twice this rank.
    pub rank: usize,
    /// Rank of the interpolation with the first layer's values.
    pub value_rank: usize,
}

/// RWKV-7's time mixing.
pub struct Rwkv7 {
    config: Rwkv7Config,
    shift: TokenShift,
    receptance: Linear,
    key: Linear,
    value: Linear,
    /// Interpolation weight of the first layer's values: down to the rank, then up. None in the first layer.
    value_mix: Option<[Linear; 2]>,
    /// Decay: down to the rank, then up to the channels with a bias.
    decay: [Linear; 2],
    /// In-context learning rate `a` of the delta rule: down to the rank, then up with a bias.
    in_context_learning_rate: [Linear; 2],
    /// Output gate: down to the rank, then up without a bias.
    gate: [Linear; 2],
    /// `k_k`: scale of the key that is erased.
    erase_scale: Parameter,
    /// `k_a`: how much the learning rate scales the key that is written.
    key_scale: Parameter,
    /// `r_k`: weight of a token's own contribution.
    bonus: Parameter,
    norm: [Parameter; 2],
    epsilons: Epsilons,
    output: Linear,
    recurrence: LinearRecurrence,
}

/// Epsilons of the norms.
#[derive(Clone, Copy)]
pub(crate) struct Epsilons {
    /// Added to the variance of a head's output.
    pub(crate) head: f64,
    /// Added to the squared length of the key that is erased.
    pub(crate) key: f64,
}

impl Epsilons {
    /// Those of RWKV-LM, whose keys have a length of at least 1e-12.
    pub(crate) const RWKV_LM: Self = Self { head: 64e-5, key: 1e-24 };
}

/// The weights of RWKV-7's time mixing, as read from a checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct Rwkv7Weights {
    /// Interpolation weight of the token before, per channel, for r, w, k, v, a and g.
    pub(crate) mu: [Parameter; 6],
    pub(crate) receptance: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    pub(crate) output: Linear,
    /// Interpolation weight of the first layer's values: down to the rank, then up. None in the first layer.
    pub(crate) value_mix: Option<[Linear; 2]>,
    /// `w`: down to the rank, then up.
    pub(crate) decay: [Linear; 2],
    /// `a`: down to the rank, then up.
    pub(crate) in_context_learning_rate: [Linear; 2],
    /// `g`: down to the rank, then up.
    pub(crate) gate: [Linear; 2],
    /// `k_k`: scale of the key that is erased.
    pub(crate) erase_scale: Parameter,
    /// `k_a`: how much the learning rate scales the key that is written.
    pub(crate) key_scale: Parameter,
    /// `r_k`: weight of a token's own contribution.
    pub(crate) bonus: Parameter,
    /// Gain and offset of the norm per head.
    pub(crate) norm: [Parameter; 2],
    /// Epsilons of the norms.
    pub(crate) epsilons: Epsilons,
}

impl Rwkv7Config {
    /// A mixer whose weights were read from a checkpoint.
    pub(crate) fn assemble(self, weights: Rwkv7Weights) -> Rwkv7 {
        Rwkv7 {
            config: self,
            shift: TokenShift { mu: weights.mu, rounding: None },
            receptance: weights.receptance,
            key: weights.key,
            value: weights.value,
            value_mix: weights.value_mix,
            decay: weights.decay,
            in_context_learning_rate: weights.in_context_learning_rate,
            gate: weights.gate,
            erase_scale: weights.erase_scale,
            key_scale: weights.key_scale,
            bonus: weights.bonus,
            norm: weights.norm,
            epsilons: weights.epsilons,
            output: weights.output,
            recurrence: LinearRecurrence::FULL_PRECISION,
        }
    }
}

/// The token shift: six interpolations of each token with the one before it.
struct TokenShift {
    /// Interpolation weight of the token before, per channel, for r, w, k, v, a and g.
    mu: [Parameter; 6],
    rounding: Option<Rounding>,
}

impl TokenShift {
    fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>) -> Self {
        let width = params.settings.width;
        let names = ["x_r", "x_w", "x_k", "x_v", "x_a", "x_g"];
        let mu = names.map(|name| params.parameter_without_weight_decay(name, &[width], Init::Uniform(0.0, 1.0)));
        Self { mu, rounding: params.settings.precision.state }
    }

    /// The six interpolated inputs, and the last token, which is the state of the next call.
    fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor, last: Option<&O::Tensor>) -> ([O::Tensor; 6], O::Tensor) {
        let (difference, last) = shift::previous_minus_current(ops, x, last, self.rounding);
        (self.mu.map(|mu| shift::interpolate(ops, x, &difference, &ops.parameter(mu))), last)
    }
}

impl MixerConfig for Rwkv7Config {
    type Mixer = Rwkv7;
    const NAME: &'static str = "rwkv7";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::rwkv7);

    fn value_identity(mixer: &Mixer) -> Option<[Option<u64>; 2]> {
        Some(["heads", "head"].map(|option| mixer.number(option)))
    }

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        shift::reject_channel_shift(Self::NAME, mixer)?;
        let [heads, head_dim] = ["heads", "head"].map(|option| number(mixer, option));
        Ok(Self { heads, head_dim, rank: number(mixer, "rank"), value_rank: number(mixer, "value-rank") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Rwkv7, ModelError> {
        require_causal(Self::NAME, params)?;
        let Self { heads, head_dim, rank, .. } = *self;
        let (width, inner) = (params.settings.width, heads * head_dim);
        let low_rank = |params: &mut _, name, rank, bias| low_rank(params, name, [width, rank, inner], bias);
        Ok(Rwkv7 {
            config: *self,
            shift: TokenShift::init(params),
            receptance: params.role(Role::Query).linear("r_proj", width, inner),
            key: params.role(Role::Key).linear("k_proj", width, inner),
            value: params.role(Role::Value).linear("v_proj", width, inner),
            value_mix: None,
            // The range of the first layer of the published models, where it rises with the channel; here it is random.
            decay: low_rank(params, "w_proj", rank, Some(Init::Uniform(-5.5, 0.5))),
            in_context_learning_rate: low_rank(params, "a_proj", rank, Some(Init::Uniform(-0.39, 0.01))),
            gate: low_rank(params, "g_proj", 2 * rank, None),
            erase_scale: params.parameter_without_weight_decay("k_k", &[inner], Init::Uniform(0.66, 0.76)),
            key_scale: params.parameter_without_weight_decay("k_a", &[inner], Init::Constant(1.02)),
            bonus: params.parameter_without_weight_decay("r_k", &[inner], Init::Constant(-0.04)),
            norm: [("weight", 1.0), ("bias", 0.0)].map(|(name, value)| {
                params.parameter_without_weight_decay(&format!("g_norm.{name}"), &[inner], Init::Constant(value))
            }),
            epsilons: Epsilons::RWKV_LM,
            output: params.role(Role::Output).linear("o_proj", inner, width),
            recurrence: params.recurrence(),
        })
    }
}

/// A low-rank projection; the second factor has a bias if `bias` has its initial values.
fn low_rank<S: Scalar>(
    params: &mut ParamBuilder<'_, S>,
    name: &str,
    [width, rank, inner]: [usize; 3],
    bias: Option<Init<'_>>,
) -> [Linear; 2] {
    let bias = bias.map(|init| params.parameter_without_weight_decay(&format!("{name}.1.bias"), &[inner], init));
    let down = params.linear(&format!("{name}.0"), width, rank);
    [down, Linear { bias, ..params.linear(&format!("{name}.1"), rank, inner) }]
}

impl Rwkv7Config {
    /// The mixer of a layer after the first, which interpolates its values with those of the first.
    pub(super) fn init_with_shared_values<S: Scalar>(
        &self,
        params: &mut ParamBuilder<'_, S>,
    ) -> Result<Rwkv7, ModelError> {
        let first = self.init(params)?;
        let sizes = [params.settings.width, self.value_rank, self.heads * self.head_dim];
        Ok(Rwkv7 { value_mix: Some(low_rank(params, "v_mix", sizes, Some(Init::Uniform(0.53, 0.93)))), ..first })
    }
}

impl TokenMixer for Rwkv7 {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let Rwkv7Config { heads, head_dim, .. } = self.config;
        let low_rank = |[down, up]: &[Linear; 2], x: &O::Tensor, activation: fn(&O, &O::Tensor) -> O::Tensor| {
            up.apply(ops, &activation(ops, &down.apply(ops, x)))
        };
        let ([for_query, for_decay, for_key, for_value, for_learning_rate, for_gate], last) =
            self.shift.apply(ops, x, State::tensor(state, 1));
        let query = self.receptance.apply_and_split_heads(ops, &for_query, heads);
        let decay = ops.sigmoid(&low_rank(&self.decay, &for_decay, O::tanh));
        let decay = split_heads(ops, &ops.scale(&decay, -(-0.5_f64).exp()), heads);
        let projected_key = self.key.apply(ops, &for_key);
        let layer_value = self.value.apply_and_split_heads(ops, &for_value, heads);
        let value = match (&self.value_mix, state.and_then(|state| state.shared.as_ref())) {
            (None, _) => layer_value.clone(),
            (Some(value_mix), Some(SharedTensor::Values(first))) => {
                let weight = split_heads(ops, &ops.sigmoid(&low_rank(value_mix, &for_value, |_, x| x.clone())), heads);
                ops.add(&layer_value, &ops.mul(&ops.sub(first, &layer_value), &weight))
            }
            _ => panic!("the model passes the first layer's values in the state"),
        };
        let learning_rate =
            ops.sigmoid(&low_rank(&self.in_context_learning_rate, &for_learning_rate, |_, x| x.clone()));
        let gate = low_rank(&self.gate, &for_gate, O::sigmoid);

        let recall_key = ops.l2_norm(
            &split_heads(ops, &ops.mul(&projected_key, &ops.parameter(self.erase_scale)), heads),
            self.epsilons.key,
        );
        let erase_key = ops.mul(&recall_key, &split_heads(ops, &learning_rate, heads));
        let scale = ops.mul(&ops.affine(&learning_rate, 1.0, -1.0), &ops.parameter(self.key_scale));
        let key = split_heads(ops, &ops.mul(&projected_key, &ops.affine(&scale, 1.0, 1.0)), heads);
        let (head_outputs, matrix) = ops.general_delta(&GeneralDelta {
            query: &query,
            key: &key,
            value: &value,
            decay: &decay,
            recall_key: &recall_key,
            erase_key: &erase_key,
            state: State::tensor(state, 0),
            chunk: self.recurrence.chunk,
            rounding: self.recurrence.rounding,
        });

        let [gain, offset] = self.norm.map(|parameter| ops.parameter(parameter));
        let normed = merge_heads(ops, &ops.layer_norm(&head_outputs, None, None, self.epsilons.head));
        let normed = ops.add(&ops.mul(&normed, &gain), &offset);
        let bonus = ops.reshape(&ops.parameter(self.bonus), &[heads, head_dim]);
        let bonus = ops.sum(&ops.mul(&ops.mul(&query, &key), &bonus), 3);
        let out = ops.add(&normed, &merge_heads(ops, &ops.mul(&bonus, &value)));
        let out = self.output.apply(ops, &ops.mul(&out, &gate));
        let mut next = State::new(State::past_len(state) + ops.shape(x)[1], [Some(matrix), Some(last)]);
        next.shared = Some(SharedTensor::Values(layer_value));
        (out, next)
    }
}
