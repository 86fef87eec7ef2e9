//! Submodules that most mixers share: projections, norms, convolutions, recurrences.
//!
//! Each has the handles of its weights and runs through [`Ops`]. They are public so that mixers outside of this crate can use them.

use rung_engine::{Decay, Ops, Parameter, Recurrence, Role, Rounding, Scalar};

use crate::mixer::State;
use crate::param_builder::{Init, ParamBuilder};
use crate::precision::apply_rounding;

/// A projection, `x Wᵀ + b`, as PyTorch's `nn.Linear`.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    /// The matrix W, `[out, in]`.
    pub weight: Parameter,
    /// The bias b, `[out]`.
    pub bias: Option<Parameter>,
}

impl Linear {
    /// Applies it to the last axis.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        let bias = self.bias.map(|bias| ops.parameter(bias));
        ops.linear(x, &ops.parameter(self.weight), bias.as_ref())
    }

    /// Applies it and splits the result into heads: `[batch, time, heads, width]`.
    pub fn apply_and_split_heads<O: Ops>(&self, ops: &O, x: &O::Tensor, heads: usize) -> O::Tensor {
        split_heads(ops, &self.apply(ops, x), heads)
    }
}

/// `[batch, time, heads * width]` as `[batch, time, heads, width]`.
pub fn split_heads<O: Ops>(ops: &O, x: &O::Tensor, heads: usize) -> O::Tensor {
    let shape = ops.shape(x);
    ops.reshape(x, &[shape[0], shape[1], heads, shape[2] / heads])
}

/// `[batch, time, heads, width]` as `[batch, time, heads * width]`.
pub fn merge_heads<O: Ops>(ops: &O, x: &O::Tensor) -> O::Tensor {
    let shape = ops.shape(x);
    ops.reshape(x, &[shape[0], shape[1], shape[2] * shape[3]])
}

/// Multiplies each head of `[batch, time, heads, width]` by its own matrix of `[heads, rows, columns]`, transposed if `transpose`.
///
/// # Panics
/// If `x` has other than four axes.
pub fn per_head_matmul<O: Ops>(ops: &O, x: &O::Tensor, matrices: &O::Tensor, transpose: bool) -> O::Tensor {
    let [batch, time, heads, width] = ops.shape(x)[..] else { panic!("heads of {}", ops.shape(x)) };
    let x = ops.reshape(&ops.permute(x, &[2, 0, 1, 3]), &[heads, batch * time, width]);
    let out = ops.product(&x, false, matrices, transpose);
    let width = ops.shape(&out)[2];
    ops.permute(&ops.reshape(&out, &[heads, batch, time, width]), &[1, 2, 0, 3])
}

/// Linear projections of tokens to queries, keys and values with the same number of heads.
#[derive(Clone, Copy, Debug)]
pub struct QkvProjection {
    query: Linear,
    key: Linear,
    value: Linear,
    heads: usize,
}

impl QkvProjection {
    /// Adds `q_proj`, `k_proj` and `v_proj`; `init` returns the initial values for a number of outputs.
    pub fn init<S: Scalar>(
        params: &mut ParamBuilder<'_, S>,
        [heads, key_dim, value_dim]: [usize; 3],
        init: impl Fn(usize) -> Init<'static>,
    ) -> Self {
        let width = params.settings.width;
        let mut linear = |role: Role, name: &str, outputs: usize| {
            params.role(role).linear_with_init(name, width, outputs, init(outputs))
        };
        let query = linear(Role::Query, "q_proj", heads * key_dim);
        let key = linear(Role::Key, "k_proj", heads * key_dim);
        let value = linear(Role::Value, "v_proj", heads * value_dim);
        params.copy_query_to_key(&query, &key, heads, heads);
        Self { query, key, value, heads }
    }

    /// Query, key and value, `[batch, time, heads, width]` each.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor) -> [O::Tensor; 3] {
        [&self.query, &self.key, &self.value].map(|projection| projection.apply_and_split_heads(ops, x, self.heads))
    }
}

/// Clamps `x` to a range whose ends may be infinite. Values inside the range stay exactly the same.
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

/// Divides `x` by the square root of its width: the usual scale of queries.
pub fn scale_query<O: Ops>(ops: &O, x: &O::Tensor) -> O::Tensor {
    ops.scale(x, (ops.shape(x).width() as f64).powf(-0.5))
}

/// How a linear recurrence is run: its chunk size, and the rounding of its matrix state.
#[derive(Clone, Copy, Debug)]
pub struct LinearRecurrence {
    /// Tokens per chunk.
    pub chunk: usize,
    /// Rounding of the state after every token; `None` for full precision.
    pub rounding: Option<Rounding>,
}

impl LinearRecurrence {
    /// Settings of models read from checkpoints: chunks of 64 tokens, no rounding.
    pub const FULL_PRECISION: Self = Self { chunk: 64, rounding: None };

    /// Outputs, and the matrix state after the last token; see [`Ops::recurrence`]. The matrix before the first token is slot 0 of
    /// `state`.
    pub fn run<O: Ops>(
        &self,
        ops: &O,
        [query, key, value]: [&O::Tensor; 3],
        decay: Decay<'_, O::Tensor>,
        beta: Option<&O::Tensor>,
        state: Option<&State<O::Tensor>>,
    ) -> (O::Tensor, O::Tensor) {
        let Self { chunk, rounding } = *self;
        let state = State::tensor(state, 0);
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
    /// Epsilon of the norms in the mixers' reference implementations.
    pub const EPSILON: f64 = 1e-5;

    /// RMS norm over the last axis, with the default epsilon.
    pub fn norm<O: Ops>(&self, ops: &O, x: &O::Tensor) -> O::Tensor {
        self.norm_with_epsilon(ops, x, Self::EPSILON)
    }

    /// RMS norm over the last axis, with this epsilon.
    pub fn norm_with_epsilon<O: Ops>(&self, ops: &O, x: &O::Tensor, epsilon: f64) -> O::Tensor {
        ops.rms_norm(x, Some(&ops.parameter(self.weight)), epsilon)
    }

    /// Splits the channels of `[batch, time, channels]` into `groups` equal groups and norms each separately; one gain per channel.
    pub fn norm_groups<O: Ops>(&self, ops: &O, x: &O::Tensor, groups: usize, epsilon: f64) -> O::Tensor {
        if groups == 1 {
            return self.norm_with_epsilon(ops, x, epsilon);
        }
        let normed = ops.rms_norm(&split_heads(ops, x, groups), None, epsilon);
        ops.mul(&merge_heads(ops, &normed), &ops.parameter(self.weight))
    }
}

/// A short depthwise convolution over time.
#[derive(Clone, Copy, Debug)]
pub struct Convolution {
    /// `[channels, 1, kernel_size]`, as PyTorch's `Conv1d` has it; the last tap is on the current token.
    pub weight: Parameter,
    /// `[channels]`.
    pub bias: Option<Parameter>,
    /// Number of channels.
    pub channels: usize,
    /// Kernel size in tokens.
    pub kernel_size: usize,
    /// Rounding of the inputs, the last of which are the state; `None` for full precision.
    pub rounding: Option<Rounding>,
}

impl Convolution {
    /// The output, and the last `kernel_size - 1` inputs, which are the state of the next call.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&O::Tensor>) -> (O::Tensor, Option<O::Tensor>) {
        let filters = ops.reshape(&ops.parameter(self.weight), &[self.channels, self.kernel_size]);
        let bias = self.bias.map(|bias| ops.parameter(bias));
        let (out, next) = ops.short_convolution(&apply_rounding(ops, x, self.rounding), &filters, bias.as_ref(), state);
        (out, (self.kernel_size > 1).then_some(next))
    }
}

/// Projection, optional short convolution, SiLU: how DeltaNet and its relatives compute queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub struct ConvProjection {
    /// From the token to all heads.
    pub projection: Linear,
    /// Over the projected channels.
    pub convolution: Option<Convolution>,
    /// Heads that the result is split into.
    pub heads: usize,
}

impl ConvProjection {
    /// `[batch, time, heads, width]`, and the convolution's state.
    pub fn apply<O: Ops>(&self, ops: &O, x: &O::Tensor, state: Option<&O::Tensor>) -> (O::Tensor, Option<O::Tensor>) {
        let x = self.projection.apply(ops, x);
        let (x, next) = match &self.convolution {
            Some(convolution) => convolution.apply(ops, &x, state),
            None => (x, None),
        };
        (split_heads(ops, &ops.silu(&x), self.heads), next)
    }
}
