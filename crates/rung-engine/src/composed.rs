//! Every fused operation, composed of primitives.
//!
//! These bodies are what an executor runs when it has no kernel, and what a kernel is compared with. They are written to be
//! read: no tricks, and formulas in the order a paper gives them. They are functions rather than only default methods so that a
//! test can run them on an executor that overrides the method.

#![expect(clippy::missing_panics_doc, reason = "shapes that do not fit panic; the trait says so once for all")]

mod attention;
mod delta;
mod pointwise;
mod recurrence;
mod sequence;

pub use attention::{attention, block_attention, block_bias, left_to_right_attention};
pub use delta::general_delta;
pub use pointwise::{
    cross_entropy, elu_plus_one, gelu, gelu_exact, l2_norm, layer_norm, linear, rms_norm, round_to_bits, silu,
    silu_gate, softmax,
};
pub use recurrence::recurrence;
pub use sequence::{gated_scan, rotary, short_convolution};

use crate::ops::Ops;

/// Stands for minus infinity in masks: its exponential is zero, and no arithmetic on it makes a NaN.
const MASKED: f64 = -1e30;

/// A matrix without gradient whose elements are given by row and column.
fn table<O: Ops + ?Sized>(ops: &O, rows: usize, columns: usize, value: impl Fn(usize, usize) -> f64) -> O::Tensor {
    let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let values: Vec<_> = cells.map(|(row, column)| crate::Scalar::from_f64(value(row, column))).collect();
    ops.constant(&[rows, columns], &values)
}

/// `[batch, time, heads, width]` as `[batch, heads, time, width]`, each head repeated so that there are `heads` of them.
fn heads_first<O: Ops + ?Sized>(ops: &O, x: &O::Tensor, heads: usize) -> O::Tensor {
    let [batch, time, own, width] = four(ops, x);
    let x = ops.permute(x, &[0, 2, 1, 3]);
    if own == heads {
        return x;
    }
    let x = ops.reshape(&x, &[batch, own, 1, time, width]);
    let x = ops.broadcast(&x, &[batch, own, heads / own, time, width]);
    ops.reshape(&x, &[batch, heads, time, width])
}

/// The extents of a tensor of rank four.
fn four<O: Ops + ?Sized>(ops: &O, x: &O::Tensor) -> [usize; 4] {
    let shape = ops.shape(x);
    shape[..].try_into().unwrap_or_else(|_| panic!("expected four axes, found {shape}"))
}
