//! RWKV-7: a general delta rule with vector gates, behind a token shift.
//!
//! Definition, state and sources: `rung explain rwkv7`.
//!
//! # Computed as
//! One token after another, in one kernel.

use rung_engine::{GeneralDelta, Ops, Parameter, Role, Rounding, Scalar};
use rung_theory::stack::Mixer;

use super::{SharedTensor, MixerConfig, State, TokenMixer, causal_only, number, shift};
use crate::error::ModelError;
use crate::parts::{Linear, LinearRecurrence, join, split};
use crate::param_builder::{Init, ParamBuilder};

/// Sizes of RWKV-7's time mixing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rwkv7Config {
    /// Heads, each with its own state.
    pub heads: usize,
    /// Width of a head's keys and values.
    pub head: usize,
    /// Rank of the decay and of the learning rate; the gate has twice it.
    pub rank: usize,
    /// Rank of the share of the first layer's values.
    pub value_rank: usize,
}

/// RWKV-7's time mixing.
pub struct Rwkv7 {
    config: Rwkv7Config,
    shift: Shift,
    receptance: Linear,
    key: Linear,
    value: Linear,
    /// The share of the first layer's values, unless this is the first.
    mix: Option<[Linear; 2]>,
    /// Down to the rank, then up to the channels with a bias.
    decay: [Linear; 2],
    /// The same for the learning rate.
    rate: [Linear; 2],
    /// The same without a bias.
    gate: [Linear; 2],
    /// `k_k`: factors of the key that is erased.
    erase_scale: Parameter,
    /// `k_a`: how much the learning rate scales the key that is written.
    key_scale: Parameter,
    /// `r_k`: factors of what a token reads of itself.
    bonus: Parameter,
    norm: [Parameter; 2],
    epsilons: Epsilons,
    output: Linear,
    recurrence: LinearRecurrence,
}

/// What keeps norms from dividing by zero.
#[derive(Clone, Copy)]
pub(crate) struct Epsilons {
    /// Added to the variance of a head's output.
    pub(crate) head: f64,
    /// Added to the squared length of the key that is erased.
    pub(crate) key: f64,
}

impl Epsilons {
    /// Those of RWKV-LM, whose keys have a length of at least 1e-12.
    pub(crate) const PUBLISHED: Self = Self { head: 64e-5, key: 1e-24 };
}

/// The weights of RWKV-7's time mixing as a checkpoint has them.
#[derive(Clone, Copy)]
pub(crate) struct Rwkv7Parts {
    /// The earlier token's share per channel, for r, w, k, v, a and g.
    pub(crate) mu: [Parameter; 6],
    /// Receptance, key, value and output.
    pub(crate) projections: [Linear; 4],
    /// The share of the first layer's values, unless this is the first: down to the rank, then up.
    pub(crate) mix: Option<[Linear; 2]>,
    /// The same for the decay, the learning rate and the gate.
    pub(crate) low_rank: [[Linear; 2]; 3],
    /// `k_k`, `k_a` and `r_k`.
    pub(crate) factors: [Parameter; 3],
    /// Gain and offset of the norm per head.
    pub(crate) norm: [Parameter; 2],
    /// Of the norms.
    pub(crate) epsilons: Epsilons,
}

impl Rwkv7Config {
    /// A mixer whose weights were read from a checkpoint.
    pub(crate) fn assemble(self, parts: Rwkv7Parts) -> Rwkv7 {
        let Rwkv7Parts { mu, projections, mix, low_rank, factors, norm, epsilons } = parts;
        let [receptance, key, value, output] = projections;
        let [decay, rate, gate] = low_rank;
        let [erase_scale, key_scale, bonus] = factors;
        Rwkv7 {
            config: self,
            shift: Shift { mu, rounding: None },
            receptance,
            key,
            value,
            mix,
            decay,
            rate,
            gate,
            erase_scale,
            key_scale,
            bonus,
            norm,
            epsilons,
            output,
            recurrence: LinearRecurrence::PLAIN,
        }
    }
}

/// Mixtures of each token with the one before.
struct Shift {
    /// The earlier token's share per channel, for r, w, k, v, a and g.
    mu: [Parameter; 6],
    rounding: Option<Rounding>,
}

impl Shift {
    fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>) -> Self {
        let width = params.settings.width;
        let names = ["x_r", "x_w", "x_k", "x_v", "x_a", "x_g"];
        let mu = names.map(|name| params.weight_without_decay(name, &[width], Init::Uniform(0.0, 1.0)));
        Self { mu, rounding: params.settings.precision.state }
    }

    /// The six mixtures, and the last token.
    fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor, last: Option<&O::Tensor>) -> ([O::Tensor; 6], O::Tensor) {
        let (change, last) = shift::change(ops, x, last, self.rounding);
        (self.mu.map(|mu| shift::mixture(ops, x, &change, &ops.parameter(mu))), last)
    }
}

impl MixerConfig for Rwkv7Config {
    type Mixer = Rwkv7;
    const NAME: &'static str = "rwkv7";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        shift::of_tokens_only(Self::NAME, mixer)?;
        let [heads, head] = ["heads", "head"].map(|option| number(mixer, option));
        Ok(Self { heads, head, rank: number(mixer, "rank"), value_rank: number(mixer, "value-rank") })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Rwkv7, ModelError> {
        causal_only(Self::NAME, params)?;
        let Self { heads, head, rank, .. } = *self;
        let (width, inner) = (params.settings.width, heads * head);
        let low_rank = |params: &mut _, name, rank, bias| low_rank(params, name, [width, rank, inner], bias);
        Ok(Rwkv7 {
            config: *self,
            shift: Shift::init(params),
            receptance: params.role(Role::Query).linear("r_proj", width, inner),
            key: params.role(Role::Key).linear("k_proj", width, inner),
            value: params.role(Role::Value).linear("v_proj", width, inner),
            mix: None,
            // From slow to fast, as in the first layer of the published models, though not in the order of channels.
            decay: low_rank(params, "w_proj", rank, Some(Init::Uniform(-5.5, 0.5))),
            rate: low_rank(params, "a_proj", rank, Some(Init::Uniform(-0.39, 0.01))),
            gate: low_rank(params, "g_proj", 2 * rank, None),
            erase_scale: params.weight_without_decay("k_k", &[inner], Init::Uniform(0.66, 0.76)),
            key_scale: params.weight_without_decay("k_a", &[inner], Init::Constant(1.02)),
            bonus: params.weight_without_decay("r_k", &[inner], Init::Constant(-0.04)),
            norm: [("weight", 1.0), ("bias", 0.0)]
                .map(|(name, value)| params.weight_without_decay(&format!("g_norm.{name}"), &[inner], Init::Constant(value))),
            epsilons: Epsilons::PUBLISHED,
            output: params.role(Role::Output).linear("o_proj", inner, width),
            recurrence: params.recurrence(),
        })
    }
}

/// A low-rank projection; its second factor has a bias if it is given an initial value.
fn low_rank<S: Scalar>(
    params: &mut ParamBuilder<'_, S>,
    name: &str,
    [width, rank, inner]: [usize; 3],
    bias: Option<Init<'_>>,
) -> [Linear; 2] {
    let bias = bias.map(|init| params.weight_without_decay(&format!("{name}.1.bias"), &[inner], init));
    let down = params.linear(&format!("{name}.0"), width, rank);
    [down, Linear { bias, ..params.linear(&format!("{name}.1"), rank, inner) }]
}

impl Rwkv7Config {
    /// The form of layers after the first, which share its values.
    pub(super) fn init_later<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Rwkv7, ModelError> {
        let first = self.init(params)?;
        let sizes = [params.settings.width, self.value_rank, self.heads * self.head];
        Ok(Rwkv7 { mix: Some(low_rank(params, "v_mix", sizes, Some(Init::Uniform(0.53, 0.93)))), ..first })
    }
}

impl TokenMixer for Rwkv7 {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let Rwkv7Config { heads, head, .. } = self.config;
        let low_rank = |[down, up]: &[Linear; 2], x: &O::Tensor, activation: fn(&O, &O::Tensor) -> O::Tensor| {
            up.apply(ops, &activation(ops, &down.apply(ops, x)))
        };
        let ([for_query, for_decay, for_key, for_value, for_learning_rate, for_gate], last) = self.shift.apply(ops, x, State::part(state, 1));
        let query = self.receptance.heads(ops, &for_query, heads);
        let decay = ops.sigmoid(&low_rank(&self.decay, &for_decay, O::tanh));
        let decay = split(ops, &ops.scale(&decay, -(-0.5_f64).exp()), heads);
        let plain_key = self.key.apply(ops, &for_key);
        let own_value = self.value.heads(ops, &for_value, heads);
        let value = match (&self.mix, state.and_then(|state| state.shared.as_ref())) {
            (None, _) => own_value.clone(),
            (Some(mix), Some(SharedTensor::Values(first))) => {
                let share = split(ops, &ops.sigmoid(&low_rank(mix, &for_value, |_, x| x.clone())), heads);
                ops.add(&own_value, &ops.mul(&ops.sub(first, &own_value), &share))
            }
            _ => panic!("a layer after the first is given the first one's values by the model"),
        };
        let rate = ops.sigmoid(&low_rank(&self.rate, &for_learning_rate, |_, x| x.clone()));
        let gate = low_rank(&self.gate, &for_gate, O::sigmoid);

        let recall_key = ops.l2_norm(&split(ops, &ops.mul(&plain_key, &ops.parameter(self.erase_scale)), heads), self.epsilons.key);
        let erase_key = ops.mul(&recall_key, &split(ops, &rate, heads));
        let scale = ops.mul(&ops.affine(&rate, 1.0, -1.0), &ops.parameter(self.key_scale));
        let key = split(ops, &ops.mul(&plain_key, &ops.affine(&scale, 1.0, 1.0)), heads);
        let (read, matrix) = ops.general_delta(&GeneralDelta {
            query: &query,
            key: &key,
            value: &value,
            decay: &decay,
            recall_key: &recall_key,
            erase_key: &erase_key,
            state: State::part(state, 0),
            chunk: self.recurrence.chunk,
            rounding: self.recurrence.rounding,
        });

        let [gain, offset] = self.norm.map(|parameter| ops.parameter(parameter));
        let normed = join(ops, &ops.layer_norm(&read, None, None, self.epsilons.head));
        let normed = ops.add(&ops.mul(&normed, &gain), &offset);
        let bonus = ops.reshape(&ops.parameter(self.bonus), &[heads, head]);
        let bonus = ops.sum(&ops.mul(&ops.mul(&query, &key), &bonus), 3);
        let out = ops.add(&normed, &join(ops, &ops.mul(&bonus, &value)));
        let out = self.output.apply(ops, &ops.mul(&out, &gate));
        let mut next = State::new(State::seen(state) + ops.shape(x)[1], [Some(matrix), Some(last)]);
        next.shared = Some(SharedTensor::Values(own_value));
        (out, next)
    }
}
