//! The general delta rule, token by token as in its definition.

use super::{extents_of_four_axes, heads_first};
use crate::ops::{GeneralDelta, Ops};

/// Composed function of [`Ops::general_delta`].
pub fn general_delta<O: Ops + ?Sized>(ops: &O, inputs: &GeneralDelta<'_, O::Tensor>) -> (O::Tensor, O::Tensor) {
    let [batch, time, heads, value_width] = extents_of_four_axes(ops, inputs.value);
    let key_width = ops.shape(inputs.key)[3];
    let by_head = |x: &O::Tensor| heads_first(ops, x, heads);
    let (query, key, value) = (by_head(inputs.query), by_head(inputs.key), by_head(inputs.value));
    let (recall_key, erase_key) = (by_head(inputs.recall_key), by_head(inputs.erase_key));
    let decay_factors = ops.permute(&ops.exp(&by_head(inputs.decay)), &[0, 1, 3, 2]);
    let mut state = inputs.state.cloned().unwrap_or_else(|| ops.zeros(&[batch, heads, key_width, value_width]));
    let mut outputs = Vec::with_capacity(time);
    for token in 0..time {
        let row = |x: &O::Tensor| ops.slice(x, 2, token..token + 1);
        let outer_product = |x: &O::Tensor, y: &O::Tensor| ops.product(x, true, y, false);
        let recalled = ops.matmul(&row(&recall_key), &state);
        let decayed = ops.mul(&state, &ops.slice(&decay_factors, 3, token..token + 1));
        let erased = ops.sub(&decayed, &outer_product(&row(&erase_key), &recalled));
        state = ops.add(&erased, &outer_product(&row(&key), &row(&value)));
        if let Some(rounding) = inputs.rounding {
            state = rounding.apply(ops, &state);
        }
        outputs.push(ops.matmul(&row(&query), &state));
    }
    (ops.permute(&ops.concat(&outputs, 2), &[0, 2, 1, 3]), state)
}
