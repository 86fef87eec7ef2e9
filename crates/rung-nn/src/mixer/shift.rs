//! RWKV's token shift: every input is a mixture of the token and the one before it.

use rung_engine::{Ops, Rounding};
use rung_theory::stack::Mixer;

use super::flag;
use crate::error::ModelError;
use crate::precision::rounded;

/// For every token of `x`, `[batch, time, width]`, the change back to the one before it, which is zero before the first. `last`
/// is the token before the span, `[batch, 1, width]`, and the second result the same for the next.
pub(crate) fn change<O: Ops>(
    ops: &O,
    x: &O::Tensor,
    last: Option<&O::Tensor>,
    rounding: Option<Rounding>,
) -> (O::Tensor, O::Tensor) {
    // A convolution of two taps, the first of which counts.
    let filters = ops.concat(&[ops.full(&[ops.shape(x)[2], 1], 1.0), ops.zeros(&[ops.shape(x)[2], 1])], 1);
    let (before, last) = ops.short_convolution(&rounded(ops, x, rounding), &filters, None, last);
    (ops.sub(&before, x), last)
}

/// A share of the change, per channel, added to the token.
pub(crate) fn mixture<O: Ops>(ops: &O, x: &O::Tensor, change: &O::Tensor, share: &O::Tensor) -> O::Tensor {
    ops.add(x, &ops.mul(change, share))
}

/// Refuses the shift of RWKV's channel mixing, which is no part of a mixer.
pub(super) fn of_tokens_only(name: &'static str, mixer: &Mixer) -> Result<(), ModelError> {
    if !flag(mixer, "channel") {
        return Ok(());
    }
    let what = "RWKV's channel mixing with a shift of its own".to_owned();
    Err(ModelError::Unsupported { mixer: name, what, expected: "channel=no".to_owned() })
}
