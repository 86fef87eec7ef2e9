//! The pieces that most mixers are made of.
//!
//! Each holds handles of weights and applies itself through [`Ops`]. They are public because a mixer written outside of this
//! crate wants them too.

use rung_engine::{Decay, Ops, Parameter, Recurrence, Role, Rounding, Scalar};

use crate::mixer::State;
use crate::param_builder::{Init, ParamBuilder};
use crate::precision::rounded;

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

/// Each head of `[batch, time, heads, width]` times its own matrix out of `[heads, rows, columns]`, which `flip` transposes.
///
/// # Panics
/// If `x` has other than four axes.
pub fn by_head<O: Ops>(ops: &O, x: &O::Tensor, matrices: &O::Tensor, flip: bool) -> O::Tensor {
    let [batch, time, heads, width] = ops.shape(x)[..] else { panic!("heads of {}", ops.shape(x)) };
    let x = ops.reshape(&ops.permute(x, &[2, 0, 1, 3]), &[heads, batch * time, width]);
    let out = ops.product(&x, false, matrices, flip);
    let width = ops.shape(&out)[2];
    ops.permute(&ops.reshape(&out, &[heads, batch, time, width]), &[1, 2, 0, 3])
}

/// Queries, keys and values of as many heads each, straight from the token.
#[derive(Clone, Copy, Debug)]
pub struct Projections {
    query: Linear,
    key: Linear,
    value: Linear,
    heads: usize,
}

impl Projections {
    /// Adds `q_proj`, `k_proj` and `v_proj`, filled by a function of their number of outputs.
    pub fn init<S: Scalar>(
        params: &mut ParamBuilder<'_, S>,
        [heads, key, value]: [usize; 3],
        init: impl Fn(usize) -> Init<'static>,
    ) -> Self {
        let width = params.settings.width;
        let mut linear =
            |role: Role, name: &str, outputs: usize| params.role(role).linear_from(name, width, outputs, init(outputs));
        let query = linear(Role::Query, "q_proj", heads * key);
        let key = linear(Role::Key, "k_proj", heads * key);
        let value = linear(Role::Value, "v_proj", heads * value);
        params.tie(&query, &key, heads, heads);
        Self { query, key, value, heads }
    }

    /// Query, key and value, `[batch, time, heads, width]` each.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> [O::Tensor; 3] {
        [&self.query, &self.key, &self.value].map(|projection| projection.heads(ops, x, self.heads))
    }
}

/// `x` within a range, whose ends may be infinite. Numbers inside of it come out as they are.
pub fn clamp<O: Ops>(ops: &O, x: &O::Tensor, [low, high]: [f64; 2]) -> O::Tensor {
    let mut x = x.clone();
    if low.is_finite() {
        x = ops.add(&x, &ops.relu(&ops.affine(&x, -1.0, low)));
    }
    if high.is_finite() {
        x = ops.sub(&x, &ops.relu(&ops.affine(&x, 1.0, -high)));
    }
    x
}

/// `x` divided by the root of its width: the usual scale of queries.
pub fn scaled<O: Ops>(ops: &O, x: &O::Tensor) -> O::Tensor {
    ops.scale(x, (ops.shape(x).width() as f64).powf(-0.5))
}

/// The matrix state of a recurrence: tokens worked at once, and the bits it is kept in.
#[derive(Clone, Copy, Debug)]
pub struct LinearRecurrence {
    /// Tokens per chunk.
    pub chunk: usize,
    /// Bits, if few.
    pub rounding: Option<Rounding>,
}

impl LinearRecurrence {
    /// That of models read from checkpoints: chunks of the usual size, all bits.
    pub const PLAIN: Self = Self { chunk: 64, rounding: None };

    /// Outputs and the matrix after the last token; see [`Ops::recurrence`]. The matrix before the first is `state`'s first
    /// tensor.
    pub fn run<O: Ops>(
        &self,
        ops: &O,
        [query, key, value]: [&O::Tensor; 3],
        decay: Decay<'_, O::Tensor>,
        beta: Option<&O::Tensor>,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, O::Tensor) {
        let Self { chunk, rounding } = *self;
        let state = State::part(state, 0);
        ops.recurrence(&Recurrence { query, key, value, decay, beta, state, chunk, rounding })
    }
}

/// The gain of an RMS norm.
#[derive(Clone, Copy, Debug)]
pub struct NormGain {
    /// One factor per channel.
    pub weight: Parameter,
}

impl NormGain {
    /// The reference mixers' epsilon.
    pub const EPSILON: f64 = 1e-5;

    /// Norm over the last axis.
    pub fn norm<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        self.norm_with(ops, x, Self::EPSILON)
    }

    /// The same with another epsilon.
    pub fn norm_with<O: Ops>(&self, ops: &O, x: &O::Tensor, epsilon: f64) -> O::Tensor {
        ops.rms_norm(x, Some(&ops.parameter(self.weight)), epsilon)
    }

    /// Norm of each of `groups` equal parts of the last axis of `[batch, time, channels]` by itself, with a gain per channel.
    pub fn norm_groups<O: Ops>(&self, ops: &O, x: &O::Tensor, groups: usize, epsilon: f64) -> O::Tensor {
        if groups == 1 {
            return self.norm_with(ops, x, epsilon);
        }
        let normed = ops.rms_norm(&split(ops, x, groups), None, epsilon);
        ops.mul(&join(ops, &normed), &ops.parameter(self.weight))
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
    /// Bits that inputs are kept in.
    pub rounding: Option<Rounding>,
}

impl Convolution {
    /// Output, and the inputs that the next call needs.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&O::Tensor>) -> (O::Tensor, Option<O::Tensor>) {
        let filters = ops.reshape(&ops.parameter(self.weight), &[self.channels, self.taps]);
        let bias = self.bias.map(|bias| ops.parameter(bias));
        let (out, next) = ops.short_convolution(&rounded(ops, x, self.rounding), &filters, bias.as_ref(), state);
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
