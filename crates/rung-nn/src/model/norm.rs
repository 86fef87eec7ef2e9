//! The norms of a model.

use rung_engine::{Ops, Parameter, Role, Scalar};

use crate::param_builder::{Init, ParamBuilder};

/// Kind of norm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NormConfig {
    /// Divide by the root mean square; a gain.
    #[default]
    Rms,
    /// Subtract the mean, divide by the deviation; a gain and a bias.
    Layer,
    /// None: the stream is read as it is.
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
    /// Added to the mean of squares.
    pub(crate) const EPSILON: f64 = 1e-5;

    /// Adds its weights, if it has any: ones, and zeros.
    pub fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>, name: &str, config: NormConfig) -> Self {
        let width = params.settings.width;
        let mut offset = |role: Role, what: &str, value: f64| {
            params.role(role).weight_without_decay(&format!("{name}.{what}"), &[width], Init::Constant(value))
        };
        let weight = (config != NormConfig::None).then(|| offset(Role::StreamNorm, "weight", 1.0));
        let bias = (config == NormConfig::Layer).then(|| offset(Role::Other, "bias", 0.0));
        Self { weight, bias, epsilon: Self::EPSILON }
    }

    /// A norm with weights that exist: a layer norm if it has a bias, else an RMS norm; none at all without a weight.
    pub(crate) fn of(weight: Option<Parameter>, bias: Option<Parameter>, epsilon: f64) -> Self {
        Self { weight, bias, epsilon }
    }

    /// Norms the last axis.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let Some(weight) = self.weight.map(|weight| ops.parameter(weight)) else { return x.clone() };
        match self.bias {
            Some(bias) => ops.layer_norm(x, Some(&weight), Some(&ops.parameter(bias)), self.epsilon),
            None => ops.rms_norm(x, Some(&weight), self.epsilon),
        }
    }
}
