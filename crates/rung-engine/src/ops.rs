//! The operations a model is written with.
//!
//! [`Ops`] has two halves. The *required* half is a few primitives: leaves, element-wise functions, products, changes of
//! layout, reductions. An executor that supplies those can run every model. The *provided* half holds the operations models
//! spend their time in (attention, norms, gates, convolution, recurrences, the loss), each with a body composed of primitives
//! in [`crate::composed`]. An executor overrides the ones it has a kernel for, and the composed body stays as the reference
//! that the kernel is tested against, forward and backward.
//!
//! Conventions, all row-major:
//!
//! - activations are `[batch, time, width]`, heads are `[batch, time, head, width]`, states `[batch, head, key, value]`;
//! - reductions keep their axis with extent one, so that the result broadcasts against what it came from;
//! - element-wise operations broadcast by aligning trailing axes;
//! - shapes that do not fit are a mistake in the program, not in its input: they panic and name the shapes. Plans and files
//!   are checked long before.
//!
//! ```
//! use rung_engine::{Native, Ops};
//!
//! fn mean_of_squares<O: Ops>(ops: &O, x: &O::Tensor) -> O::Tensor {
//!     ops.mean_all(&ops.mul(x, x))
//! }
//! let ops = Native::<f32>::new();
//! let x = ops.constant(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
//! assert_eq!(ops.values(&mean_of_squares(&ops, &x)), [7.5]);
//! ```

use crate::choice::Choice;
use crate::composed;
use crate::parameters::Parameter;
use crate::scalar::Scalar;
use crate::shape::Shape;
use std::ops::Range;

/// A function of one number, applied to every element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// e to the power of x.
    Exp,
    /// Natural logarithm.
    Log,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// Hyperbolic tangent.
    Tanh,
    /// `ln(1 + exp(x))`.
    Softplus,
    /// `max(x, 0)`.
    Relu,
    /// Square root.
    Sqrt,
    /// Nearest whole number; its gradient is zero.
    Round,
}

/// A function of two numbers, applied to every pair of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Product.
    Mul,
    /// Quotient.
    Div,
}

/// Which keys a query may read. Queries are the last positions of the keys: with as many queries as keys, query t sits at
/// key t; a single query sits at the last key, as in decoding from a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Every key, before and after.
    All,
    /// Keys up to the query's own.
    Past,
    /// The query's own key and those just before it, this many in all.
    Window(usize),
}

impl Sight {
    /// The keys that a query at this position sees, out of `keys`.
    pub fn range(self, position: usize, keys: usize) -> Range<usize> {
        match self {
            Self::All => 0..keys,
            Self::Past => 0..position + 1,
            Self::Window(size) => (position + 1).saturating_sub(size)..position + 1,
        }
    }
}

/// The inputs of softmax attention.
///
/// Heads of keys and values may be fewer than heads of queries: consecutive query heads share one.
pub struct Attention<'a, T> {
    /// `[batch, queries, heads, width]`.
    pub query: &'a T,
    /// `[batch, keys, key heads, width]`.
    pub key: &'a T,
    /// `[batch, keys, key heads, value width]`.
    pub value: &'a T,
    /// Added to the scaled scores: `[batch or 1, heads or 1, queries, keys]`.
    pub bias: Option<&'a T>,
    /// Which keys are visible.
    pub sight: Sight,
    /// Factor on the scores; the usual one is `width^-1/2`.
    pub scale: f64,
}

/// The inputs of softmax attention to chosen blocks of keys. Queries are the last positions of the keys, and see nothing after
/// themselves. The choice is given, and takes no gradient.
pub struct BlockAttention<'a, T> {
    /// `[batch, queries, heads, width]`.
    pub query: &'a T,
    /// `[batch, keys, key heads, width]`.
    pub key: &'a T,
    /// `[batch, keys, key heads, value width]`.
    pub value: &'a T,
    /// The blocks that each query reads. Every query has at least one.
    pub choice: &'a Choice,
    /// Factor on the scores.
    pub scale: f64,
}

/// How a recurrent state fades from one token to the next: log-decays, never positive.
pub enum Decay<'a, T> {
    /// It does not.
    None,
    /// One log-decay per head, `[batch, time, heads]`.
    Scalar(&'a T),
    /// One log-decay per key channel, `[batch, time, heads, key width]`.
    Vector(&'a T),
}

/// Few bits for a number: one of `2^bits` evenly spaced values from `-range` up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounding {
    /// Bits, from 1 to [`Rounding::MOST_BITS`].
    pub bits: u32,
    /// The largest size a number can have.
    pub range: f64,
}

impl Rounding {
    /// As many as single precision holds exactly.
    pub const MOST_BITS: u32 = 24;

    /// The nearest values, with the gradient of `x`; see [`Ops::round_to_bits`].
    pub fn apply<O: Ops + ?Sized>(self, ops: &O, x: &O::Tensor) -> O::Tensor {
        ops.round_to_bits(x, self.bits, self.range)
    }
}

/// The inputs of a linear recurrence over a matrix state.
///
/// With decay `a = exp(g)` and without `beta`, the state is `S <- a S + k v'` and the output `o = S' q`. With `beta` the write
/// is a delta step: `S <- a S`, then `S <- S + beta k (v - S' k)'`. This covers linear attention and `DeltaNet` (no decay),
/// `RetNet`, Mamba-2 and Gated `DeltaNet` (scalar decay), and GLA (vector decay). Queries are used as given; scale them first.
///
/// Heads of queries and keys may be fewer than heads of values: consecutive value heads share one.
pub struct Recurrence<'a, T> {
    /// `[batch, time, key heads, key width]`.
    pub query: &'a T,
    /// `[batch, time, key heads, key width]`.
    pub key: &'a T,
    /// `[batch, time, heads, value width]`.
    pub value: &'a T,
    /// How the state fades.
    pub decay: Decay<'a, T>,
    /// Strength of the delta step, `[batch, time, heads]`; without it the write is a plain sum.
    pub beta: Option<&'a T>,
    /// The state before the first token, `[batch, heads, key width, value width]`; zero if absent.
    pub state: Option<&'a T>,
    /// Tokens per chunk. It changes the cost and the rounding, never the meaning.
    pub chunk: usize,
    /// Keeps the state in few bits: it is rounded after every token, and what is read is the rounded state. Then the chunk
    /// does not matter, and tokens go one by one.
    pub rounding: Option<Rounding>,
}

/// The inputs of the general delta rule, whose erasure has a direction and a strength of its own.
///
/// The state is `S <- Diag(exp(g)) S - r (s' S) + k v'`, all with the state before the token on the right, and the output
/// `o = S' q` from the state after it. With `s` a unit key and `r = a s` this is RWKV-7's; with `g = 0`, `s` a key,
/// `r = beta s` and `k = beta s` it is the delta rule of [`Recurrence`]. Unlike there, what is erased is looked up before
/// anything fades.
pub struct GeneralDelta<'a, T> {
    /// `[batch, time, heads, key width]`.
    pub query: &'a T,
    /// `[batch, time, heads, key width]`.
    pub key: &'a T,
    /// `[batch, time, heads, value width]`.
    pub value: &'a T,
    /// Log-decays of the key channels, `[batch, time, heads, key width]`, never positive.
    pub decay: &'a T,
    /// `s`: the key under which something is looked up to be erased, `[batch, time, heads, key width]`.
    pub sought: &'a T,
    /// `r`: along what, and how much of it, it is erased, `[batch, time, heads, key width]`.
    pub removed: &'a T,
    /// The state before the first token, `[batch, heads, key width, value width]`; zero if absent.
    pub state: Option<&'a T>,
    /// Tokens between the states that are kept for the gradient. It changes the cost, never the result.
    pub chunk: usize,
    /// Keeps the state in few bits, as in [`Recurrence`].
    pub rounding: Option<Rounding>,
}

/// The inputs of a gated recurrence over channels, `h <- h + g (v - h)`: each token replaces a share of the state.
pub struct GatedScan<'a, T> {
    /// What is written, `[batch, time, channels]`.
    pub value: &'a T,
    /// The share that is replaced, `[batch, time, 1]`.
    pub gate: &'a T,
    /// The state before the first token, `[batch, 1, channels]`.
    pub state: &'a T,
    /// Keeps the state in few bits: it is rounded after every token.
    pub rounding: Option<Rounding>,
}

/// Operations on tensors, with gradients.
pub trait Ops {
    /// The number type.
    type Scalar: Scalar;
    /// A handle to a tensor, cheap to clone.
    type Tensor: Clone;

    // Required: leaves.

    /// A weight of the model.
    fn parameter(&self, id: Parameter) -> Self::Tensor;
    /// A tensor of given values, without gradient.
    fn constant(&self, shape: &[usize], values: &[Self::Scalar]) -> Self::Tensor;
    /// A tensor of one value, without gradient.
    fn full(&self, shape: &[usize], value: f64) -> Self::Tensor;
    /// The same values, cut off from the gradient.
    fn detach(&self, x: &Self::Tensor) -> Self::Tensor;
    /// Extents.
    fn shape(&self, x: &Self::Tensor) -> Shape;
    /// A copy of the values.
    fn values(&self, x: &Self::Tensor) -> Vec<Self::Scalar>;

    // Required: element by element.

    /// A function of every element.
    fn unary(&self, kind: Unary, x: &Self::Tensor) -> Self::Tensor;
    /// A function of every pair of elements.
    fn binary(&self, kind: Binary, left: &Self::Tensor, right: &Self::Tensor) -> Self::Tensor;
    /// `factor * x + offset`.
    fn affine(&self, x: &Self::Tensor, factor: f64, offset: f64) -> Self::Tensor;

    // Required: products.

    /// Matrix product over the last two axes, either side optionally transposed. Leading axes are equal, or the right side is
    /// a plain matrix shared by all.
    fn product(&self, left: &Self::Tensor, flip_left: bool, right: &Self::Tensor, flip_right: bool) -> Self::Tensor;

    // Required: layout.

    /// The same elements under another shape.
    fn reshape(&self, x: &Self::Tensor, shape: &[usize]) -> Self::Tensor;
    /// Axes in another order: axis `i` of the result is axis `order[i]` of `x`.
    fn permute(&self, x: &Self::Tensor, order: &[usize]) -> Self::Tensor;
    /// Part of an axis.
    fn slice(&self, x: &Self::Tensor, axis: usize, range: Range<usize>) -> Self::Tensor;
    /// Tensors one after another along an axis.
    fn concat(&self, parts: &[Self::Tensor], axis: usize) -> Self::Tensor;
    /// Repeats axes of extent one (and adds leading ones) up to a shape.
    fn broadcast(&self, x: &Self::Tensor, shape: &[usize]) -> Self::Tensor;
    /// Rows of a matrix `[rows, width]` by number, with repetition.
    fn gather_rows(&self, x: &Self::Tensor, rows: &[usize]) -> Self::Tensor;

    // Required: along an axis.

    /// Sum; the axis stays with extent one.
    fn sum(&self, x: &Self::Tensor, axis: usize) -> Self::Tensor;
    /// Maximum, without gradient; the axis stays with extent one.
    fn max(&self, x: &Self::Tensor, axis: usize) -> Self::Tensor;
    /// Running sum, the element itself included.
    fn cumulative_sum(&self, x: &Self::Tensor, axis: usize) -> Self::Tensor;

    // Provided: names.

    /// Runs `body` under a name, such as `layer 3: gdn`, that a report of a non-finite number will carry.
    fn scope<R>(&self, name: &str, body: impl FnOnce() -> R) -> R {
        let _ = name;
        body()
    }

    // Provided: short forms of primitives.

    /// `left + right`.
    fn add(&self, left: &Self::Tensor, right: &Self::Tensor) -> Self::Tensor {
        self.binary(Binary::Add, left, right)
    }
    /// `left - right`.
    fn sub(&self, left: &Self::Tensor, right: &Self::Tensor) -> Self::Tensor {
        self.binary(Binary::Sub, left, right)
    }
    /// `left * right`.
    fn mul(&self, left: &Self::Tensor, right: &Self::Tensor) -> Self::Tensor {
        self.binary(Binary::Mul, left, right)
    }
    /// `left / right`.
    fn div(&self, left: &Self::Tensor, right: &Self::Tensor) -> Self::Tensor {
        self.binary(Binary::Div, left, right)
    }
    /// `factor * x`.
    fn scale(&self, x: &Self::Tensor, factor: f64) -> Self::Tensor {
        self.affine(x, factor, 0.0)
    }
    /// `-x`.
    fn neg(&self, x: &Self::Tensor) -> Self::Tensor {
        self.affine(x, -1.0, 0.0)
    }
    /// e to the power of x.
    fn exp(&self, x: &Self::Tensor) -> Self::Tensor {
        self.unary(Unary::Exp, x)
    }
    /// Natural logarithm.
    fn log(&self, x: &Self::Tensor) -> Self::Tensor {
        self.unary(Unary::Log, x)
    }
    /// `1 / (1 + exp(-x))`.
    fn sigmoid(&self, x: &Self::Tensor) -> Self::Tensor {
        self.unary(Unary::Sigmoid, x)
    }
    /// Hyperbolic tangent.
    fn tanh(&self, x: &Self::Tensor) -> Self::Tensor {
        self.unary(Unary::Tanh, x)
    }
    /// `ln(1 + exp(x))`.
    fn softplus(&self, x: &Self::Tensor) -> Self::Tensor {
        self.unary(Unary::Softplus, x)
    }
    /// `max(x, 0)`.
    fn relu(&self, x: &Self::Tensor) -> Self::Tensor {
        self.unary(Unary::Relu, x)
    }
    /// Square root.
    fn sqrt(&self, x: &Self::Tensor) -> Self::Tensor {
        self.unary(Unary::Sqrt, x)
    }
    /// Zeros.
    fn zeros(&self, shape: &[usize]) -> Self::Tensor {
        self.full(shape, 0.0)
    }
    /// `left right`.
    fn matmul(&self, left: &Self::Tensor, right: &Self::Tensor) -> Self::Tensor {
        self.product(left, false, right, false)
    }
    /// Mean along an axis, which stays with extent one.
    fn mean(&self, x: &Self::Tensor, axis: usize) -> Self::Tensor {
        self.scale(&self.sum(x, axis), 1.0 / self.shape(x)[axis] as f64)
    }
    /// Sum of all elements, of shape `[1]`.
    fn sum_all(&self, x: &Self::Tensor) -> Self::Tensor {
        self.sum(&self.reshape(x, &[self.shape(x).size()]), 0)
    }
    /// Mean of all elements, of shape `[1]`.
    fn mean_all(&self, x: &Self::Tensor) -> Self::Tensor {
        self.scale(&self.sum_all(x), 1.0 / self.shape(x).size() as f64)
    }
    /// Softmax over the last axis.
    fn softmax(&self, x: &Self::Tensor) -> Self::Tensor {
        composed::softmax(self, x)
    }

    // Provided: fused operations, each with its composed body.

    /// `x weight' + bias`, with the weight as `[out, in]`.
    fn linear(&self, x: &Self::Tensor, weight: &Self::Tensor, bias: Option<&Self::Tensor>) -> Self::Tensor {
        composed::linear(self, x, weight, bias)
    }
    /// Softmax attention, `[batch, queries, heads, value width]`.
    fn attention(&self, inputs: &Attention<'_, Self::Tensor>) -> Self::Tensor {
        composed::attention(self, inputs)
    }
    /// Softmax attention to chosen blocks of keys, `[batch, queries, heads, value width]`.
    fn block_attention(&self, inputs: &BlockAttention<'_, Self::Tensor>) -> Self::Tensor {
        composed::block_attention(self, inputs)
    }
    /// A linear recurrence in chunks: outputs `[batch, time, heads, value width]` and the state after the last token.
    fn recurrence(&self, inputs: &Recurrence<'_, Self::Tensor>) -> (Self::Tensor, Self::Tensor) {
        composed::recurrence(self, inputs)
    }
    /// The general delta rule: outputs `[batch, time, heads, value width]` and the state after the last token.
    fn general_delta(&self, inputs: &GeneralDelta<'_, Self::Tensor>) -> (Self::Tensor, Self::Tensor) {
        composed::general_delta(self, inputs)
    }
    /// `x / sqrt(mean(x^2) + epsilon) * weight` over the last axis.
    fn rms_norm(&self, x: &Self::Tensor, weight: Option<&Self::Tensor>, epsilon: f64) -> Self::Tensor {
        composed::rms_norm(self, x, weight, epsilon)
    }
    /// `(x - mean) / sqrt(variance + epsilon) * weight + bias` over the last axis.
    fn layer_norm(
        &self,
        x: &Self::Tensor,
        weight: Option<&Self::Tensor>,
        bias: Option<&Self::Tensor>,
        epsilon: f64,
    ) -> Self::Tensor {
        composed::layer_norm(self, x, weight, bias, epsilon)
    }
    /// `x / sqrt(sum(x^2) + epsilon)` over the last axis.
    fn l2_norm(&self, x: &Self::Tensor, epsilon: f64) -> Self::Tensor {
        composed::l2_norm(self, x, epsilon)
    }
    /// `x sigmoid(x)`.
    fn silu(&self, x: &Self::Tensor) -> Self::Tensor {
        composed::silu(self, x)
    }
    /// The tanh form of GELU.
    fn gelu(&self, x: &Self::Tensor) -> Self::Tensor {
        composed::gelu(self, x)
    }
    /// The exact form of GELU: `x` times the share of a normal distribution that lies below it.
    fn gelu_exact(&self, x: &Self::Tensor) -> Self::Tensor {
        composed::gelu_exact(self, x)
    }
    /// `x + 1` above zero and `exp(x)` below: the positive feature map of linear attention.
    fn elu_plus_one(&self, x: &Self::Tensor) -> Self::Tensor {
        composed::elu_plus_one(self, x)
    }
    /// `silu(gate) * x`: the gate of SwiGLU and of most recurrent mixers.
    fn silu_gate(&self, gate: &Self::Tensor, x: &Self::Tensor) -> Self::Tensor {
        composed::silu_gate(self, gate, x)
    }
    /// Depthwise causal convolution over time of `x`, `[batch, time, channels]`, with filters `[channels, taps]`, the last tap
    /// on the current token. `state` holds the `taps - 1` inputs before the first, zero if absent; the second result is the
    /// same for the next call.
    fn short_convolution(
        &self,
        x: &Self::Tensor,
        filters: &Self::Tensor,
        bias: Option<&Self::Tensor>,
        state: Option<&Self::Tensor>,
    ) -> (Self::Tensor, Self::Tensor) {
        composed::short_convolution(self, x, filters, bias, state)
    }
    /// The states of a gated recurrence after every token, `[batch, time, channels]`. The gradient passes straight through the
    /// rounding.
    fn gated_scan(&self, inputs: &GatedScan<'_, Self::Tensor>) -> Self::Tensor {
        composed::gated_scan(self, inputs)
    }
    /// Rotary positions on `x`, `[batch, time, heads, width]`: channel `i` and channel `i + width / 2` turn by the angle whose
    /// cosine and sine are given in `[time, width / 2]`. See [`rotary_angles`].
    fn rotary(&self, x: &Self::Tensor, cosine: &Self::Tensor, sine: &Self::Tensor) -> Self::Tensor {
        composed::rotary(self, x, cosine, sine)
    }
    /// `-log softmax(logits)[target]` for each row of `[rows, classes]`: losses of shape `[rows]`. To score chosen positions,
    /// gather their rows first: the product with the vocabulary is then done for those alone.
    fn cross_entropy(&self, logits: &Self::Tensor, targets: &[usize]) -> Self::Tensor {
        composed::cross_entropy(self, logits, targets)
    }
    /// `x` as a number of `bits` bits would hold it: one of `2^bits` evenly spaced values from `-range` up, the nearest. The
    /// gradient passes straight through.
    fn round_to_bits(&self, x: &Self::Tensor, bits: u32, range: f64) -> Self::Tensor {
        composed::round_to_bits(self, x, bits, range)
    }
}

/// Cosines and sines of `position * frequency`, row by row: the tables of [`Ops::rotary`].
pub fn rotary_angles<S: Scalar>(positions: Range<usize>, frequencies: &[f64]) -> (Vec<S>, Vec<S>) {
    let angles = positions.flat_map(|position| frequencies.iter().map(move |frequency| position as f64 * frequency));
    angles.map(|angle| (S::of(angle.cos()), S::of(angle.sin()))).unzip()
}

/// The usual rotary frequencies of a head: `base^(-2 i / width)` for `i` in `0..width / 2`.
pub fn rotary_frequencies(width: usize, base: f64) -> Vec<f64> {
    (0..width / 2).map(|index| base.powf(-2.0 * index as f64 / width as f64)).collect()
}
