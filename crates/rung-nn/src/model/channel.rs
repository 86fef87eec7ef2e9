//! Channel mixers: what happens to each token by itself.

use rung_engine::{Ops, Role, Scalar};

use crate::parts::Linear;
use crate::site::Site;

/// Kind and size of the channel mixer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelConfig {
    /// None: attention-only layers.
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

/// Which GELU an MLP applies. Models were trained with either, and they differ in the fourth digit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gelu {
    /// The approximation by a hyperbolic tangent, which has a kernel.
    #[default]
    Tanh,
    /// The exact one, by the error function.
    Exact,
}

impl Default for ChannelConfig {
    fn default() -> Self {
        Self::Mlp { hidden: None }
    }
}

/// A channel mixer.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    gate: Option<Linear>,
    up: Linear,
    down: Linear,
    gelu: Gelu,
    relu: bool,
}

impl Channel {
    /// Adds its weights under `mlp`.
    pub fn init<S: Scalar>(site: &mut Site<'_, S>, config: ChannelConfig, gelu: Gelu) -> Option<Self> {
        let width = site.settings.width;
        let (hidden, gated) = match config {
            ChannelConfig::None => return None,
            ChannelConfig::Mlp { hidden } | ChannelConfig::Relu { hidden } => {
                (hidden.unwrap_or(width.saturating_mul(4)), false)
            }
            ChannelConfig::Glu { hidden } => {
                (hidden.unwrap_or((width.saturating_mul(8) / 3).next_multiple_of(8)), true)
            }
        };
        Some(site.within("mlp", |site| Self {
            gate: gated.then(|| site.linear("gate_proj", width, hidden)),
            up: site.linear("up_proj", width, hidden),
            down: site.role(Role::Output).linear("down_proj", hidden, width),
            gelu,
            relu: matches!(config, ChannelConfig::Relu { .. }),
        }))
    }

    /// Applies it to the last axis.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let up = self.up.apply(ops, x);
        let hidden = match (&self.gate, self.gelu) {
            (Some(gate), _) => ops.silu_gate(&gate.apply(ops, x), &up),
            (None, _) if self.relu => ops.relu(&up),
            (None, Gelu::Tanh) => ops.gelu(&up),
            (None, Gelu::Exact) => ops.gelu_exact(&up),
        };
        self.down.apply(ops, &hidden)
    }
}
