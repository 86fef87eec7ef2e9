//! Fastmax: softmax with its exponential cut after one or two terms.
//!
//! Definition, state and sources: `rung explain fastmax`.
//!
//! # Computed as
//! `A_ts = f(q_t.k_s) / sum f` with `f(x) = 1 + x` or `1 + x + x^2 / 2`, which the features factorise exactly; in
//! chunks.

use rung_engine::{Decay, Ops, Role, Scalar};
use rung_theory::stack::Mixer;

use super::{MixerConfig, State, TokenMixer, causal_only, number};
use crate::error::ModelError;
use crate::parts::{Linear, LinearRecurrence, Projections, join};
use crate::param_builder::{Init, ParamBuilder};

/// Sizes of Fastmax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastmaxConfig {
    /// Terms kept after the constant, 1 or 2.
    pub order: usize,
    /// Heads.
    pub heads: usize,
    /// Width of a key head.
    pub key: usize,
    /// Width of a value head.
    pub value: usize,
}

/// Fastmax attention.
pub struct Fastmax {
    config: FastmaxConfig,
    projections: Projections,
    output: Linear,
    recurrence: LinearRecurrence,
}

impl MixerConfig for FastmaxConfig {
    type Mixer = Fastmax;
    const NAME: &'static str = "fastmax";

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [order, heads, key, value] = ["order", "heads", "key", "value"].map(|option| number(mixer, option));
        Ok(Self { order, heads, key, value })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Fastmax, ModelError> {
        causal_only(Self::NAME, params)?;
        let Self { heads, key, value, .. } = *self;
        let width = params.settings.width;
        let init = Init::Normal(params.settings.deviation);
        Ok(Fastmax {
            config: *self,
            projections: Projections::init(params, [heads, key, value], |_| init),
            output: params.role(Role::Output).linear("o_proj", heads * value, width),
            recurrence: params.recurrence(),
        })
    }
}

impl Fastmax {
    /// Under the root of a unit vector's length.
    const UNIT: f64 = 1e-6;
    /// Keeps the division away from zero: of the first order, a key opposite to the query has no weight at all.
    const EPSILON: f64 = 1e-6;

    /// `[1, x]` or `[1, x, vec(x x') / sqrt 2]` of unit vectors.
    fn features<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let [batch, time, heads, width] = ops.shape(x)[..] else { panic!("heads of {}", ops.shape(x)) };
        let x = ops.l2_norm(x, Self::UNIT);
        let mut parts = vec![ops.full(&[batch, time, heads, 1], 1.0), x.clone()];
        if self.config.order == 2 {
            let column = ops.reshape(&x, &[batch, time, heads, width, 1]);
            let row = ops.reshape(&x, &[batch, time, heads, 1, width]);
            let pairs = ops.reshape(&ops.mul(&column, &row), &[batch, time, heads, width * width]);
            parts.push(ops.scale(&pairs, 0.5_f64.sqrt()));
        }
        ops.concat(&parts, 3)
    }

    /// The read of every head before the projection, and the state.
    pub(super) fn read<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let FastmaxConfig { heads, value: width, .. } = self.config;
        let (batch, time) = (ops.shape(x)[0], ops.shape(x)[1]);
        let [query, key, value] = self.projections.apply(ops, x);
        let (query, key) = (self.features(ops, &query), self.features(ops, &key));
        let value = ops.concat(&[value, ops.full(&[batch, time, heads, 1], 1.0)], 3);
        let (sums, matrix) = self.recurrence.run(ops, [&query, &key, &value], Decay::None, None, state);
        let weight = ops.affine(&ops.slice(&sums, 3, width..width + 1), 1.0, Self::EPSILON);
        let out = ops.div(&ops.slice(&sums, 3, 0..width), &weight);
        (out, State::new(State::seen(state) + time, [Some(matrix)]))
    }
}

impl TokenMixer for Fastmax {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.read(ops, x, state);
        (self.output.apply(ops, &join(ops, &out)), state)
    }
}
