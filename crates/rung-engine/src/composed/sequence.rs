//! Operations along time that are not attention: short convolution, gated recurrence and rotary position embedding.

use super::extents_of_four_axes;
use crate::ops::{GatedScan, Ops};

/// Composed function of [`Ops::short_convolution`].
pub fn short_convolution<O: Ops + ?Sized>(
    ops: &O,
    x: &O::Tensor,
    filters: &O::Tensor,
    bias: Option<&O::Tensor>,
    state: Option<&O::Tensor>,
) -> (O::Tensor, O::Tensor) {
    let [batch, time, channels] = ops.shape(x)[..] else { panic!("input of shape {}", ops.shape(x)) };
    let taps = ops.shape(filters)[1];
    let initial = state.cloned().unwrap_or_else(|| ops.zeros(&[batch, taps - 1, channels]));
    let padded = if taps == 1 { x.clone() } else { ops.concat(&[initial, x.clone()], 1) };
    let mut sum: Option<O::Tensor> = bias.cloned();
    for tap in 0..taps {
        let filter = ops.reshape(&ops.slice(filters, 1, tap..tap + 1), &[channels]);
        let term = ops.mul(&ops.slice(&padded, 1, tap..tap + time), &filter);
        sum = Some(sum.map_or(term.clone(), |sum| ops.add(&term, &sum)));
    }
    (sum.expect("a filter has at least one tap"), ops.slice(&padded, 1, time..time + taps - 1))
}

/// Composed function of [`Ops::gated_scan`].
pub fn gated_scan<O: Ops + ?Sized>(ops: &O, inputs: &GatedScan<'_, O::Tensor>) -> O::Tensor {
    let GatedScan { value, gate, state, rounding } = *inputs;
    let (time, mut state, mut states) = (ops.shape(value)[1], state.clone(), Vec::new());
    for token in 0..time {
        let [value, gate] = [value, gate].map(|x| ops.slice(x, 1, token..token + 1));
        let next = ops.add(&state, &ops.mul(&gate, &ops.sub(&value, &state)));
        state = rounding.map_or(next.clone(), |rounding| rounding.apply(ops, &next));
        states.push(state.clone());
    }
    ops.concat(&states, 1)
}

/// [`gated_scan`] in `log2(time)` operations on all tokens. Rounding to few bits depends on every state, so with it there are as many
/// as tokens.
///
/// A span of tokens maps the state `h` before it to `kept h + written` after it. Spans that end at each token are doubled until they
/// start at the first (Hillis and Steele 1986).
pub fn parallel_gated_scan<O: Ops + ?Sized>(ops: &O, inputs: &GatedScan<'_, O::Tensor>) -> O::Tensor {
    if inputs.rounding.is_some() {
        return gated_scan(ops, inputs);
    }
    let [batch, time, channels] = ops.shape(inputs.value)[..] else { panic!("values of {}", ops.shape(inputs.value)) };
    let mut kept = ops.affine(inputs.gate, -1.0, 1.0);
    let mut written = ops.mul(inputs.gate, inputs.value);
    let mut span = 1;
    while span < time {
        let earlier = |x: &O::Tensor, before: O::Tensor| ops.concat(&[before, ops.slice(x, 1, 0..time - span)], 1);
        let written_before = earlier(&written, ops.zeros(&[batch, span, channels]));
        written = ops.add(&written, &ops.mul(&kept, &written_before));
        kept = ops.mul(&kept, &earlier(&kept, ops.full(&[batch, span, 1], 1.0)));
        span *= 2;
    }
    ops.add(&written, &ops.mul(&kept, inputs.state))
}

/// Composed function of [`Ops::rotary`].
pub fn rotary<O: Ops + ?Sized>(ops: &O, x: &O::Tensor, cosine: &O::Tensor, sine: &O::Tensor) -> O::Tensor {
    let [_, time, _, width] = extents_of_four_axes(ops, x);
    let half = width / 2;
    let (cosine, sine) = (ops.reshape(cosine, &[time, 1, half]), ops.reshape(sine, &[time, 1, half]));
    let (left, right) = (ops.slice(x, 3, 0..half), ops.slice(x, 3, half..width));
    let rotated_left = ops.sub(&ops.mul(&left, &cosine), &ops.mul(&right, &sine));
    let rotated_right = ops.add(&ops.mul(&right, &cosine), &ops.mul(&left, &sine));
    ops.concat(&[rotated_left, rotated_right], 3)
}
