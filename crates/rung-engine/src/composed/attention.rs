//! Softmax attention, as in its definition: scores, mask, softmax, weighted sum.

use super::{MASKED, four, heads_first, table};
use crate::ops::{Attention, BlockAttention, Ops, Sight};
use crate::scalar::Scalar;

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

/// Composed body of [`Ops::block_attention`]: attention with all that was not chosen masked.
pub fn block_attention<O: Ops + ?Sized>(ops: &O, inputs: &BlockAttention<'_, O::Tensor>) -> O::Tensor {
    let BlockAttention { query, key, value, scale, .. } = *inputs;
    let bias = block_bias(ops, inputs);
    ops.attention(&Attention { query, key, value, bias: Some(&bias), sight: Sight::Past, scale })
}

/// A bias of attention, `[batch, heads, queries, keys]`, that masks all keys but those of the chosen blocks.
pub fn block_bias<O: Ops + ?Sized>(ops: &O, inputs: &BlockAttention<'_, O::Tensor>) -> O::Tensor {
    let BlockAttention { query, key, choice, .. } = *inputs;
    let ([batch, queries, heads, _], [_, keys, ..]) = (four(ops, query), four(ops, key));
    choice.check(batch, queries, keys);
    let mut mask = vec![O::Scalar::of(MASKED); batch * heads * queries * keys];
    for (row, cells) in mask.chunks_exact_mut(keys).enumerate() {
        let (sequence, head, query) = (row / queries / heads, row / queries % heads, row % queries);
        let group = sequence * choice.groups() + head * choice.groups() / heads;
        for &block in choice.of(group * queries + query) {
            cells
                .iter_mut()
                .skip(block as usize * choice.block())
                .take(choice.block())
                .for_each(|x| *x = O::Scalar::ZERO);
        }
    }
    ops.constant(&[batch, heads, queries, keys], &mask)
}
