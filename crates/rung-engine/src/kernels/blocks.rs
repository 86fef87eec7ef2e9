//! Softmax attention in which each query reads only chosen blocks of keys, at the cost of those blocks alone.
//!
//! Neighbouring queries are computed together, so that they and their outputs stay in the L2 cache, and for them one block after another.
//! The queries that read a block (its readers), for all heads that share the block's keys and the choice, are copied together, and their
//! attention to the block is two dense matrix products. Each block gives its readers an average of its values and the log of its sum of
//! exponentials. Two such pairs of average and log-sum merge into the pair of both blocks, so each query's pairs are merged
//! block after block. The backward pass also runs block by block: the log of the total sum gives the weights of one block without
//! the others.

use super::pointwise::accumulate;
use super::product::{Matrix, MatrixMut, TILE_ROWS, WriteMode, dot, product};
use super::softmax::{softmax_row, softmax_row_gradients};
use crate::choice::BlockReaders;
use crate::scalar::Scalar;
use std::ops::Range;

/// The sizes of the inputs, and the scale of the scores.
#[derive(Clone, Copy)]
pub(crate) struct Extents {
    pub(crate) batch: usize,
    pub(crate) query_len: usize,
    pub(crate) key_len: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    /// Groups of heads; all heads of a group read the same blocks.
    pub(crate) groups: usize,
    pub(crate) width: usize,
    pub(crate) value_width: usize,
    /// Keys per block.
    pub(crate) block: usize,
    pub(crate) scale: f64,
}

/// The most rows, one for each reader and head, that are copied together.
const MAX_TILE_ROWS: usize = 32 * TILE_ROWS;
/// Rows of a span of queries, one for each query and head: a span goes through all blocks before the next span does.
const SPAN_ROWS: usize = 1024;

/// Adjacent heads of one sequence that share their KV head and their choice.
#[derive(Clone, Copy)]
struct HeadRun {
    sequence: usize,
    first: usize,
    count: usize,
    extents: Extents,
}

/// A block of keys and some of its readers, at most `MAX_TILE_ROWS` for all heads of the run.
struct Tile<'a> {
    readers: &'a [u32],
    key_range: Range<usize>,
}

impl Extents {
    /// Length of the scratch buffer of the forward pass: queries, scores and averages of a tile.
    pub(crate) fn forward_scratch_len(&self) -> usize {
        self.tile_rows() * (self.width + self.block + self.value_width)
    }

    /// Length of the scratch buffer of the backward pass: a tile's queries and weights, their gradients, the gradients of its
    /// outputs, and one number per query.
    pub(crate) fn backward_scratch_len(&self) -> usize {
        self.tile_rows() * (2 * self.width + 2 * self.block + self.value_width) + self.heads_per_run() * self.query_len
    }

    /// The most heads that share both their KV head and their choice: a common divisor of the heads of each.
    fn heads_per_run(&self) -> usize {
        let (per_kv_head, per_group) = (self.heads / self.kv_heads, self.heads / self.groups);
        let divides = |count: &usize| per_kv_head.is_multiple_of(*count) && per_group.is_multiple_of(*count);
        (1..=per_group).rev().find(divides).expect("one divides every number")
    }

    /// Rows of the largest tile.
    fn tile_rows(&self) -> usize {
        MAX_TILE_ROWS.max(self.heads_per_run())
    }

    fn runs(self) -> impl Iterator<Item = HeadRun> {
        let count = self.heads_per_run();
        (0..self.batch).flat_map(move |sequence| {
            (0..self.heads).step_by(count).map(move |first| HeadRun { sequence, first, count, extents: self })
        })
    }
}

impl HeadRun {
    /// Tiles of readers, span of queries by span, and in each block by block.
    fn tiles(self, readers: &BlockReaders) -> impl Iterator<Item = Tile<'_>> {
        let Extents { groups, heads, query_len, key_len, block, .. } = self.extents;
        let group = self.sequence * groups + self.first * groups / heads;
        let span = (SPAN_ROWS / self.count).max(1);
        let tile_readers = self.extents.tile_rows() / self.count;
        (0..query_len).step_by(span).flat_map(move |first| {
            (0..key_len.div_ceil(block)).flat_map(move |index| {
                let key_range = index * block..key_len.min((index + 1) * block);
                let readers = readers.readers_of(group, index);
                let [start, end] =
                    [first, first + span].map(|query| readers.partition_point(|reader| (*reader as usize) < query));
                let tiles = readers[start..end].chunks(tile_readers);
                tiles.map(move |readers| Tile { readers, key_range: key_range.clone() })
            })
        })
    }

    /// The rows of a tile: a reader and a head for each.
    fn rows(self, readers: &[u32]) -> impl Iterator<Item = (u32, usize)> {
        readers.iter().flat_map(move |&query| (0..self.count).map(move |head| (query, head)))
    }

    /// Where a query of all heads of the run lies in `[batch, queries, heads, width]`.
    fn query_range(&self, query: u32, width: usize) -> Range<usize> {
        let start =
            ((self.sequence * self.extents.query_len + query as usize) * self.extents.heads + self.first) * width;
        start..start + self.count * width
    }

    /// Where a query of one head lies.
    fn row_range(&self, (query, head): (u32, usize), width: usize) -> Range<usize> {
        let start = self.query_range(query, width).start + head * width;
        start..start + width
    }

    /// Index of a query's log-sum in `[batch, heads, queries]`.
    fn log_sum_index(&self, (query, head): (u32, usize)) -> usize {
        (self.sequence * self.extents.heads + self.first + head) * self.extents.query_len + query as usize
    }

    /// How many keys of the tile a reader sees: all, unless its own position is among them.
    fn visible_key_count(&self, tile: &Tile<'_>, query: u32) -> usize {
        let position = query as usize + self.extents.key_len - self.extents.query_len;
        tile.key_range.len().min(position + 1 - tile.key_range.start)
    }

    /// Offset of a tile's first key in `[batch, keys, KV heads, width]`, and the stride from one key to the next.
    fn key_position(&self, tile: &Tile<'_>, width: usize) -> (usize, usize) {
        let Extents { key_len, kv_heads, heads, .. } = self.extents;
        let row = self.sequence * key_len + tile.key_range.start;
        ((row * kv_heads + self.first * kv_heads / heads) * width, kv_heads * width)
    }

    fn key_matrix<'a, S>(&self, tile: &Tile<'_>, x: &'a [S], width: usize) -> Matrix<'a, S> {
        let (start, stride) = self.key_position(tile, width);
        Matrix::new(&x[start..], tile.key_range.len(), width, stride)
    }

    fn key_matrix_mut<'a, S>(&self, tile: &Tile<'_>, x: &'a mut [S], width: usize) -> MatrixMut<'a, S> {
        let (start, stride) = self.key_position(tile, width);
        MatrixMut::new(&mut x[start..], tile.key_range.len(), width, stride)
    }

    /// Copies the rows of the tile's readers into consecutive rows.
    fn gather<S: Scalar>(&self, tile: &Tile<'_>, x: &[S], width: usize, out: &mut [S]) {
        for (&query, out) in tile.readers.iter().zip(out.chunks_exact_mut(self.count * width)) {
            out.copy_from_slice(&x[self.query_range(query, width)]);
        }
    }
}

/// A matrix whose rows follow each other in a slice.
fn contiguous<S>(x: &[S], rows: usize, width: usize) -> Matrix<'_, S> {
    Matrix::new(x, rows, width, width)
}

fn contiguous_mut<S>(x: &mut [S], rows: usize, width: usize) -> MatrixMut<'_, S> {
    MatrixMut::new(x, rows, width, width)
}

vectorised! {
    /// Merges the average and log-sum of a block into those of the blocks before; returns the log of the total sum.
    fn merge<S>(log_sum: S, average: &mut [S], block_log_sum: S, block_average: &[S]) -> S {
        let (maximum, gap) = (log_sum.larger(block_log_sum), (log_sum - block_log_sum).abs());
        let total = maximum + (S::ONE + (-gap).exp()).ln();
        let (share, block_share) = ((log_sum - total).exp(), (block_log_sum - total).exp());
        for (x, &y) in average.iter_mut().zip(block_average) {
            *x = *x * share + y * block_share;
        }
        total
    }
}

/// Queries, keys and values.
pub(crate) type Inputs<'a, S> = [&'a [S]; 3];

/// Writes the outputs `[batch, queries, heads, value width]` and the log-sums `[batch, heads, queries]`.
pub(crate) fn forward<S: Scalar>(
    extents: Extents,
    readers: &BlockReaders,
    [query, key, value]: Inputs<'_, S>,
    scratch: &mut [S],
    (log_sums, out): (&mut [S], &mut [S]),
) {
    let Extents { width, value_width, block, scale, .. } = extents;
    let tile_rows = extents.tile_rows();
    let (queries, remaining) = scratch.split_at_mut(tile_rows * width);
    let (scores, averages) = remaining.split_at_mut(tile_rows * block);
    log_sums.fill(S::LOWEST);
    for run in extents.runs() {
        for tile in run.tiles(readers) {
            let (count, key_count) = (tile.readers.len() * run.count, tile.key_range.len());
            run.gather(&tile, query, width, queries);
            let query_rows = contiguous(queries, count, width);
            let keys = run.key_matrix(&tile, key, width);
            product(&mut contiguous_mut(scores, count, key_count), WriteMode::Overwrite, scale, query_rows, keys.t());
            // The queries are no longer needed.
            let block_log_sums: &mut [S] = &mut queries[..count];
            let rows = run.rows(tile.readers).zip(scores.chunks_exact_mut(key_count));
            for (((query, _), scores), block_log_sum) in rows.zip(&mut *block_log_sums) {
                *block_log_sum = softmax_row(scores, 0, run.visible_key_count(&tile, query));
            }
            let values = run.key_matrix(&tile, value, value_width);
            let mut average_rows = contiguous_mut(averages, count, value_width);
            let weights = contiguous(scores, count, key_count);
            product(&mut average_rows, WriteMode::Overwrite, 1.0, weights, values);
            let rows = run.rows(tile.readers).zip(averages.chunks_exact(value_width));
            for ((row, average), &block_log_sum) in rows.zip(&*block_log_sums) {
                let log_sum = &mut log_sums[run.log_sum_index(row)];
                let out = &mut out[run.row_range(row, value_width)];
                if *log_sum == S::LOWEST {
                    out.copy_from_slice(average);
                    *log_sum = block_log_sum;
                } else {
                    *log_sum = merge(*log_sum, out, block_log_sum, average);
                }
            }
        }
    }
}

/// Adds to the gradients of queries, keys and values, from the output, the log-sums and the gradient of the output.
pub(crate) fn backward<S: Scalar>(
    extents: Extents,
    readers: &BlockReaders,
    [query, key, value]: Inputs<'_, S>,
    (out, log_sums, grad_out): (&[S], &[S], &[S]),
    scratch: &mut [S],
    [grad_query, grad_key, grad_value]: [&mut [S]; 3],
) {
    let Extents { width, value_width, block, scale, .. } = extents;
    let tile_rows = extents.tile_rows();
    let (queries, remaining) = scratch.split_at_mut(tile_rows * width);
    let (grad_queries, remaining) = remaining.split_at_mut(tile_rows * width);
    let (weights, remaining) = remaining.split_at_mut(tile_rows * block);
    let (grad_scores, remaining) = remaining.split_at_mut(tile_rows * block);
    let (grad_outputs, output_dots) = remaining.split_at_mut(tile_rows * value_width);
    for run in extents.runs() {
        for (query, output_dots) in (0..extents.query_len as u32).zip(output_dots.chunks_exact_mut(run.count)) {
            for (head, output_dot) in output_dots.iter_mut().enumerate() {
                let range = run.row_range((query, head), value_width);
                *output_dot = dot(&out[range.clone()], &grad_out[range]);
            }
        }
        for tile in run.tiles(readers) {
            let (count, key_count) = (tile.readers.len() * run.count, tile.key_range.len());
            run.gather(&tile, query, width, queries);
            run.gather(&tile, grad_out, value_width, grad_outputs);
            let query_rows = contiguous(queries, count, width);
            let grad_out_rows = contiguous(grad_outputs, count, value_width);
            let (keys, values) = (run.key_matrix(&tile, key, width), run.key_matrix(&tile, value, value_width));
            product(&mut contiguous_mut(weights, count, key_count), WriteMode::Overwrite, scale, query_rows, keys.t());
            let mut grad_weights = contiguous_mut(grad_scores, count, key_count);
            product(&mut grad_weights, WriteMode::Overwrite, 1.0, grad_out_rows, values.t());
            let pairs = weights.chunks_exact_mut(key_count).zip(grad_scores.chunks_exact_mut(key_count));
            for (row, (weights, grad_scores)) in run.rows(tile.readers).zip(pairs) {
                let (log_sum, output_dot) =
                    (log_sums[run.log_sum_index(row)], output_dots[row.0 as usize * run.count + row.1]);
                let visible_count = run.visible_key_count(&tile, row.0);
                softmax_row_gradients(weights, grad_scores, 0, visible_count, log_sum, output_dot);
            }
            let weights = contiguous(weights, count, key_count);
            let grad_scores = contiguous(grad_scores, count, key_count);
            product(&mut contiguous_mut(grad_queries, count, width), WriteMode::Overwrite, scale, grad_scores, keys);
            for (&query, grad_query_rows) in tile.readers.iter().zip(grad_queries.chunks_exact(run.count * width)) {
                accumulate(grad_query_rows, &mut grad_query[run.query_range(query, width)]);
            }
            let mut grad_keys = run.key_matrix_mut(&tile, grad_key, width);
            product(&mut grad_keys, WriteMode::Add, scale, grad_scores.t(), query_rows);
            let mut grad_values = run.key_matrix_mut(&tile, grad_value, value_width);
            product(&mut grad_values, WriteMode::Add, 1.0, weights.t(), grad_out_rows);
        }
    }
}
