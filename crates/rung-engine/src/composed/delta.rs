//! The general delta rule, as its definition says it: one token after another.

use super::{four, heads_first};
use crate::ops::{GeneralDelta, Ops};

/// Composed body of [`Ops::general_delta`].
pub fn general_delta<O: Ops + ?Sized>(ops: &O, inputs: &GeneralDelta<'_, O::Tensor>) -> (O::Tensor, O::Tensor) {
    let [batch, time, heads, value_width] = four(ops, inputs.value);
    let key_width = ops.shape(inputs.key)[3];
    let first = |x: &O::Tensor| heads_first(ops, x, heads);
    let (query, key, value) = (first(inputs.query), first(inputs.key), first(inputs.value));
    let (recall_key, erase_key) = (first(inputs.recall_key), first(inputs.erase_key));
    let fade = ops.permute(&ops.exp(&first(inputs.decay)), &[0, 1, 3, 2]);
    let mut state = inputs.state.cloned().unwrap_or_else(|| ops.zeros(&[batch, heads, key_width, value_width]));
    let mut outputs = Vec::with_capacity(time);
    for token in 0..time {
        let row = |x: &O::Tensor| ops.slice(x, 2, token..token + 1);
        let along = |x: &O::Tensor, row: &O::Tensor| ops.product(x, true, row, false);
        let recalled = ops.matmul(&row(&recall_key), &state);
        let kept = ops.mul(&state, &ops.slice(&fade, 3, token..token + 1));
        let kept = ops.sub(&kept, &along(&row(&erase_key), &recalled));
        state = ops.add(&kept, &along(&row(&key), &row(&value)));
        if let Some(rounding) = inputs.rounding {
            state = rounding.apply(ops, &state);
        }
        outputs.push(ops.matmul(&row(&query), &state));
    }
    (ops.permute(&ops.concat(&outputs, 2), &[0, 2, 1, 3]), state)
}
