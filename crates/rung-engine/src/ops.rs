//! The operations a model is written with.
//!
//! [`Ops`] has a few *primitives* (leaves, element-wise functions, products, changes of layout, reductions) and the *fused*
//! operations that models spend their time in (attention, norms, gates, convolution, recurrences, the loss). Each fused operation is
//! also written as a function of primitives in [`crate::composed`]. An executor with a kernel uses the kernel, and the composed
//! function is the reference that the kernel is tested against, forward and backward. An executor without kernels needs only
//! primitives.
//!
//! Every operation is required, so that after a new operation is added nothing compiles until every executor and every wrapper
//! implements it. [`delegate_ops!`](crate::delegate_ops) implements operations by passing their arguments to another executor or to
//! the composed function.
//!
//! Conventions, all row-major:
//!
//! - activations are `[batch, time, width]`, heads are `[batch, time, head, head_dim]`, states `[batch, head, key, value]`;
//! - in formulas, `'` is the transpose: `k v'` is an outer product;
//! - reductions keep their axis with extent 1, so that the result broadcasts against the input;
//! - element-wise operations broadcast by aligning trailing axes;
//! - shapes that do not fit are a bug in the program, not in its input: they panic and name the shapes. Plans and files are
//!   checked before they reach an executor.
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

mod delegate;
mod inputs;

use std::ops::Range;

pub use inputs::{
    AccumulatorRounding, AttentionInputs, AttentionMask, Binary, BlockAttention, Decay, GatedScan, GeneralDelta,
    Indexer, Recurrence, Rounding, Unary,
};

use crate::choice::BlockChoice;
use crate::parameters::Parameter;
use crate::scalar::Scalar;
use crate::shape::Shape;

/// Operations on tensors, with gradients.
pub trait Ops {
    /// The element type (dtype) of all tensors.
    type Scalar: Scalar;
    /// A handle to a tensor, cheap to clone.
    type Tensor: Clone;

    // Required: leaves.

    /// A weight of the model.
    fn parameter(&self, id: Parameter) -> Self::Tensor;
    /// A tensor with these values, without gradient.
    fn constant(&self, shape: &[usize], values: &[Self::Scalar]) -> Self::Tensor;
    /// A tensor filled with one value, without gradient.
    fn full(&self, shape: &[usize], value: f64) -> Self::Tensor;
    /// The same values, without gradient.
    fn detach(&self, x: &Self::Tensor) -> Self::Tensor;
    /// The shape of a tensor.
    fn shape(&self, x: &Self::Tensor) -> Shape;
    /// A copy of the values, row-major.
    fn values(&self, x: &Self::Tensor) -> Vec<Self::Scalar>;

    // Required: element by element.

    /// Applies a function to every element.
    fn unary(&self, kind: Unary, x: &Self::Tensor) -> Self::Tensor;
    /// Applies a function to every pair of elements.
    fn binary(&self, kind: Binary, left: &Self::Tensor, right: &Self::Tensor) -> Self::Tensor;
    /// `factor * x + offset`.
    fn affine(&self, x: &Self::Tensor, factor: f64, offset: f64) -> Self::Tensor;

    // Required: products.

    /// Matrix product over the last two axes. `transpose_left` and `transpose_right` say whether these axes of an operand are swapped before it
    /// is multiplied, without a copy: `product(a, false, b, true)` is `a bᵀ`. [`matmul`](Self::matmul) is the product without transposes.
    /// The leading axes of the operands are equal, or the right operand is one matrix for all.
    fn product(
        &self,
        left: &Self::Tensor,
        transpose_left: bool,
        right: &Self::Tensor,
        transpose_right: bool,
    ) -> Self::Tensor;

    // Required: layout.

    /// The same elements with another shape.
    fn reshape(&self, x: &Self::Tensor, shape: &[usize]) -> Self::Tensor;
    /// Axes in another order: axis `i` of the result is axis `order[i]` of `x`.
    fn permute(&self, x: &Self::Tensor, order: &[usize]) -> Self::Tensor;
    /// A range of an axis.
    fn slice(&self, x: &Self::Tensor, axis: usize, range: Range<usize>) -> Self::Tensor;
    /// Concatenates tensors along an axis.
    fn concat(&self, parts: &[Self::Tensor], axis: usize) -> Self::Tensor;
    /// Broadcasts to a shape: repeats axes of extent 1, and adds leading axes.
    fn broadcast(&self, x: &Self::Tensor, shape: &[usize]) -> Self::Tensor;
    /// Rows of a matrix `[rows, width]` by index; an index may repeat.
    fn gather_rows(&self, x: &Self::Tensor, rows: &[usize]) -> Self::Tensor;

    // Required: along an axis.

    /// Sum along an axis, which stays with extent 1.
    fn sum(&self, x: &Self::Tensor, axis: usize) -> Self::Tensor;
    /// Maximum along an axis, which stays with extent 1; without gradient.
    fn max(&self, x: &Self::Tensor, axis: usize) -> Self::Tensor;
    /// Inclusive cumulative sum along an axis.
    fn cumulative_sum(&self, x: &Self::Tensor, axis: usize) -> Self::Tensor;

    // Required: fused operations. `delegate_ops!(composed => name)` uses the composed function.

    /// Softmax over the last axis.
    fn softmax(&self, x: &Self::Tensor) -> Self::Tensor;
    /// `x weight' + bias`, with the weight as `[out, in]`.
    fn linear(&self, x: &Self::Tensor, weight: &Self::Tensor, bias: Option<&Self::Tensor>) -> Self::Tensor;
    /// Softmax attention, `[batch, queries, heads, value_dim]`.
    fn attention(&self, inputs: &AttentionInputs<'_, Self::Tensor>) -> Self::Tensor;
    /// Softmax attention, summed key by key from the first to the last in accumulators of few bits, without gradient.
    ///
    /// Between two keys, a query has only the running mean `o` of values and the log `l` of the sum of weights. A key with score `s`
    /// and value `v` replaces them by `round(o + sigmoid(s - l) (v - o))` and `round(ln(e^l + e^s))`; the first visible key by
    /// `round(v)` and `round(s)`. So all that a query learns about a prefix are `value_dim + 1` numbers per head, of the bits
    /// given by `rounding`, or of the element type's if there is none.
    fn left_to_right_attention(
        &self,
        inputs: &AttentionInputs<'_, Self::Tensor>,
        rounding: Option<AccumulatorRounding>,
    ) -> Self::Tensor;
    /// Softmax attention to chosen blocks of keys, `[batch, queries, heads, value_dim]`.
    fn block_attention(&self, inputs: &BlockAttention<'_, Self::Tensor>) -> Self::Tensor;
    /// The tokens that an indexer chooses for every query: those with the highest scores, as blocks of one token for one group of heads.
    /// Without gradient.
    fn choose_tokens(&self, inputs: &Indexer<'_, Self::Tensor>) -> BlockChoice;
    /// A linear recurrence in chunks: outputs `[batch, time, heads, value_dim]` and the state after the last token.
    fn recurrence(&self, inputs: &Recurrence<'_, Self::Tensor>) -> (Self::Tensor, Self::Tensor);
    /// The general delta rule: outputs `[batch, time, heads, value_dim]` and the state after the last token.
    fn general_delta(&self, inputs: &GeneralDelta<'_, Self::Tensor>) -> (Self::Tensor, Self::Tensor);
    /// `x / sqrt(mean(x^2) + epsilon) * weight` over the last axis.
    fn rms_norm(&self, x: &Self::Tensor, weight: Option<&Self::Tensor>, epsilon: f64) -> Self::Tensor;
    /// `(x - mean) / sqrt(variance + epsilon) * weight + bias` over the last axis.
    fn layer_norm(
        &self,
        x: &Self::Tensor,
        weight: Option<&Self::Tensor>,
        bias: Option<&Self::Tensor>,
        epsilon: f64,
    ) -> Self::Tensor;
    /// `x / sqrt(sum(x^2) + epsilon)` over the last axis.
    fn l2_norm(&self, x: &Self::Tensor, epsilon: f64) -> Self::Tensor;
    /// `x sigmoid(x)`.
    fn silu(&self, x: &Self::Tensor) -> Self::Tensor;
    /// The tanh form of GELU.
    fn gelu(&self, x: &Self::Tensor) -> Self::Tensor;
    /// The exact form of GELU: `x` times the standard normal distribution function of `x`.
    fn gelu_exact(&self, x: &Self::Tensor) -> Self::Tensor;
    /// `x + 1` for positive `x` and `exp(x)` otherwise: the positive feature map of linear attention.
    fn elu_plus_one(&self, x: &Self::Tensor) -> Self::Tensor;
    /// `silu(gate) * x`: the gate of SwiGLU and of most recurrent mixers.
    fn silu_gate(&self, gate: &Self::Tensor, x: &Self::Tensor) -> Self::Tensor;
    /// Depthwise causal convolution over time of `x`, `[batch, time, channels]`, with filters `[channels, kernel size]`, the last tap
    /// on the current token. `state` holds the `kernel size - 1` inputs before the first token, zero if absent; the second result is
    /// the state for the next call.
    fn short_convolution(
        &self,
        x: &Self::Tensor,
        filters: &Self::Tensor,
        bias: Option<&Self::Tensor>,
        state: Option<&Self::Tensor>,
    ) -> (Self::Tensor, Self::Tensor);
    /// The states of a gated recurrence after every token, `[batch, time, channels]`. The gradient treats the rounding as
    /// the identity.
    fn gated_scan(&self, inputs: &GatedScan<'_, Self::Tensor>) -> Self::Tensor;
    /// Rotary position embedding of `x`, `[batch, time, heads, head_dim]`: rotates the pair of channels `i` and `i + width / 2` by the
    /// angles whose cosines and sines, `[time, width / 2]`, are given. See [`rotary_angles`].
    fn rotary(&self, x: &Self::Tensor, cosine: &Self::Tensor, sine: &Self::Tensor) -> Self::Tensor;
    /// `-log softmax(logits)[target]` for each row of `[rows, classes]`: losses of shape `[rows]`. To score only some
    /// positions, gather their rows before the product with the unembedding.
    fn cross_entropy(&self, logits: &Self::Tensor, targets: &[usize]) -> Self::Tensor;
    /// Rounds to the nearest of `2^bits` evenly spaced values from `-range` up. The gradient is passed through unchanged.
    fn round_to_bits(&self, x: &Self::Tensor, bits: u32, range: f64) -> Self::Tensor;

    // Required: scopes.

    /// Runs `body` under a name, such as `layer 3: gdn`, which the error for a non-finite number reports.
    fn scope<R>(&self, name: &str, body: impl FnOnce() -> R) -> R;

    // Provided: short forms of primitives, which no executor overrides.

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
    /// A tensor of zeros.
    fn zeros(&self, shape: &[usize]) -> Self::Tensor {
        self.full(shape, 0.0)
    }
    /// Matrix product over the last two axes: [`product`](Self::product) without transposes.
    fn matmul(&self, left: &Self::Tensor, right: &Self::Tensor) -> Self::Tensor {
        self.product(left, false, right, false)
    }
    /// Mean along an axis, which stays with extent 1.
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
}

/// Cosines and sines of `position * frequency`, `[positions, frequencies]` each, for [`Ops::rotary`].
pub fn rotary_angles<S: Scalar>(positions: Range<usize>, frequencies: &[f64]) -> (Vec<S>, Vec<S>) {
    let angles = positions.flat_map(|position| frequencies.iter().map(move |frequency| position as f64 * frequency));
    angles.map(|angle| (S::from_f64(angle.cos()), S::from_f64(angle.sin()))).unzip()
}

/// The usual rotary frequencies of a head: `base^(-2 i / width)` for `i` in `0..width / 2`.
pub fn rotary_frequencies(width: usize, base: f64) -> Vec<f64> {
    (0..width / 2).map(|index| base.powf(-2.0 * index as f64 / width as f64)).collect()
}
