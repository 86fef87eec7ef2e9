//! RWKV's token shift: every input is an interpolation between the token and the one before it.

use rung_engine::{Ops, Rounding};
use rung_theory::stack::Mixer;

use super::flag;
use crate::error::ModelError;
use crate::precision::apply_rounding;

/// For every token of `x`, `[batch, time, width]`, the token before it minus the token; the token before the first is zero. `previous_token` is
/// the token before the first of `x`, `[batch, 1, width]`, and the second result is the last token of `x`.
pub(crate) fn previous_minus_current<O: Ops>(
    ops: &O,
    x: &O::Tensor,
    previous_token: Option<&O::Tensor>,
    rounding: Option<Rounding>,
) -> (O::Tensor, O::Tensor) {
    // A convolution of two taps, 1 for the token before and 0 for the token, shifts by one token.
    let filters = ops.concat(&[ops.full(&[ops.shape(x)[2], 1], 1.0), ops.zeros(&[ops.shape(x)[2], 1])], 1);
    let (previous, last_token) =
        ops.short_convolution(&apply_rounding(ops, x, rounding), &filters, None, previous_token);
    (ops.sub(&previous, x), last_token)
}

/// Interpolates between the token and the one before it: `x + weight * difference`, with a weight per channel.
pub(crate) fn interpolate<O: Ops>(ops: &O, x: &O::Tensor, difference: &O::Tensor, weight: &O::Tensor) -> O::Tensor {
    ops.add(x, &ops.mul(difference, weight))
}

/// Returns an error for the token shift of RWKV's channel mixing, which is not implemented in plans.
pub(super) fn reject_channel_shift(name: &'static str, mixer: &Mixer) -> Result<(), ModelError> {
    if !flag(mixer, "channel") {
        return Ok(());
    }
    let what = "RWKV's channel mixing with a shift of its own".to_owned();
    Err(ModelError::UnsupportedOption { mixer: name, what, expected: "channel=no".to_owned() })
}
