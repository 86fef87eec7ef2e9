//! The token before: what RWKV mixes into every token's inputs.

use rung_engine::{Ops, Rounding};

use crate::precision::rounded;

/// For every token of `x`, `[batch, time, width]`, the one before it; zero before the first. `last` is the token before the
/// stretch, `[batch, 1, width]`, and the second result the same for the next.
pub(super) fn token_before<O: Ops>(
    ops: &O,
    x: &O::Tensor,
    last: Option<&O::Tensor>,
    rounding: Option<Rounding>,
) -> (O::Tensor, O::Tensor) {
    // A convolution of two taps, the first of which counts.
    let filters = ops.concat(&[ops.full(&[ops.shape(x)[2], 1], 1.0), ops.zeros(&[ops.shape(x)[2], 1])], 1);
    ops.short_convolution(&rounded(ops, x, rounding), &filters, None, last)
}
