//! Every fused operation, composed of primitives.
//!
//! An executor without a kernel for an operation runs its composed function, and kernels are tested against it. The functions follow
//! the formulas of the papers, in their order. They are not default methods of the trait, so that a test can run them on an
//! executor that has kernels.
//!
//! Where the definition goes token by token, an executor on a GPU would start a kernel per token. [`chunked_general_delta`] and
//! [`parallel_gated_scan`] compute the same in few large operations, and are tested against the definition.

#![expect(clippy::missing_panics_doc, reason = "shapes that do not fit panic, as the documentation of the trait says")]

mod attention;
mod delta;
mod pointwise;
mod recurrence;
mod sequence;

pub use attention::{attention, block_attention, block_bias, choose_tokens, left_to_right_attention};
pub use delta::{chunked_general_delta, general_delta};
pub use pointwise::{
    cross_entropy, elu_plus_one, gelu, gelu_exact, l2_norm, layer_norm, linear, rms_norm, round_to_bits, silu,
    silu_gate, softmax,
};
pub use recurrence::recurrence;
pub use sequence::{gated_scan, parallel_gated_scan, rotary, short_convolution};

use crate::ops::Ops;

/// Used for minus infinity in masks: its exponential is zero, and differences of it are not NaN.
const MASKED: f64 = -1e30;

/// A constant matrix whose elements are `value(row, column)`.
fn matrix_from<O: Ops + ?Sized>(
    ops: &O,
    rows: usize,
    columns: usize,
    value: impl Fn(usize, usize) -> f64,
) -> O::Tensor {
    let indices = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let values: Vec<_> = indices.map(|(row, column)| crate::Scalar::from_f64(value(row, column))).collect();
    ops.constant(&[rows, columns], &values)
}

/// The inverse of `I + lower`, for matrices `[.., n, n]` that are strictly lower triangular.
///
/// The inverse of the diagonal blocks of size 2s follows from that of the blocks of size s: with `below` the part of `lower` that is
/// in the former and not in the latter, it is `inverse - inverse below inverse`. So there are `2 log2 n` matrix products. The product
/// `(I - A)(I + A^2)(I + A^4)..` takes as many, but powers of `lower` can be large where the inverse is not: with the same key at all
/// of 64 tokens they reach `10^17`, and nothing is left of the result in single precision.
fn unit_lower_inverse<O: Ops + ?Sized>(ops: &O, lower: &O::Tensor) -> O::Tensor {
    let size = ops.shape(lower).width();
    let indicator = |holds: &dyn Fn(usize, usize) -> bool| {
        matrix_from(ops, size, size, |row, column| f64::from(u8::from(holds(row, column))))
    };
    // Blocks of one row are 1, and those of two rows need no product.
    let pairs = ops.mul(lower, &indicator(&|row, column| row / 2 == column / 2));
    let mut inverse = ops.sub(&indicator(&|row, column| row == column), &pairs);
    let mut block = 2;
    while block < size {
        let is_below =
            |row: usize, column: usize| row / (2 * block) == column / (2 * block) && row / block != column / block;
        let below = ops.mul(lower, &indicator(&is_below));
        inverse = ops.sub(&inverse, &ops.matmul(&ops.matmul(&inverse, &below), &inverse));
        block *= 2;
    }
    inverse
}

/// `[batch, time, own heads, width]` as `[batch, heads, time, width]`, with each head repeated `heads / own heads` times.
pub fn heads_first<O: Ops + ?Sized>(ops: &O, x: &O::Tensor, heads: usize) -> O::Tensor {
    let [batch, time, own_heads, width] = extents_of_four_axes(ops, x);
    let x = ops.permute(x, &[0, 2, 1, 3]);
    if own_heads == heads {
        return x;
    }
    let x = ops.reshape(&x, &[batch, own_heads, 1, time, width]);
    let x = ops.broadcast(&x, &[batch, own_heads, heads / own_heads, time, width]);
    ops.reshape(&x, &[batch, heads, time, width])
}

/// The extents of a tensor with four axes.
fn extents_of_four_axes<O: Ops + ?Sized>(ops: &O, x: &O::Tensor) -> [usize; 4] {
    let shape = ops.shape(x);
    shape[..].try_into().unwrap_or_else(|_| panic!("expected four axes, found {shape}"))
}
