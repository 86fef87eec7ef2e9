//! Softmax attention without storing the matrix of attention weights.
//!
//! Each head is computed a tile of queries at a time. A matrix product gives the tile's scores against its visible keys, a
//! softmax turns them into weights, and a product with the values gives the outputs. Only the logarithm of each row's sum of
//! exponentials is stored. The backward pass computes the scores and weights again and then needs four more products. Keys that
//! no query of the tile sees are skipped, so causal attention costs half of full attention, and a window costs its size.
//!
//! Tiles are so small that their scores stay in the L2 cache, and that few of a causal mask's hidden scores are computed. The backward
//! pass, which needs no complete rows of scores, also splits tiles by keys. Keys and values of a head are packed for the products once,
//! unless there are only a few queries, as in decoding; for the backward pass queries and gradients of outputs are packed too. A
//! product with panels gives complete panels of scores; those after the last key are hidden by the softmax.

use crate::kernels::pointwise::accumulate;
use crate::kernels::product::{
    Matrix, MatrixMut, PANEL_ALIGNMENT, Panels, TILE_ROWS, WriteMode, dot, product, product_with_panels,
};
use crate::kernels::softmax::{LANES, exponentials, scale_row, softmax_row_gradients};
use crate::ops::AttentionMask;
use crate::scalar::Scalar;
use std::ops::Range;

/// The sizes of attention's inputs, its mask and its scale.
#[derive(Clone, Copy)]
pub(crate) struct Extents {
    pub(crate) batch: usize,
    pub(crate) query_len: usize,
    pub(crate) key_len: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) width: usize,
    pub(crate) value_width: usize,
    pub(crate) mask: AttentionMask,
    pub(crate) scale: f64,
}

/// A bias added to the scores, `[batch or 1, heads or 1, queries, keys]`.
pub(crate) struct Bias<'a, S> {
    pub(crate) values: &'a [S],
    /// Whether sequences have different biases.
    pub(crate) per_sequence: bool,
    /// Whether heads have different biases.
    pub(crate) per_head: bool,
}

/// The most scores of a tile in the forward pass, which needs complete rows: 128 KB in single precision.
const MAX_TILE_SCORES: usize = 1 << 15;
/// The most queries of a tile.
const MAX_TILE_QUERIES: usize = 5 * TILE_ROWS;
/// The most keys of a tile in the backward pass, which needs no complete rows.
const MAX_TILE_KEYS: usize = 8 * PANEL_ALIGNMENT;
/// From this many queries on, keys and values are packed into panels once for all tiles.
pub(crate) const MIN_PACKED_QUERIES: usize = 4 * TILE_ROWS;

impl Extents {
    /// Queries per tile, about equally many in each tile and a multiple of `TILE_ROWS`.
    fn tile_rows(&self, max_rows: usize) -> usize {
        let tiles = self.query_len.div_ceil(max_rows.clamp(TILE_ROWS, MAX_TILE_QUERIES)).max(1);
        self.query_len.div_ceil(tiles).next_multiple_of(TILE_ROWS)
    }

    /// Queries per tile in the forward pass.
    fn forward_tile_rows(&self) -> usize {
        self.tile_rows(MAX_TILE_SCORES / self.key_len.max(1) / TILE_ROWS * TILE_ROWS)
    }

    /// Length of the scratch buffer of the forward pass: a tile's scores, and the panels of keys and values.
    pub(crate) fn forward_scratch_len<S: Scalar>(&self) -> usize {
        self.forward_tile_rows() * score_stride(self.key_len)
            + Panels::<S>::size(self.width, self.key_len)
            + Panels::<S>::size(self.key_len, self.value_width)
    }

    /// Length of the scratch buffer of the backward pass: a tile's weights and their gradients, one number per query of the
    /// tile, and panels of the keys, of the transposed keys, of the values, of the queries and of the outputs' gradients.
    pub(crate) fn backward_scratch_len<S: Scalar>(&self) -> usize {
        let rows = self.tile_rows(MAX_TILE_QUERIES);
        rows * (2 * score_stride(MAX_TILE_KEYS) + 1)
            + Panels::<S>::size(self.width, self.key_len)
            + Panels::<S>::size(self.key_len, self.width)
            + Panels::<S>::size(self.value_width, self.key_len)
            + Panels::<S>::size(self.query_len, self.width)
            + Panels::<S>::size(self.query_len, self.value_width)
    }

    /// The keys that the mask lets a query see.
    pub(crate) fn visible_keys(&self, query: usize) -> Range<usize> {
        self.mask.range(query + self.key_len - self.query_len, self.key_len)
    }

    /// Where the biases `[queries, keys]` of a sequence and head start.
    pub(super) fn bias_offset<S>(&self, bias: &Bias<'_, S>, sequence: usize, head: usize) -> usize {
        let heads = if bias.per_head { self.heads } else { 1 };
        let sequence = if bias.per_sequence { sequence } else { 0 };
        (sequence * heads + if bias.per_head { head } else { 0 }) * self.query_len * self.key_len
    }

    /// The keys, or the values, of a sequence and KV head in `[batch, keys, KV heads, width]`.
    fn kv_head_matrix<'a, S>(&self, x: &'a [S], (sequence, kv_head): (usize, usize), width: usize) -> Matrix<'a, S> {
        let start = (sequence * self.key_len * self.kv_heads + kv_head) * width;
        Matrix::new(&x[start.min(x.len())..], self.key_len, width, self.kv_heads * width)
    }

    /// The queries, or the gradients of outputs, of a sequence and head in `[batch, queries, heads, width]`.
    fn head_matrix<'a, S>(&self, x: &'a [S], (sequence, head): (usize, usize), width: usize) -> Matrix<'a, S> {
        let start = (sequence * self.query_len * self.heads + head) * width;
        Matrix::new(&x[start.min(x.len())..], self.query_len, width, self.heads * width)
    }

    /// Every pair of a sequence and a KV head.
    fn sequences_and_kv_heads(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.batch).flat_map(move |sequence| (0..self.kv_heads).map(move |head| (sequence, head)))
    }

    /// The query heads that share a KV head, each with its sequence.
    fn query_heads(self, (sequence, kv_head): (usize, usize)) -> impl Iterator<Item = (usize, usize)> {
        let heads = (0..self.heads).filter(move |head| head * self.kv_heads / self.heads == kv_head);
        heads.map(move |head| (sequence, head))
    }

    /// Tiles of a query head, each with its visible keys.
    fn tiles(self, (sequence, head): (usize, usize), tile_rows: usize) -> impl Iterator<Item = Tile> {
        (0..self.query_len).step_by(tile_rows).map(move |first_query| {
            let rows = tile_rows.min(self.query_len - first_query);
            let start = self.visible_keys(first_query).start / PANEL_ALIGNMENT * PANEL_ALIGNMENT;
            let key_range = start..self.visible_keys(first_query + rows - 1).end;
            Tile { sequence, head, first_query, rows, key_range, extents: self }
        })
    }
}

/// Numbers from one row of a tile's scores to the next: complete panels, and some more, so that the numbers of a column do not fall into
/// the same set of the cache.
fn score_stride(keys: usize) -> usize {
    keys.next_multiple_of(PANEL_ALIGNMENT) + LANES
}

/// A range of queries of one head, and the keys that at least one of them sees.
struct Tile {
    sequence: usize,
    head: usize,
    first_query: usize,
    rows: usize,
    /// Starts at a multiple of `PANEL_ALIGNMENT`.
    key_range: Range<usize>,
    extents: Extents,
}

impl Tile {
    fn kv_head(&self) -> usize {
        self.head * self.extents.kv_heads / self.extents.heads
    }

    /// Offset of the tile's first query in `[batch, queries, heads, width]`, and the stride from one query to the next.
    fn query_position(&self, width: usize) -> (usize, usize) {
        let row = self.sequence * self.extents.query_len + self.first_query;
        ((row * self.extents.heads + self.head) * width, self.extents.heads * width)
    }

    /// Offset of the tile's first key in `[batch, keys, KV heads, width]`, and the stride from one key to the next.
    fn key_position(&self, width: usize) -> (usize, usize) {
        let row = self.sequence * self.extents.key_len + self.key_range.start;
        ((row * self.extents.kv_heads + self.kv_head()) * width, self.extents.kv_heads * width)
    }

    fn query_range(&self) -> Range<usize> {
        self.first_query..self.first_query + self.rows
    }

    fn query_matrix<'a, S>(&self, x: &'a [S], width: usize) -> Matrix<'a, S> {
        let (start, stride) = self.query_position(width);
        Matrix::new(&x[start..], self.rows, width, stride)
    }

    fn query_matrix_mut<'a, S>(&self, x: &'a mut [S], width: usize) -> MatrixMut<'a, S> {
        let (start, stride) = self.query_position(width);
        MatrixMut::new(&mut x[start..], self.rows, width, stride)
    }

    fn key_matrix<'a, S>(&self, x: &'a [S], width: usize) -> Matrix<'a, S> {
        let (start, stride) = self.key_position(width);
        Matrix::new(&x[start..], self.key_range.len(), width, stride)
    }

    fn key_matrix_mut<'a, S>(&self, x: &'a mut [S], width: usize) -> MatrixMut<'a, S> {
        let (start, stride) = self.key_position(width);
        MatrixMut::new(&mut x[start..], self.key_range.len(), width, stride)
    }

    fn score_stride(&self) -> usize {
        score_stride(self.key_range.len())
    }

    fn score_matrix<'a, S>(&self, x: &'a [S]) -> Matrix<'a, S> {
        Matrix::new(x, self.rows, self.key_range.len(), self.score_stride())
    }

    fn score_rows<'a, S>(&self, x: &'a mut [S]) -> impl Iterator<Item = &'a mut [S]> {
        x.chunks_exact_mut(self.score_stride()).take(self.rows)
    }

    /// Tiles of the same queries with at most `MAX_TILE_KEYS` keys each.
    fn split_by_keys(&self) -> impl Iterator<Item = Self> {
        self.key_range.clone().step_by(MAX_TILE_KEYS).map(|start| {
            let key_range = start..self.key_range.end.min(start + MAX_TILE_KEYS);
            Self { key_range, ..*self }
        })
    }

    /// The keys of the tile that a row sees, relative to the tile's first key.
    fn visible_keys(&self, row: usize) -> Range<usize> {
        let visible = self.extents.visible_keys(self.first_query + row);
        let within = |key: usize| key.clamp(self.key_range.start, self.key_range.end) - self.key_range.start;
        within(visible.start)..within(visible.end)
    }

    /// Index of a row's log-sum in `[batch, heads, queries]`.
    fn log_sum_index(&self, row: usize) -> usize {
        (self.sequence * self.extents.heads + self.head) * self.extents.query_len + self.first_query + row
    }

    /// Where a row's biases for the tile's keys lie in `[.., queries, keys]`.
    fn bias_range<S>(&self, bias: &Bias<'_, S>, row: usize) -> Range<usize> {
        let start = self.extents.bias_offset(bias, self.sequence, self.head)
            + (self.first_query + row) * self.extents.key_len
            + self.key_range.start;
        start..start + self.key_range.len()
    }

    /// `scores = factor * queries keys'`, where `queries` has a row per query of the tile and `keys` are its keys or values.
    fn multiply_by_keys<S: Scalar>(
        &self,
        factor: f64,
        queries: Matrix<'_, S>,
        keys: &HeadRows<'_, S>,
        scores: &mut [S],
    ) {
        let (key_count, stride) = (self.key_range.len(), self.score_stride());
        match keys {
            HeadRows::Packed(panels) => {
                let panels = panels.skip_columns(self.key_range.start);
                let columns = panels.packed_columns().min(key_count.next_multiple_of(PANEL_ALIGNMENT));
                let mut out = MatrixMut::new(scores, self.rows, columns, stride);
                product_with_panels(&mut out, WriteMode::Overwrite, factor, queries, panels, 0..queries.extents()[1]);
            }
            HeadRows::Unpacked(x, width) => {
                let mut out = MatrixMut::new(scores, self.rows, key_count, stride);
                product(&mut out, WriteMode::Overwrite, factor, queries, self.key_matrix(x, *width).t());
            }
        }
    }

    /// `out = factor * weights values`, or that added to `out`, where `values` are the tile's values or keys.
    fn multiply_by_values<S: Scalar>(
        &self,
        mode: WriteMode,
        factor: f64,
        weights: &[S],
        values: &HeadRows<'_, S>,
        out: &mut MatrixMut<'_, S>,
    ) {
        let weights = self.score_matrix(weights);
        match values {
            HeadRows::Packed(panels) => {
                product_with_panels(out, mode, factor, weights, *panels, self.key_range.clone());
            }
            HeadRows::Unpacked(x, width) => product(out, mode, factor, weights, self.key_matrix(x, *width)),
        }
    }

    /// The tile's scores, scaled and with the bias added.
    fn compute_scores<S: Scalar>(
        &self,
        query: &[S],
        keys: &HeadRows<'_, S>,
        bias: Option<&Bias<'_, S>>,
        scores: &mut [S],
    ) {
        self.multiply_by_keys(self.extents.scale, self.query_matrix(query, self.extents.width), keys, scores);
        let Some(bias) = bias else { return };
        for (row, scores) in self.score_rows(scores).enumerate() {
            accumulate(&bias.values[self.bias_range(bias, row)], scores);
        }
    }
}

/// The keys or values of a head.
enum HeadRows<'a, S> {
    /// Packed into panels, for many queries.
    Packed(Panels<'a, S>),
    /// The tensor `[batch, keys, KV heads, width]` and its width, for few queries.
    Unpacked(&'a [S], usize),
}

/// The tensors that forward and backward pass read.
pub(crate) struct Inputs<'a, S> {
    pub(crate) query: &'a [S],
    pub(crate) key: &'a [S],
    pub(crate) value: &'a [S],
    pub(crate) bias: Option<Bias<'a, S>>,
}

/// Writes the outputs `[batch, queries, heads, value width]` and the log-sums `[batch, heads, queries]`.
pub(crate) fn forward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    scratch: &mut [S],
    log_sums: &mut [S],
    out: &mut [S],
) {
    let Extents { width, value_width, key_len, .. } = extents;
    let (scores, remaining) = scratch.split_at_mut(extents.forward_tile_rows() * score_stride(key_len));
    let (key_buffer, value_buffer) = remaining.split_at_mut(Panels::<S>::size(width, key_len));
    for kv_head in extents.sequences_and_kv_heads() {
        let (keys, values) = if extents.query_len < MIN_PACKED_QUERIES {
            (HeadRows::Unpacked(inputs.key, width), HeadRows::Unpacked(inputs.value, value_width))
        } else {
            let keys = Panels::pack(extents.kv_head_matrix(inputs.key, kv_head, width).t(), key_buffer);
            let values = Panels::pack(extents.kv_head_matrix(inputs.value, kv_head, value_width), value_buffer);
            (HeadRows::Packed(keys), HeadRows::Packed(values))
        };
        let heads = extents.query_heads(kv_head);
        for tile in heads.flat_map(|head| extents.tiles(head, extents.forward_tile_rows())) {
            tile.compute_scores(inputs.query, &keys, inputs.bias.as_ref(), scores);
            let mut sums = [S::ONE; MAX_TILE_QUERIES];
            for ((row, scores), sum) in tile.score_rows(scores).enumerate().zip(&mut sums) {
                let visible = tile.visible_keys(row);
                let maximum;
                (maximum, *sum) = exponentials(scores, visible.start, visible.end);
                log_sums[tile.log_sum_index(row)] = maximum + sum.ln();
            }
            let mut out_rows = tile.query_matrix_mut(out, value_width);
            tile.multiply_by_values(WriteMode::Overwrite, 1.0, scores, &values, &mut out_rows);
            // The outputs have fewer numbers than the weights, so they are what is divided.
            let (start, stride) = tile.query_position(value_width);
            for (row, &sum) in sums[..tile.rows].iter().enumerate() {
                scale_row(&mut out[start + row * stride..][..value_width], S::ONE / sum);
            }
        }
    }
}

/// The gradients that the backward pass computes. It adds to those of keys, values and bias, and overwrites that of the queries.
pub(crate) struct Gradients<'a, S> {
    pub(crate) query: &'a mut [S],
    pub(crate) key: &'a mut [S],
    pub(crate) value: &'a mut [S],
    pub(crate) bias: Option<&'a mut [S]>,
}

/// Gradients of attention, from its output, the log-sums and the gradient of its output.
pub(crate) fn backward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    (out, log_sums, grad_out): (&[S], &[S], &[S]),
    scratch: &mut [S],
    gradients: &mut Gradients<'_, S>,
) {
    let Extents { width, value_width, query_len, key_len, .. } = extents;
    let rows = extents.tile_rows(MAX_TILE_QUERIES);
    let (weights, remaining) = scratch.split_at_mut(rows * score_stride(MAX_TILE_KEYS));
    let (grad_scores, remaining) = remaining.split_at_mut(rows * score_stride(MAX_TILE_KEYS));
    let (output_dots, remaining) = remaining.split_at_mut(rows);
    let (transposed_key_buffer, remaining) = remaining.split_at_mut(Panels::<S>::size(width, key_len));
    let (key_buffer, remaining) = remaining.split_at_mut(Panels::<S>::size(key_len, width));
    let (value_buffer, remaining) = remaining.split_at_mut(Panels::<S>::size(value_width, key_len));
    let (query_buffer, grad_out_buffer) = remaining.split_at_mut(Panels::<S>::size(query_len, width));
    for kv_head in extents.sequences_and_kv_heads() {
        let key = extents.kv_head_matrix(inputs.key, kv_head, width);
        let value = extents.kv_head_matrix(inputs.value, kv_head, value_width);
        let transposed_keys = HeadRows::Packed(Panels::pack(key.t(), transposed_key_buffer));
        let keys = HeadRows::Packed(Panels::pack(key, key_buffer));
        let values = HeadRows::Packed(Panels::pack(value.t(), value_buffer));
        for head in extents.query_heads(kv_head) {
            let queries = Panels::pack(extents.head_matrix(inputs.query, head, width), query_buffer);
            let grad_outputs = Panels::pack(extents.head_matrix(grad_out, head, value_width), grad_out_buffer);
            for query_tile in extents.tiles(head, rows) {
                let grad_out_rows = query_tile.query_matrix(grad_out, value_width);
                let (start, stride) = query_tile.query_position(value_width);
                for (row, output_dot) in output_dots.iter_mut().enumerate().take(query_tile.rows) {
                    let range = start + row * stride..start + row * stride + value_width;
                    *output_dot = dot(&out[range.clone()], &grad_out[range]);
                }
                for tile in query_tile.split_by_keys() {
                    tile.compute_scores(inputs.query, &transposed_keys, inputs.bias.as_ref(), weights);
                    tile.multiply_by_keys(1.0, grad_out_rows, &values, grad_scores);
                    let pairs = tile.score_rows(weights).zip(tile.score_rows(grad_scores));
                    for (row, (weights, grad_scores)) in pairs.enumerate() {
                        let visible = tile.visible_keys(row);
                        let log_sum = log_sums[tile.log_sum_index(row)];
                        softmax_row_gradients(
                            weights,
                            grad_scores,
                            visible.start,
                            visible.end,
                            log_sum,
                            output_dots[row],
                        );
                        if let (Some(bias), Some(grad_bias)) = (&inputs.bias, &mut gradients.bias) {
                            accumulate(grad_scores, &mut grad_bias[tile.bias_range(bias, row)]);
                        }
                    }
                    let is_first = tile.key_range.start == query_tile.key_range.start;
                    let mode = if is_first { WriteMode::Overwrite } else { WriteMode::Add };
                    let grad_query = &mut tile.query_matrix_mut(gradients.query, width);
                    tile.multiply_by_values(mode, extents.scale, grad_scores, &keys, grad_query);
                    let range = tile.query_range();
                    let (weights, grad_scores) = (tile.score_matrix(weights).t(), tile.score_matrix(grad_scores).t());
                    let grad_value = &mut tile.key_matrix_mut(gradients.value, value_width);
                    product_with_panels(grad_value, WriteMode::Add, 1.0, weights, grad_outputs, range.clone());
                    let grad_key = &mut tile.key_matrix_mut(gradients.key, width);
                    product_with_panels(grad_key, WriteMode::Add, extents.scale, grad_scores, queries, range);
                }
            }
        }
    }
}
