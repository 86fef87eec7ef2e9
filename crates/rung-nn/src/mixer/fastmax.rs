//! Fastmax: softmax whose exponential is replaced by its Taylor polynomial of order 1 or 2.
//!
//! Definition, state and sources: `rung explain fastmax`.
//!
//! # Computed as
//! Linear attention in chunks with features of q and k whose inner product is exactly `f(q.k)`, where `f(x) = 1 + x` or
//! `1 + x + x^2 / 2`.

use rung_engine::{Decay, Ops, Role, Scalar};
use rung_theory::stack::Mixer;

use super::head_output::{HeadOutput, OutputGate, RecurrentHeads};
use super::{MixerConfig, State, number, require_causal};
use crate::error::ModelError;
use crate::forwarding_weights::{self, WriteForwarding};
use crate::param_builder::{Init, ParamBuilder};
use crate::submodules::{LinearRecurrence, QkvProjection};

/// Sizes of Fastmax.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastmaxConfig {
    /// Order of the Taylor polynomial, 1 or 2.
    pub order: usize,
    /// Number of heads.
    pub heads: usize,
    /// Width of a key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
}

/// Fastmax attention.
pub struct Fastmax {
    config: FastmaxConfig,
    projections: QkvProjection,
    recurrence: LinearRecurrence,
    output: HeadOutput,
}

impl MixerConfig for FastmaxConfig {
    type Mixer = Fastmax;
    const NAME: &'static str = "fastmax";
    const FORWARDING: Option<WriteForwarding> = Some(forwarding_weights::fastmax);

    fn resolve(mixer: &Mixer) -> Result<Self, ModelError> {
        let [order, heads, key_dim, value_dim] = ["order", "heads", "key", "value"].map(|option| number(mixer, option));
        Ok(Self { order, heads, key_dim, value_dim })
    }

    fn init<S: Scalar>(&self, params: &mut ParamBuilder<'_, S>) -> Result<Fastmax, ModelError> {
        require_causal(Self::NAME, params)?;
        let Self { heads, key_dim, value_dim, .. } = *self;
        let width = params.settings.width;
        let init = Init::Normal(params.settings.init_std);
        Ok(Fastmax {
            config: *self,
            projections: QkvProjection::init(params, [heads, key_dim, value_dim], |_| init),
            recurrence: params.recurrence(),
            output: HeadOutput {
                norm: None,
                gate: OutputGate::None,
                projection: params.role(Role::Output).linear("o_proj", heads * value_dim, width),
            },
        })
    }
}

impl Fastmax {
    /// Added to the squared length of queries and keys before they are normalised.
    const UNIT_EPSILON: f64 = 1e-6;
    /// Keeps the divisor above zero: at order 1, a key opposite to the query has a weight of zero.
    const EPSILON: f64 = 1e-6;

    /// `[1, x]` or `[1, x, vec(x x') / sqrt 2]` of unit vectors.
    fn features<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let [batch, time, heads, width] = ops.shape(x)[..] else { panic!("heads of {}", ops.shape(x)) };
        let x = ops.l2_norm(x, Self::UNIT_EPSILON);
        let mut features = vec![ops.full(&[batch, time, heads, 1], 1.0), x.clone()];
        if self.config.order == 2 {
            let column = ops.reshape(&x, &[batch, time, heads, width, 1]);
            let row = ops.reshape(&x, &[batch, time, heads, 1, width]);
            let products = ops.reshape(&ops.mul(&column, &row), &[batch, time, heads, width * width]);
            features.push(ops.scale(&products, 0.5_f64.sqrt()));
        }
        ops.concat(&features, 3)
    }
}

impl RecurrentHeads for Fastmax {
    /// The output of every head before the projection, and the state.
    fn head_outputs<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let FastmaxConfig { heads, value_dim, .. } = self.config;
        let (batch, time) = (ops.shape(x)[0], ops.shape(x)[1]);
        let [query, key, value] = self.projections.apply(ops, x);
        let (query, key) = (self.features(ops, &query), self.features(ops, &key));
        let value = ops.concat(&[value, ops.full(&[batch, time, heads, 1], 1.0)], 3);
        let (sums, matrix) = self.recurrence.run(ops, [&query, &key, &value], Decay::None, None, state);
        // The last channel, whose values are 1, has the sum of attention weights.
        let weight_sum = ops.affine(&ops.slice(&sums, 3, value_dim..value_dim + 1), 1.0, Self::EPSILON);
        let out = ops.div(&ops.slice(&sums, 3, 0..value_dim), &weight_sum);
        (out, State::new(State::past_len(state) + time, [Some(matrix)]))
    }

    fn output(&self) -> &HeadOutput {
        &self.output
    }
}
