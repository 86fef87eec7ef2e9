//! Every fused operation, composed of primitives.
//!
//! An executor without a kernel for an operation runs its composed function, and kernels are tested against it. The functions follow
//! the formulas of the papers, in their order. They are not default methods of the trait, so that a test can run them on an
//! executor that has kernels.

#![expect(clippy::missing_panics_doc, reason = "shapes that do not fit panic, as the documentation of the trait says")]

mod attention;
mod delta;
mod pointwise;
mod recurrence;
mod sequence;

pub use attention::{attention, block_attention, block_bias, choose_tokens, left_to_right_attention};
pub use delta::general_delta;
pub use pointwise::{
    cross_entropy, elu_plus_one, gelu, gelu_exact, l2_norm, layer_norm, linear, rms_norm, round_to_bits, silu,
    silu_gate, softmax,
};
pub use recurrence::recurrence;
pub use sequence::{gated_scan, rotary, short_convolution};

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

/// `[batch, time, own heads, width]` as `[batch, heads, time, width]`, with each head repeated `heads / own heads` times.
fn heads_first<O: Ops + ?Sized>(ops: &O, x: &O::Tensor, heads: usize) -> O::Tensor {
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
