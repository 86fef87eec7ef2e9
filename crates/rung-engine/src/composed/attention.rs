//! Softmax attention, as in its definition: scores, mask, softmax, weighted sum.

use super::{MASKED, four, heads_first, table};
use crate::ops::{Attention, Ops};

/// Composed body of [`Ops::attention`].
pub fn attention<O: Ops + ?Sized>(ops: &O, inputs: &Attention<'_, O::Tensor>) -> O::Tensor {
    let ([_, queries, heads, _], [_, keys, ..]) = (four(ops, inputs.query), four(ops, inputs.key));
    assert!(queries <= keys, "{queries} queries cannot be the last of {keys} keys");
    let query = heads_first(ops, inputs.query, heads);
    let key = heads_first(ops, inputs.key, heads);
    let value = heads_first(ops, inputs.value, heads);
    let mask = table(ops, queries, keys, |query, key| {
        let seen = inputs.sight.range(query + keys - queries, keys).contains(&key);
        if seen { 0.0 } else { MASKED }
    });
    let mut scores = ops.scale(&ops.product(&query, false, &key, true), inputs.scale);
    if let Some(bias) = inputs.bias {
        scores = ops.add(&scores, bias);
    }
    let weights = ops.softmax(&ops.add(&scores, &mask));
    ops.permute(&ops.matmul(&weights, &value), &[0, 2, 1, 3])
}
