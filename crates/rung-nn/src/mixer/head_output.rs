//! The end of most recurrent mixers: a norm of the head outputs, a gate computed from the mixer's input, and the output projection.

use rung_engine::{Ops, Role, Scalar};

use super::TokenMixer;
use crate::param_builder::ParamBuilder;
use crate::state::State;
use crate::submodules::{Linear, NormGain, merge_heads};

/// Norm, gate and output projection after a recurrence.
pub struct HeadOutput {
    pub(super) norm: Option<OutputNorm>,
    pub(super) gate: OutputGate,
    pub(super) projection: Linear,
}

/// An RMS norm of head outputs.
pub(super) struct OutputNorm {
    pub(super) gain: Option<NormGain>,
    pub(super) epsilon: f64,
    /// Whether the norm is over all heads together, not over each separately.
    pub(super) over_all_heads: bool,
}

/// What the normalized head outputs are multiplied by.
pub(super) enum OutputGate {
    /// One: there is no gate.
    None,
    /// The SiLU of a projection of the mixer's input.
    Silu(Linear),
    /// The sigmoid of a projection of the mixer's input.
    Sigmoid(Linear),
    /// The sigmoid of a low-rank projection of the mixer's input: down to the rank, then up to the channels.
    LowRankSigmoid([Linear; 2]),
}

/// A recurrent mixer whose forward pass ends in a [`HeadOutput`].
pub trait RecurrentHeads: Send + Sync {
    /// What all heads read from their states, and the state after the span.
    fn head_outputs<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>);

    /// Norm, gate and output projection.
    fn output(&self) -> &HeadOutput;
}

impl<M: RecurrentHeads> TokenMixer for M {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        let (out, state) = self.head_outputs(ops, x, state);
        (self.output().apply(ops, x, &out), state)
    }
}

impl OutputNorm {
    /// A norm of each head separately, with a gain that all heads share.
    pub(super) fn per_head(gain: NormGain, epsilon: f64) -> Self {
        Self { gain: Some(gain), epsilon, over_all_heads: false }
    }

    /// Normalizes head outputs `[batch, time, heads, width]` and merges the heads.
    fn apply<O: Ops>(&self, ops: &O, head_outputs: &O::Tensor) -> O::Tensor {
        let gain = self.gain.map(|gain| ops.parameter(gain.weight));
        let rms_norm = |x: &O::Tensor| ops.rms_norm(x, gain.as_ref(), self.epsilon);
        if self.over_all_heads {
            rms_norm(&merge_heads(ops, head_outputs))
        } else {
            merge_heads(ops, &rms_norm(head_outputs))
        }
    }
}

impl HeadOutput {
    /// Adds `g_proj` as a SiLU gate, the gain of a norm per head under `norm_name`, and `o_proj`.
    pub(super) fn init_with_silu_gate<S: Scalar>(
        params: &mut ParamBuilder<'_, S>,
        norm_name: &str,
        heads: usize,
        value_dim: usize,
    ) -> Self {
        let (width, inner) = (params.settings.width, heads * value_dim);
        Self {
            gate: OutputGate::Silu(params.role(Role::Gate).linear("g_proj", width, inner)),
            norm: Some(OutputNorm::per_head(params.gain(norm_name, value_dim), NormGain::EPSILON)),
            projection: params.role(Role::Output).linear("o_proj", inner, width),
        }
    }

    /// The mixer's output, from its input `x` and the head outputs `[batch, time, heads, width]` of its recurrence.
    pub(super) fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor, head_outputs: &O::Tensor) -> O::Tensor {
        let out = match &self.norm {
            Some(norm) => norm.apply(ops, head_outputs),
            None => merge_heads(ops, head_outputs),
        };
        let sigmoid_gate = |gate: &O::Tensor| ops.mul(&ops.sigmoid(gate), &out);
        let out = match &self.gate {
            OutputGate::None => out,
            OutputGate::Silu(gate) => ops.silu_gate(&gate.apply(ops, x), &out),
            OutputGate::Sigmoid(gate) => sigmoid_gate(&gate.apply(ops, x)),
            OutputGate::LowRankSigmoid([down, up]) => sigmoid_gate(&up.apply(ops, &down.apply(ops, x))),
        };
        self.projection.apply(ops, &out)
    }
}
