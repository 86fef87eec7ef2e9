//! Causal attention of one long prompt on several threads.
//!
//! Queries are cut into blocks, and a block sees no key after its own last one. So a block with the keys up to there is attention of its own, whose
//! result is a slice of the whole. Every row is computed as on one thread, so the bits are the same.

use std::sync::{Arc, Mutex};

use super::pool::Pool;
use super::threaded_product::next_of;
use super::worker_pool::WorkerPool;
use crate::kernels::attention::{Extents, Inputs, MANY_QUERIES, forward};
use crate::ops::AttentionMask;
use crate::scalar::Scalar;

/// Blocks for each thread: later ones see more keys and take longer.
const BLOCKS: usize = 4;

/// Whether attention is worth sharing out, and can be.
pub(super) fn is_divisible<S: Scalar>(extents: &Extents, inputs: &Inputs<'_, S>) -> bool {
    let causal = extents.mask != AttentionMask::None && extents.queries <= extents.keys;
    extents.batch == 1 && extents.queries >= 4 * MANY_QUERIES && causal && inputs.bias.is_none()
}

/// Outputs `[1, queries, heads, value width]`, without the log-sums that a backward pass would need.
pub(super) fn forward_on<S: Scalar>(
    workers: &mut WorkerPool,
    pool: &Arc<Pool<S>>,
    extents: Extents,
    inputs: &Inputs<'_, S>,
    out: &mut [S],
) {
    let Extents { queries, heads, key_heads, width, value_width, .. } = extents;
    let size = (queries / (workers.threads() * BLOCKS)).max(MANY_QUERIES);
    // What is left over goes to the last block, so that none has so few queries that it is computed otherwise.
    let (mut blocks, mut rest, mut first) = (Vec::with_capacity(queries / size), out, 0);
    while queries - first >= 2 * size {
        let (block, after) = rest.split_at_mut(size * heads * value_width);
        blocks.push((first, block));
        (rest, first) = (after, first + size);
    }
    blocks.push((first, rest));
    // The longest first.
    let blocks = Mutex::new(blocks.into_iter().rev());
    workers.run(&|_| {
        while let Some((first, out)) = next_of(&blocks) {
            let count = out.len() / (heads * value_width);
            let keys = extents.keys - queries + first + count;
            let part = Extents { queries: count, keys, ..extents };
            let own = Inputs {
                query: &inputs.query[first * heads * width..(first + count) * heads * width],
                key: &inputs.key[..keys * key_heads * width],
                value: &inputs.value[..keys * key_heads * value_width],
                bias: None,
            };
            let (mut scratch, mut kept) = (pool.take(part.scratch::<S>()), pool.take(heads * count));
            forward(part, &own, scratch.write(), kept.write(), out);
        }
    });
}
