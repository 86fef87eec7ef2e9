//! Softmax attention as in its definition: scores, mask, softmax, weighted sum.

use super::{MASKED, extents_of_four_axes, heads_first, matrix_from};
use crate::choice::BlockChoice;
use crate::kernels::top_k::top_k;
use crate::ops::{AccumulatorRounding, AttentionInputs, AttentionMask, BlockAttention, Indexer, Ops, Rounding};
use crate::scalar::Scalar;

/// Composed function of [`Ops::attention`].
pub fn attention<O: Ops + ?Sized>(ops: &O, inputs: &AttentionInputs<'_, O::Tensor>) -> O::Tensor {
    let ([_, queries, heads, _], [_, keys, ..]) =
        (extents_of_four_axes(ops, inputs.query), extents_of_four_axes(ops, inputs.key));
    assert!(queries <= keys, "{queries} queries cannot be the last of {keys} keys");
    let query = heads_first(ops, inputs.query, heads);
    let key = heads_first(ops, inputs.key, heads);
    let value = heads_first(ops, inputs.value, heads);
    let mask = matrix_from(ops, queries, keys, |query, key| {
        let is_visible = inputs.mask.range(query + keys - queries, keys).contains(&key);
        if is_visible { 0.0 } else { MASKED }
    });
    let mut scores = ops.scale(&ops.product(&query, false, &key, true), inputs.scale);
    if let Some(bias) = inputs.bias {
        scores = ops.add(&scores, bias);
    }
    let weights = ops.softmax(&ops.add(&scores, &mask));
    ops.permute(&ops.matmul(&weights, &value), &[0, 2, 1, 3])
}

/// Composed function of [`Ops::left_to_right_attention`]: all queries take one key at a time, and those that do not see it keep
/// their accumulators.
pub fn left_to_right_attention<O: Ops + ?Sized>(
    ops: &O,
    inputs: &AttentionInputs<'_, O::Tensor>,
    rounding: Option<AccumulatorRounding>,
) -> O::Tensor {
    let ([batch, queries, heads, _], [_, keys, _, width]) =
        (extents_of_four_axes(ops, inputs.query), extents_of_four_axes(ops, inputs.value));
    assert!(queries <= keys, "{queries} queries cannot be the last of {keys} keys");
    let [query, key, value] = [inputs.query, inputs.key, inputs.value].map(|x| heads_first(ops, &ops.detach(x), heads));
    let bias = inputs.bias.map(|bias| ops.detach(bias));
    let visible_keys = |query: usize| inputs.mask.range(query + keys - queries, keys);
    let indicator =
        |holds: &dyn Fn(usize) -> bool| matrix_from(ops, queries, 1, |query, _| f64::from(u8::from(holds(query))));
    // Exact, since one of the two is multiplied by zero and the other by one.
    let select = |mask: &O::Tensor, yes: &O::Tensor, no: &O::Tensor| {
        ops.add(&ops.mul(mask, yes), &ops.mul(&ops.affine(mask, -1.0, 1.0), no))
    };
    let round = |x: &O::Tensor, rounding: Option<Rounding>| rounding.map_or_else(|| x.clone(), |r| r.apply(ops, x));
    let mut mean = ops.zeros(&[batch, heads, queries, width]);
    let mut log_sum = ops.zeros(&[batch, heads, queries, 1]);
    for index in 0..keys {
        let [key, value] = [&key, &value].map(|x| ops.slice(x, 2, index..index + 1));
        let mut score = ops.scale(&ops.sum(&ops.mul(&query, &key), 3), inputs.scale);
        if let Some(bias) = &bias {
            score = ops.add(&score, &ops.slice(bias, 3, index..index + 1));
        }
        let is_first = indicator(&|query| visible_keys(query).start == index);
        let is_visible = indicator(&|query| visible_keys(query).contains(&index));
        let gap = ops.sub(&score, &log_sum);
        let share = select(&is_first, &ops.full(&[1], 1.0), &ops.sigmoid(&gap));
        let new_log_sum = select(&is_first, &score, &ops.add(&log_sum, &ops.softplus(&gap)));
        let new_log_sum = round(&new_log_sum, rounding.map(|rounding| rounding.log_sum));
        let new_mean = ops.add(&mean, &ops.mul(&share, &ops.sub(&value, &mean)));
        mean = select(&is_visible, &round(&new_mean, rounding.map(|rounding| rounding.mean)), &mean);
        log_sum = select(&is_visible, &new_log_sum, &log_sum);
    }
    ops.permute(&mean, &[0, 2, 1, 3])
}

/// Composed function of [`Ops::block_attention`]: attention with all other blocks masked.
pub fn block_attention<O: Ops + ?Sized>(ops: &O, inputs: &BlockAttention<'_, O::Tensor>) -> O::Tensor {
    let BlockAttention { query, key, value, scale, .. } = *inputs;
    let bias = block_bias(ops, inputs);
    ops.attention(&AttentionInputs { query, key, value, bias: Some(&bias), mask: AttentionMask::Causal, scale })
}

/// A bias for attention, `[batch, heads, queries, keys]`, that masks all keys outside of the chosen blocks.
pub fn block_bias<O: Ops + ?Sized>(ops: &O, inputs: &BlockAttention<'_, O::Tensor>) -> O::Tensor {
    let BlockAttention { query, key, choice, .. } = *inputs;
    let ([batch, queries, heads, _], [_, keys, ..]) =
        (extents_of_four_axes(ops, query), extents_of_four_axes(ops, key));
    choice.check(batch, queries, keys);
    let mut mask = vec![O::Scalar::from_f64(MASKED); batch * heads * queries * keys];
    for (row, biases) in mask.chunks_exact_mut(keys).enumerate() {
        let (sequence, head, query) = (row / queries / heads, row / queries % heads, row % queries);
        let group = sequence * choice.groups() + head * choice.groups() / heads;
        for &block in choice.blocks_of(group * queries + query) {
            biases
                .iter_mut()
                .skip(block as usize * choice.block_size())
                .take(choice.block_size())
                .for_each(|x| *x = O::Scalar::ZERO);
        }
    }
    ops.constant(&[batch, heads, queries, keys], &mask)
}

/// Composed function of [`Ops::choose_tokens`]: the scores of all pairs of tokens, then a sort of each query's.
pub fn choose_tokens<O: Ops + ?Sized>(ops: &O, inputs: &Indexer<'_, O::Tensor>) -> BlockChoice {
    let [batch, queries, heads, width] = extents_of_four_axes(ops, inputs.query);
    let keys = ops.shape(inputs.key)[1];
    let query = ops.reshape(inputs.query, &[batch, queries * heads, width]);
    let similarities = ops.relu(&ops.product(&query, false, inputs.key, true));
    let similarities = ops.reshape(&similarities, &[batch, queries, heads, keys]);
    let head_weights = ops.reshape(inputs.head_weights, &[batch, queries, heads, 1]);
    let scores = ops.values(&ops.sum(&ops.mul(&similarities, &head_weights), 2));
    let mut choice = BlockChoice::new(1, 1);
    for (row, scores) in scores.chunks_exact(keys).enumerate() {
        choice.push(top_k(&scores[..=row % queries + keys - queries], inputs.top));
    }
    choice
}
