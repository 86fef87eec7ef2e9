//! Softmax attention, as in its definition: scores, mask, softmax, weighted sum.

use super::{MASKED, four, heads_first, table};
use crate::ops::{AccumulatorRounding, AttentionInputs, AttentionMask, BlockAttention, Ops, Rounding};
use crate::scalar::Scalar;

/// Composed body of [`Ops::attention`].
pub fn attention<O: Ops + ?Sized>(ops: &O, inputs: &AttentionInputs<'_, O::Tensor>) -> O::Tensor {
    let ([_, queries, heads, _], [_, keys, ..]) = (four(ops, inputs.query), four(ops, inputs.key));
    assert!(queries <= keys, "{queries} queries cannot be the last of {keys} keys");
    let query = heads_first(ops, inputs.query, heads);
    let key = heads_first(ops, inputs.key, heads);
    let value = heads_first(ops, inputs.value, heads);
    let mask = table(ops, queries, keys, |query, key| {
        let seen = inputs.mask.range(query + keys - queries, keys).contains(&key);
        if seen { 0.0 } else { MASKED }
    });
    let mut scores = ops.scale(&ops.product(&query, false, &key, true), inputs.scale);
    if let Some(bias) = inputs.bias {
        scores = ops.add(&scores, bias);
    }
    let weights = ops.softmax(&ops.add(&scores, &mask));
    ops.permute(&ops.matmul(&weights, &value), &[0, 2, 1, 3])
}

/// Composed body of [`Ops::left_to_right_attention`]: all queries take one key at a time, and those that do not see it keep what
/// they have.
pub fn left_to_right_attention<O: Ops + ?Sized>(
    ops: &O,
    inputs: &AttentionInputs<'_, O::Tensor>,
    rounding: Option<AccumulatorRounding>,
) -> O::Tensor {
    let ([batch, queries, heads, _], [_, keys, _, width]) = (four(ops, inputs.query), four(ops, inputs.value));
    assert!(queries <= keys, "{queries} queries cannot be the last of {keys} keys");
    let [query, key, value] = [inputs.query, inputs.key, inputs.value].map(|x| heads_first(ops, &ops.detach(x), heads));
    let bias = inputs.bias.map(|bias| ops.detach(bias));
    let seen = |query: usize| inputs.mask.range(query + keys - queries, keys);
    let column = |holds: &dyn Fn(usize) -> bool| table(ops, queries, 1, |query, _| f64::from(u8::from(holds(query))));
    // Exact, since one of the two is multiplied by zero and the other by one.
    let choose = |mask: &O::Tensor, yes: &O::Tensor, no: &O::Tensor| {
        ops.add(&ops.mul(mask, yes), &ops.mul(&ops.affine(mask, -1.0, 1.0), no))
    };
    let round = |x: &O::Tensor, rounding: Option<Rounding>| rounding.map_or_else(|| x.clone(), |r| r.apply(ops, x));
    let mut mean = ops.zeros(&[batch, heads, queries, width]);
    let mut log_sum = ops.zeros(&[batch, heads, queries, 1]);
    for at in 0..keys {
        let [key, value] = [&key, &value].map(|x| ops.slice(x, 2, at..at + 1));
        let mut score = ops.scale(&ops.sum(&ops.mul(&query, &key), 3), inputs.scale);
        if let Some(bias) = &bias {
            score = ops.add(&score, &ops.slice(bias, 3, at..at + 1));
        }
        let (first, visible) = (column(&|query| seen(query).start == at), column(&|query| seen(query).contains(&at)));
        let gap = ops.sub(&score, &log_sum);
        let share = choose(&first, &ops.full(&[1], 1.0), &ops.sigmoid(&gap));
        let sum = choose(&first, &score, &ops.add(&log_sum, &ops.softplus(&gap)));
        let sum = round(&sum, rounding.map(|rounding| rounding.log_sum));
        let next = ops.add(&mean, &ops.mul(&share, &ops.sub(&value, &mean)));
        mean = choose(&visible, &round(&next, rounding.map(|rounding| rounding.mean)), &mean);
        log_sum = choose(&visible, &sum, &log_sum);
    }
    ops.permute(&mean, &[0, 2, 1, 3])
}

/// Composed body of [`Ops::block_attention`]: attention with all that was not chosen masked.
pub fn block_attention<O: Ops + ?Sized>(ops: &O, inputs: &BlockAttention<'_, O::Tensor>) -> O::Tensor {
    let BlockAttention { query, key, value, scale, .. } = *inputs;
    let bias = block_bias(ops, inputs);
    ops.attention(&AttentionInputs { query, key, value, bias: Some(&bias), mask: AttentionMask::Causal, scale })
}

/// A bias of attention, `[batch, heads, queries, keys]`, that masks all keys but those of the chosen blocks.
pub fn block_bias<O: Ops + ?Sized>(ops: &O, inputs: &BlockAttention<'_, O::Tensor>) -> O::Tensor {
    let BlockAttention { query, key, choice, .. } = *inputs;
    let ([batch, queries, heads, _], [_, keys, ..]) = (four(ops, query), four(ops, key));
    choice.check(batch, queries, keys);
    let mut mask = vec![O::Scalar::from_f64(MASKED); batch * heads * queries * keys];
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
