//! The pieces that most mixers are made of.
//!
//! Each holds handles of weights and applies itself through [`Ops`]. They are public because a mixer written outside of this
//! crate wants them too.

use rung_engine::{Ops, Parameter};

/// A projection, `x W' + b` with W as `[out, in]`.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    /// `[out, in]`.
    pub weight: Parameter,
    /// `[out]`.
    pub bias: Option<Parameter>,
}

impl Linear {
    /// Applies it to the last axis.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let bias = self.bias.map(|bias| ops.parameter(bias));
        ops.linear(x, &ops.parameter(self.weight), bias.as_ref())
    }

    /// Applies it and splits the result into heads: `[batch, time, heads, width]`.
    pub fn heads<O: Ops>(&self, ops: &O, x: &O::Tensor, heads: usize) -> O::Tensor {
        split(ops, &self.apply(ops, x), heads)
    }
}

/// `[batch, time, heads * width]` as `[batch, time, heads, width]`.
pub fn split<O: Ops>(ops: &O, x: &O::Tensor, heads: usize) -> O::Tensor {
    let shape = ops.shape(x);
    ops.reshape(x, &[shape[0], shape[1], heads, shape[2] / heads])
}

/// `[batch, time, heads, width]` as `[batch, time, heads * width]`.
pub fn join<O: Ops>(ops: &O, x: &O::Tensor) -> O::Tensor {
    let shape = ops.shape(x);
    ops.reshape(x, &[shape[0], shape[1], shape[2] * shape[3]])
}

/// The gain of an RMS norm.
#[derive(Clone, Copy, Debug)]
pub struct Gain {
    /// One factor per channel.
    pub weight: Parameter,
}

impl Gain {
    /// The reference mixers' epsilon.
    pub const EPSILON: f64 = 1e-5;

    /// Norm over the last axis.
    pub fn norm<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        ops.rms_norm(x, Some(&ops.parameter(self.weight)), Self::EPSILON)
    }
}

/// A short depthwise convolution over time.
#[derive(Clone, Copy, Debug)]
pub struct Convolution {
    /// `[channels, 1, taps]`, as PyTorch's `Conv1d` has it; the last tap is on the current token.
    pub weight: Parameter,
    /// `[channels]`.
    pub bias: Option<Parameter>,
    /// Channels.
    pub channels: usize,
    /// Taps.
    pub taps: usize,
}

impl Convolution {
    /// Output, and the inputs that the next call needs.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&O::Tensor>) -> (O::Tensor, Option<O::Tensor>) {
        let filters = ops.reshape(&ops.parameter(self.weight), &[self.channels, self.taps]);
        let bias = self.bias.map(|bias| ops.parameter(bias));
        let (out, next) = ops.short_convolution(x, &filters, bias.as_ref(), state);
        (out, (self.taps > 1).then_some(next))
    }
}

/// Projection, optional short convolution, SiLU: how the delta family makes queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The projection.
    pub projection: Linear,
    /// The convolution, if there is one.
    pub convolution: Option<Convolution>,
    /// Heads of the result.
    pub heads: usize,
}

impl Stream {
    /// `[batch, time, heads, width]`, and the convolution's state.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&O::Tensor>) -> (O::Tensor, Option<O::Tensor>) {
        let x = self.projection.apply(ops, x);
        let (x, next) = match &self.convolution {
            Some(convolution) => convolution.apply(ops, &x, state),
            None => (x, None),
        };
        (split(ops, &ops.silu(&x), self.heads), next)
    }
}
