//! Feed-forward networks, which process each token separately, except RWKV's, which also reads the previous token.

use rung_engine::{Ops, Parameter, Role, Scalar};

use super::experts::Experts;
use crate::mixer::shift;
use crate::param_builder::ParamBuilder;
use crate::submodules::{Activation, Linear, clamp_max};

/// Type and size of the feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedForwardConfig {
    /// No feed-forward network.
    None,
    /// `W_down gelu(W_up x)`, with the [`Gelu`] of the model.
    Mlp {
        /// Hidden width; four times the width if not given.
        hidden: Option<usize>,
    },
    /// `W_down max(W_up x, 0)`.
    Relu {
        /// Hidden width; four times the width if not given.
        hidden: Option<usize>,
    },
    /// `W_down (silu(W_gate x) . W_up x)`.
    Glu {
        /// Hidden width; eight thirds of the width, rounded up to a multiple of eight, if not given.
        hidden: Option<usize>,
    },
}

/// The GELU of an MLP. The two differ in the fourth digit, and published models use one or the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gelu {
    /// The approximation by a hyperbolic tangent, which has a fused kernel.
    #[default]
    Tanh,
    /// The exact one, by the error function.
    Exact,
}

impl Default for FeedForwardConfig {
    fn default() -> Self {
        Self::Mlp { hidden: None }
    }
}

impl FeedForwardConfig {
    /// The hidden width in a model of this width; none without a feed-forward network.
    pub fn hidden(self, width: usize) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Mlp { hidden } | Self::Relu { hidden } => Some(hidden.unwrap_or(width.saturating_mul(4))),
            Self::Glu { hidden } => Some(hidden.unwrap_or((width.saturating_mul(8) / 3).next_multiple_of(8))),
        }
    }
}

/// An MLP, gated or not.
#[derive(Clone, Copy, Debug)]
pub struct Mlp {
    /// If set, the output of `up` is multiplied by the activation of this projection; otherwise the activation is applied to `up`.
    pub gate: Option<Linear>,
    /// Projection to the hidden width.
    pub up: Linear,
    /// Projection back to the model's width.
    pub down: Linear,
    /// Activation of the gate, or of `up` without a gate.
    pub activation: Activation,
}

/// The feed-forward network of a layer.
pub enum FeedForward {
    /// One network.
    Mlp(Mlp),
    /// A mixture of experts.
    Experts(Box<Experts>),
    /// RWKV's: one network on an interpolation of each token with the previous one.
    TokenShift {
        /// Interpolation weight of the previous token, per channel.
        mu: Parameter,
        /// The network on interpolated tokens.
        network: Mlp,
    },
}

impl Mlp {
    /// Applies it to the last axis.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let up = self.up.apply(ops, x);
        let hidden = match (&self.gate, self.activation) {
            (Some(gate), Activation::Silu) => ops.silu_gate(&gate.apply(ops, x), &up),
            (Some(gate), Activation::ClampedSwish { alpha, limit }) => {
                let gate = clamp_max(ops, &gate.apply(ops, x), limit);
                let up = ops.neg(&clamp_max(ops, &ops.neg(&clamp_max(ops, &up, limit)), limit));
                let gate = ops.mul(&gate, &ops.sigmoid(&ops.scale(&gate, alpha)));
                ops.mul(&ops.affine(&up, 1.0, 1.0), &gate)
            }
            (Some(gate), activation) => ops.mul(&activation.apply(ops, &gate.apply(ops, x)), &up),
            (None, activation) => activation.apply(ops, &up),
        };
        self.down.apply(ops, &hidden)
    }
}

impl FeedForward {
    /// Adds its weights under `mlp`.
    pub fn init<S: Scalar>(params: &mut ParamBuilder<'_, S>, config: FeedForwardConfig, gelu: Gelu) -> Option<Self> {
        let width = params.settings.width;
        let (hidden, gated) = (config.hidden(width)?, matches!(config, FeedForwardConfig::Glu { .. }));
        let activation = match (config, gelu) {
            (FeedForwardConfig::Glu { .. }, _) => Activation::Silu,
            (FeedForwardConfig::Relu { .. }, _) => Activation::Relu,
            (_, Gelu::Tanh) => Activation::GeluTanh,
            (_, Gelu::Exact) => Activation::GeluExact,
        };
        Some(Self::Mlp(params.with_prefix("mlp", |params| Mlp {
            gate: gated.then(|| params.linear("gate_proj", width, hidden)),
            up: params.linear("up_proj", width, hidden),
            down: params.role(Role::Output).linear("down_proj", hidden, width),
            activation,
        })))
    }

    /// Whether it has a token shift.
    pub fn has_token_shift(&self) -> bool {
        matches!(self, Self::TokenShift { .. })
    }

    /// Applies it to the last axis of `x`. With a token shift, `previous` is the token before the first of `x`, `None` at the start of a
    /// sequence, and the second result is the last token of `x`.
    #[inline(never)]
    pub fn apply<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        previous: Option<&O::Tensor>,
    ) -> (O::Tensor, Option<O::Tensor>) {
        match self {
            Self::Mlp(dense) => (dense.apply(ops, x), None),
            Self::Experts(experts) => (experts.apply(ops, x), None),
            Self::TokenShift { mu, network } => {
                let (difference, last) = shift::previous_minus_current(ops, x, previous, None);
                (network.apply(ops, &shift::interpolate(ops, x, &difference, &ops.parameter(*mu))), Some(last))
            }
        }
    }
}
