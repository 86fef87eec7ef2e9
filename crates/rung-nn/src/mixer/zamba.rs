//! The parts of Zamba 2: attention over the stream beside the embeddings, whose result only the next mixer sees.
//!
//! ```text
//! u = W network(norm(attention(norm([x, first x]))))     a block; its weights may be shared with other blocks
//! x = x + mamba(norm(x + u))                             the layer after it
//! ```
//!
//! Both are layers of a plan. A block adds nothing to the stream and shares `u` with the layer after it. The first layer shares the stream that
//! it was given.

use rung_engine::Ops;

use super::mamba2::Mamba2;
use super::softmax::Softmax;
use super::{SharedTensor, State, TokenMixer};
use crate::model::{Activation, Norm};
use crate::parts::Linear;

/// A part of Zamba 2.
pub enum Zamba {
    /// Attention and a network behind it.
    Block(Box<SharedBlock>),
    /// A recurrence that may come after a block.
    Recurrence(Box<StreamRecurrence>),
}

/// Attention over `[x, first x]` and a network behind it.
pub struct SharedBlock {
    /// Over both.
    pub(crate) norm: Norm,
    pub(crate) attention: Softmax,
    pub(crate) network_norm: Norm,
    pub(crate) network: AdaptedNetwork,
    /// From the network to what is added to the next mixer's input.
    pub(crate) output: Linear,
}

/// A gated network whose first projection has a low-rank part of the layer's own.
#[derive(Clone, Copy)]
pub(crate) struct AdaptedNetwork {
    /// Into the gate and the other half, one after the other.
    pub(crate) both: Linear,
    /// Down to the low rank, and up.
    pub(crate) adapter: (Linear, Linear),
    pub(crate) down: Linear,
    pub(crate) activation: Activation,
}

/// Mamba-2 that reads the stream, and what the block before it gave, through a norm.
pub struct StreamRecurrence {
    pub(crate) norm: Norm,
    pub(crate) mixer: Mamba2,
}

impl AdaptedNetwork {
    fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let (low, high) = &self.adapter;
        let both = ops.add(&self.both.apply(ops, x), &high.apply(ops, &low.apply(ops, x)));
        let hidden = ops.shape(&both).width() / 2;
        let (gate, up) = (ops.slice(&both, 2, 0..hidden), ops.slice(&both, 2, hidden..2 * hidden));
        self.down.apply(ops, &ops.mul(&self.activation.apply(ops, &gate), &up))
    }
}

/// The stream that another mixer shares.
fn shared<T>(state: Option<&State<T>>) -> Option<&T> {
    match state.and_then(|state| state.shared.as_ref()) {
        Some(SharedTensor::Stream(stream)) => Some(stream),
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
                let first = shared(state).expect("the first layer shares its stream");
                let both = block.norm.apply(ops, &ops.concat(&[x.clone(), first.clone()], 2));
                let (out, mut next) = block.attention.forward(ops, &both, state);
                let out = block.network.apply(ops, &block.network_norm.apply(ops, &out));
                next.shared = Some(SharedTensor::Stream(block.output.apply(ops, &out)));
                (ops.zeros(&ops.shape(x)), next)
            }
            Self::Recurrence(recurrence) => {
                let input = shared(state).map_or_else(|| x.clone(), |more| ops.add(x, more));
                let (out, mut next) = recurrence.mixer.forward(ops, &recurrence.norm.apply(ops, &input), state);
                next.shared = Some(SharedTensor::Stream(x.clone()));
                (out, next)
            }
        }
    }
}
