//! The layers of Zamba 2: shared attention blocks over hidden states and embeddings, whose output is added only to the input of the
//! next Mamba-2.
//!
//! ```text
//! u = W mlp(norm(attention(norm([x, embeddings]))))      a block; its weights may be shared with other blocks
//! x = x + mamba(norm(x + u))                             the layer after it
//! ```
//!
//! Both are layers of a plan. A block adds nothing to the residual stream and shares `u` with the layer after it. The first layer shares
//! its input, the embeddings.

use rung_engine::Ops;

use super::mamba2::Mamba2;
use super::softmax::Softmax;
use super::{SharedTensor, State, TokenMixer};
use crate::norm::Norm;
use crate::submodules::Activation;
use crate::submodules::Linear;

/// A mixer of Zamba 2.
pub enum Zamba {
    /// Attention and an MLP after it.
    Block(Box<SharedBlock>),
    /// Mamba-2, to whose input the output of a block may be added.
    Recurrence(Box<Mamba2AfterBlock>),
}

/// Attention over `[x, embeddings]` and an MLP after it.
pub struct SharedBlock {
    /// Norm of the concatenated attention input.
    pub(crate) norm: Norm,
    pub(crate) attention: Softmax,
    pub(crate) mlp_norm: Norm,
    pub(crate) mlp: AdaptedMlp,
    /// From the MLP to what is added to the next mixer's input.
    pub(crate) output: Linear,
}

/// A gated MLP whose weights are shared between blocks, except for a low-rank adapter on its input projection.
#[derive(Clone, Copy)]
pub(crate) struct AdaptedMlp {
    /// Projection to the gate, then to the gated half.
    pub(crate) gate_up: Linear,
    /// The adapter: down to the low rank, and up.
    pub(crate) adapter: (Linear, Linear),
    pub(crate) down: Linear,
    pub(crate) activation: Activation,
}

/// Mamba-2 on the norm of the hidden states plus the output of the block before it, if there is one.
pub struct Mamba2AfterBlock {
    pub(crate) norm: Norm,
    pub(crate) mixer: Mamba2,
}

impl AdaptedMlp {
    fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let (adapter_down, adapter_up) = &self.adapter;
        let gate_up = ops.add(&self.gate_up.apply(ops, x), &adapter_up.apply(ops, &adapter_down.apply(ops, x)));
        let hidden = ops.shape(&gate_up).width() / 2;
        let (gate, up) = (ops.slice(&gate_up, 2, 0..hidden), ops.slice(&gate_up, 2, hidden..2 * hidden));
        self.down.apply(ops, &ops.mul(&self.activation.apply(ops, &gate), &up))
    }
}

/// The hidden states that an earlier mixer shares.
fn shared_hidden<T>(state: Option<&State<T>>) -> Option<&T> {
    match state.and_then(|state| state.shared.as_ref()) {
        Some(SharedTensor::Hidden(hidden)) => Some(hidden),
        _ => None,
    }
}

impl TokenMixer for Zamba {
    fn forward<O: Ops>(
        &self,
        ops: &O,
        x: &O::Tensor,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, State<O::Tensor>) {
        match self {
            Self::Block(block) => {
                let embeddings = shared_hidden(state).expect("the first layer shares the embeddings");
                let input = block.norm.apply(ops, &ops.concat(&[x.clone(), embeddings.clone()], 2));
                let (out, mut next_state) = block.attention.forward(ops, &input, state);
                let out = block.mlp.apply(ops, &block.mlp_norm.apply(ops, &out));
                next_state.shared = Some(SharedTensor::Hidden(block.output.apply(ops, &out)));
                (ops.zeros(&ops.shape(x)), next_state)
            }
            Self::Recurrence(recurrence) => {
                let input = shared_hidden(state).map_or_else(|| x.clone(), |hidden| ops.add(x, hidden));
                let (out, mut next_state) = recurrence.mixer.forward(ops, &recurrence.norm.apply(ops, &input), state);
                next_state.shared = Some(SharedTensor::Hidden(x.clone()));
                (out, next_state)
            }
        }
    }
}
