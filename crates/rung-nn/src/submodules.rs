//! Submodules that most mixers share: projections, norms, convolutions, recurrences.
//!
//! Each has the handles of its weights and runs through [`Ops`]. They are public so that mixers outside of this crate can use them.

use rung_engine::{Decay, Ops, Parameter, Recurrence, Role, Rounding, Scalar};

use crate::param_builder::{Init, ParamBuilder, Store};
use crate::precision::apply_rounding;
use crate::state::State;

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

    /// Outputs, and the matrix state after the last token; see [`Ops::recurrence`]. The matrix before the first token is tensor 0 of
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

    /// Splits the channels of `[batch, time, channels]` into `groups` equal groups and normalizes each separately; one gain per channel.
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

impl<S: Scalar> ParamBuilder<'_, S> {
    /// A projection without bias, with normal initial values of the model's standard deviation.
    pub fn linear(&mut self, name: &str, inputs: usize, outputs: usize) -> Linear {
        let init = Init::Normal(self.settings.init_std);
        self.linear_with_init(name, inputs, outputs, init)
    }

    /// A projection without bias, with these initial values.
    pub fn linear_with_init(&mut self, name: &str, inputs: usize, outputs: usize, init: Init<'_>) -> Linear {
        let weight = self.weight(&format!("{name}.weight"), &[outputs, inputs], init);
        Linear { weight, bias: None }
    }

    /// A projection with a bias, initially zero.
    pub fn linear_with_bias(&mut self, name: &str, inputs: usize, outputs: usize) -> Linear {
        let role = std::mem::take(&mut self.role);
        let bias_role = if role == Role::Output { Role::OutputBias } else { Role::Other };
        let bias = self.role(bias_role).parameter_without_weight_decay(
            &format!("{name}.bias"),
            &[outputs],
            Init::Constant(0.0),
        );
        Linear { bias: Some(bias), ..self.role(role).linear(name, inputs, outputs) }
    }

    /// The gain of an RMS norm, initially one.
    pub fn gain(&mut self, name: &str, width: usize) -> NormGain {
        NormGain {
            weight: self.parameter_without_weight_decay(&format!("{name}.weight"), &[width], Init::Constant(1.0)),
        }
    }

    /// The settings of a linear recurrence, which has no weights.
    pub fn recurrence(&self) -> LinearRecurrence {
        LinearRecurrence { chunk: self.settings.chunk, rounding: self.settings.precision.state }
    }

    /// A depthwise convolution over time without bias, shaped as PyTorch's `Conv1d`; `None` for a kernel size of 0.
    pub fn convolution(&mut self, name: &str, channels: usize, kernel_size: usize) -> Option<Convolution> {
        let (init, role) = (Init::Normal(self.settings.init_std), std::mem::take(&mut self.role));
        (kernel_size > 0).then(|| Convolution {
            weight: self.role(role).weight(&format!("{name}.weight"), &[channels, 1, kernel_size], init),
            bias: None,
            channels,
            kernel_size,
            rounding: self.settings.precision.state,
        })
    }

    /// A depthwise convolution over time with a bias, shaped as PyTorch's `Conv1d`.
    pub fn convolution_with_bias(
        &mut self,
        name: &str,
        channels: usize,
        kernel_size: usize,
        [weight_init, bias_init]: [Init<'_>; 2],
    ) -> Convolution {
        Convolution {
            weight: self.weight(&format!("{name}.weight"), &[channels, 1, kernel_size], weight_init),
            bias: Some(self.parameter_without_weight_decay(&format!("{name}.bias"), &[channels], bias_init)),
            channels,
            kernel_size,
            rounding: self.settings.precision.state,
        }
    }

    /// Initialises `key` as a copy of `query` if the model's settings say so. With fewer key heads, each copies the first query head
    /// of its group.
    pub fn copy_query_to_key(&mut self, query: &Linear, key: &Linear, heads: usize, key_heads: usize) {
        let Store::Allocate(weights) = &mut self.store else { return };
        if !self.settings.init_key_from_query {
            return;
        }
        let source = weights.get(query.weight).to_vec();
        let target = weights.get_mut(key.weight);
        let head_size = source.len() / heads;
        if target.len() == head_size * key_heads {
            for (head, rows) in target.chunks_exact_mut(head_size).enumerate() {
                let start = head * (heads / key_heads) * head_size;
                rows.copy_from_slice(&source[start..start + head_size]);
            }
        }
    }

    /// Initialises `output` as `scale` times the transpose of `value`, so that the output resembles the token that was read.
    pub fn copy_transpose(&mut self, value: &Linear, output: &Linear, scale: f64) {
        let Store::Allocate(weights) = &mut self.store else { return };
        let [rows, columns] = weights.entry(value.weight).shape[..] else { return };
        let source = weights.get(value.weight).to_vec();
        for (index, weight) in weights.get_mut(output.weight).iter_mut().enumerate() {
            *weight = source[index % rows * columns + index / rows] * S::from_f64(scale);
        }
    }

    /// Negates the initial `key` projection of attention if [`BuildSettings::negate_initial_key`](crate::param_builder::BuildSettings::negate_initial_key) says so.
    pub fn negate_key(&mut self, key: &Linear) {
        let Store::Allocate(weights) = &mut self.store else { return };
        if self.settings.negate_initial_key {
            weights.get_mut(key.weight).iter_mut().for_each(|weight| *weight = -*weight);
        }
    }
}

/// The activation of hidden channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `x sigmoid(x)`.
    Silu,
    /// GELU by a hyperbolic tangent.
    GeluTanh,
    /// GELU by the error function.
    GeluExact,
    /// `max(x, 0)`.
    Relu,
    /// `max(x, 0)^2`.
    ReluSquared,
    /// gpt-oss: with `g' = min(g, limit)` the gate is `g' sigmoid(alpha g')`; it multiplies `u + 1` with `u` clamped to `[-limit, limit]`.
    /// Without a gate it is applied to `u` as to `g`.
    ClampedSwish {
        /// Factor inside of the sigmoid.
        alpha: f64,
        /// Upper limit of g, and limit of the absolute value of u.
        limit: f64,
    },
}

/// `min(x, limit)`.
pub(crate) fn clamp_max<O: Ops>(ops: &O, x: &O::Tensor, limit: f64) -> O::Tensor {
    ops.affine(&ops.relu(&ops.affine(x, -1.0, limit)), -1.0, limit)
}

impl Activation {
    pub(crate) fn apply<O: Ops>(self, ops: &O, x: &O::Tensor) -> O::Tensor {
        match self {
            Self::Silu => ops.silu(x),
            Self::GeluTanh => ops.gelu(x),
            Self::GeluExact => ops.gelu_exact(x),
            Self::Relu => ops.relu(x),
            Self::ReluSquared => {
                let x = ops.relu(x);
                ops.mul(&x, &x)
            }
            Self::ClampedSwish { alpha, limit } => {
                let x = clamp_max(ops, x, limit);
                ops.mul(&x, &ops.sigmoid(&ops.scale(&x, alpha)))
            }
        }
    }
}
