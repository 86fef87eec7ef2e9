//! The norms of a model.

use rung_engine::{Ops, Parameter, Role, Scalar};

use crate::param_builder::{Init, ParamBuilder};

/// Kind of norm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormConfig {
    /// RMS norm with a gain.
    #[default]
    Rms,
    /// Layer norm with a gain and a bias.
    Layer,
    /// No norm.
    None,
}

/// A norm over the width of the residual stream.
#[derive(Clone, Copy, Debug)]
pub struct Norm {
    weight: Option<Parameter>,
    bias: Option<Parameter>,
    epsilon: f64,
}

impl Norm {
    /// Added to the mean of squares or the variance.
    pub(crate) const EPSILON: f64 = 1e-5;

    /// Adds its weights, if it has any: a gain of ones and a bias of zeros.
    pub fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>, name: &str, config: NormConfig) -> Self {
        let width = params.settings.width;
        let mut add_weight = |role: Role, suffix: &str, value: f64| {
            params.role(role).parameter_without_weight_decay(
                &format!("{name}.{suffix}"),
                &[width],
                Init::Constant(value),
            )
        };
        let weight = (config != NormConfig::None).then(|| add_weight(Role::ResidualNorm, "weight", 1.0));
        let bias = (config == NormConfig::Layer).then(|| add_weight(Role::Other, "bias", 0.0));
        Self { weight, bias, epsilon: Self::EPSILON }
    }

    /// A norm whose weights exist: a layer norm if it has a bias, else an RMS norm.
    pub(crate) fn from_weights(weight: Parameter, bias: Option<Parameter>, epsilon: f64) -> Self {
        Self { weight: Some(weight), bias, epsilon }
    }

    /// No norm: returns its input.
    pub(crate) fn identity() -> Self {
        Self { weight: None, bias: None, epsilon: Self::EPSILON }
    }

    /// Normalizes `x` over its last axis; returns it unchanged if there is no norm.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let Some(weight) = self.weight.map(|weight| ops.parameter(weight)) else { return x.clone() };
        match self.bias {
            Some(bias) => ops.layer_norm(x, Some(&weight), Some(&ops.parameter(bias)), self.epsilon),
            None => ops.rms_norm(x, Some(&weight), self.epsilon),
        }
    }
}
