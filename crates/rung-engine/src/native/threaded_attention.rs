//! Attention of one sequence on several threads.
//!
//! The queries of a long prompt are split into blocks. A causal block sees no key after its own last query, so a block with the keys up
//! to there is an attention problem of its own, and its result is a slice of the total result. The one query of a decoding step is
//! split by heads. Every row is computed as on one thread, so the bits are the same.

use std::sync::{Arc, Mutex};

use super::pool::Pool;
use super::threaded_product::next_task;
use super::worker_pool::WorkerPool;
use crate::kernels::attention::{Extents, Inputs, MIN_TILED_QUERIES, forward};
use crate::ops::AttentionMask;
use crate::scalar::Scalar;

/// Blocks per thread: several, because later blocks see more keys and take longer.
const BLOCKS_PER_THREAD: usize = 4;

/// Attention of one query with fewer products than this is not worth waking a thread for.
const MIN_PRODUCTS: usize = 1 << 16;

/// Whether attention can be split into blocks of queries or into heads, and is large enough for it.
pub(super) fn is_divisible<S: Scalar>(extents: &Extents, inputs: &Inputs<'_, S>) -> bool {
    let one_query = extents.query_len == 1 && extents.heads * extents.key_len * extents.width >= MIN_PRODUCTS;
    let causal = extents.mask != AttentionMask::None && extents.query_len <= extents.key_len;
    let long_prompt = extents.query_len >= 4 * MIN_TILED_QUERIES && causal;
    extents.batch == 1 && inputs.bias.is_none() && (one_query || long_prompt)
}

/// Computes the outputs `[1, queries, heads, value width]` on all threads, without the log-sums that a backward pass would need.
pub(super) fn forward_on<S: Scalar>(
    workers: &mut WorkerPool,
    pool: &Arc<Pool<S>>,
    extents: Extents,
    inputs: &Inputs<'_, S>,
    out: &mut [S],
) {
    if extents.query_len == 1 {
        return one_query_on(workers, pool, extents, inputs, out);
    }
    let Extents { query_len, heads, kv_heads, width, value_width, .. } = extents;
    let block_len = (query_len / (workers.threads() * BLOCKS_PER_THREAD)).max(MIN_TILED_QUERIES);
    // The last block also takes the remainder: a block of few queries would be computed by another path, with other rounding.
    let (mut blocks, mut remaining, mut first_query) = (Vec::with_capacity(query_len / block_len), out, 0);
    while query_len - first_query >= 2 * block_len {
        let (block, after) = remaining.split_at_mut(block_len * heads * value_width);
        blocks.push((first_query, block));
        (remaining, first_query) = (after, first_query + block_len);
    }
    blocks.push((first_query, remaining));
    // The last blocks take longest, so they start first.
    let blocks = Mutex::new(blocks.into_iter().rev());
    workers.run(&|_| {
        while let Some((first_query, out)) = next_task(&blocks) {
            let query_count = out.len() / (heads * value_width);
            let key_len = extents.key_len - query_len + first_query + query_count;
            let block_extents = Extents { query_len: query_count, key_len, ..extents };
            let block_inputs = Inputs {
                query: &inputs.query[first_query * heads * width..(first_query + query_count) * heads * width],
                key: &inputs.key[..key_len * kv_heads * width],
                value: &inputs.value[..key_len * kv_heads * value_width],
                bias: None,
            };
            let mut scratch = pool.take(block_extents.forward_scratch_len::<S>());
            let mut log_sums = pool.take(heads * query_count);
            forward(block_extents, &block_inputs, scratch.write(), log_sums.write(), out);
        }
    });
}

/// Computes the outputs `[1, 1, heads, value width]`, each head by itself.
fn one_query_on<S: Scalar>(
    workers: &mut WorkerPool,
    pool: &Arc<Pool<S>>,
    extents: Extents,
    inputs: &Inputs<'_, S>,
    out: &mut [S],
) {
    let Extents { heads, kv_heads, width, value_width, .. } = extents;
    let one_head = Extents { heads: 1, ..extents };
    let outputs = Mutex::new(out.chunks_exact_mut(value_width).enumerate());
    workers.run(&|_| {
        let (mut scratch, mut log_sum) = (pool.take(one_head.forward_scratch_len::<S>()), pool.take(1));
        while let Some((head, out)) = next_task(&outputs) {
            // Rows of keys and values stay `kv_heads` heads apart. A single query head reads the first key head, so the slices start at its own.
            let kv_head = head * kv_heads / heads;
            let head_inputs = Inputs {
                query: &inputs.query[head * width..(head + 1) * width],
                key: &inputs.key[kv_head * width..],
                value: &inputs.value[kv_head * value_width..],
                bias: None,
            };
            forward(one_head, &head_inputs, scratch.write(), log_sum.write(), out);
        }
    });
}
