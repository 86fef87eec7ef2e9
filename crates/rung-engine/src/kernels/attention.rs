//! Softmax attention without storing the matrix of attention weights.
//!
//! A tile is as many queries of one head as a panel of a matrix product has columns. Its scores are computed transposed: a row for each
//! key, a column for each query. So keys and values are read as they are, one number at a time is multiplied with a vector of queries, and
//! the softmax of all queries of a tile takes vector instructions without any sums across a vector. Keys come in blocks, so that scores
//! stay in the L1 cache. Exponentials are taken relative to a reference, which follows the largest score so far from block to block; when it changes, the sums
//! and outputs so far are scaled to it. Only the
//! logarithm of each query's sum of exponentials is stored. The backward pass computes the scores and weights again and then needs four
//! more products.
//!
//! Keys that no query of the tile sees are skipped, so causal attention costs half of full attention, and a window costs its size. The
//! result for a query does not depend on which other queries are in its tile: blocks of keys begin at multiples of [`KEY_BLOCK`], and a
//! hidden key adds zero.
//!
//! A few queries, as in decoding, are computed row by row: their products need no packing.

use crate::kernels::pointwise::accumulate;
use crate::kernels::product::{Matrix, MatrixMut, Panels, WriteMode, dot, product, product_with_panels};
use crate::kernels::softmax::{
    LaneRanges, LaneSums, MAX_LANES, accumulate_exponentials, exponentials, scale_row, scale_rows, softmax_gradients,
};
use crate::kernels::transpose::transpose;
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

/// Keys of a block: few enough that its scores stay in the L1 cache.
pub(crate) const KEY_BLOCK: usize = 128;
/// From this many queries on, attention is computed in tiles of many queries.
pub(crate) const MIN_TILED_QUERIES: usize = 24;

impl Extents {
    /// Length of the scratch buffer of the forward pass.
    pub(crate) fn forward_scratch_len<S: Scalar>(&self) -> usize {
        if self.query_len < MIN_TILED_QUERIES {
            return self.query_len * self.key_len;
        }
        let lanes = Panels::<S>::max_width();
        self.copies_len() + lanes * (self.width + self.value_width + KEY_BLOCK)
    }

    /// Length of the scratch buffer of the backward pass.
    pub(crate) fn backward_scratch_len<S: Scalar>(&self) -> usize {
        let lanes = Panels::<S>::max_width();
        self.copies_len()
            + lanes * (2 * self.width + self.value_width + 2 * KEY_BLOCK)
            + Panels::<S>::size(lanes, self.width)
            + Panels::<S>::size(lanes, self.value_width)
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

    /// Length of the copies of a KV head's keys and values.
    pub(super) fn copies_len(&self) -> usize {
        self.key_len * (self.width + self.value_width)
    }

    /// Copies the keys and the values of a sequence and KV head.
    pub(super) fn copy_keys_and_values<'a, S: Scalar>(
        &self,
        inputs: &Inputs<'_, S>,
        kv_head: (usize, usize),
        buffer: &'a mut [S],
    ) -> [HeadRows<'a, S>; 2] {
        let (key_buffer, value_buffer) = buffer.split_at_mut(self.key_len * self.width);
        [
            self.copy_kv_head(inputs.key, kv_head, self.width, key_buffer),
            self.copy_kv_head(inputs.value, kv_head, self.value_width, value_buffer),
        ]
    }

    /// Copies the keys, or the values, of a sequence and KV head from `[batch, keys, KV heads, width]` to a buffer `[keys, width]`.
    fn copy_kv_head<'a, S: Scalar>(
        &self,
        x: &[S],
        (sequence, kv_head): (usize, usize),
        width: usize,
        buffer: &'a mut [S],
    ) -> HeadRows<'a, S> {
        let rows = x.chunks_exact(width.max(1)).skip(sequence * self.key_len * self.kv_heads + kv_head);
        for (copy, row) in buffer.chunks_exact_mut(width.max(1)).zip(rows.step_by(self.kv_heads)) {
            copy.copy_from_slice(row);
        }
        HeadRows { data: buffer, width }
    }

    /// Every pair of a sequence and a KV head.
    pub(super) fn sequences_and_kv_heads(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.batch).flat_map(move |sequence| (0..self.kv_heads).map(move |head| (sequence, head)))
    }

    /// The query heads that share a KV head, each with its sequence.
    pub(super) fn query_heads(self, (sequence, kv_head): (usize, usize)) -> impl Iterator<Item = (usize, usize)> {
        let heads = (0..self.heads).filter(move |head| head * self.kv_heads / self.heads == kv_head);
        heads.map(move |head| (sequence, head))
    }

    /// Tiles of a query head, each with its visible keys.
    pub(super) fn tiles(self, (sequence, head): (usize, usize), tile_rows: usize) -> impl Iterator<Item = Tile> {
        self.tiles_of((sequence, head), 0..self.query_len, tile_rows)
    }

    /// Tiles of a range of the queries of a head.
    fn tiles_of(
        self,
        (sequence, head): (usize, usize),
        queries: Range<usize>,
        tile_rows: usize,
    ) -> impl Iterator<Item = Tile> {
        queries.clone().step_by(tile_rows).map(move |first_query| {
            let rows = tile_rows.min(queries.end - first_query);
            let key_range = self.visible_keys(first_query).start..self.visible_keys(first_query + rows - 1).end;
            Tile { sequence, head, first_query, rows, key_range, extents: self }
        })
    }
}

/// The keys or values of one head.
#[derive(Clone, Copy)]
pub(super) struct HeadRows<'a, S> {
    pub(super) data: &'a [S],
    pub(super) width: usize,
}

impl<'a, S> HeadRows<'a, S> {
    /// A range of keys.
    fn rows(&self, keys: &Range<usize>) -> Matrix<'a, S> {
        Matrix::new(&self.data[keys.start * self.width..], keys.len(), self.width, self.width)
    }
}

/// A range of queries of one head, and the keys that at least one of them sees.
pub(super) struct Tile {
    pub(super) sequence: usize,
    pub(super) head: usize,
    pub(super) first_query: usize,
    pub(super) rows: usize,
    pub(super) key_range: Range<usize>,
    pub(super) extents: Extents,
}

impl Tile {
    /// Smaller tiles of its queries.
    pub(super) fn tiles(&self, tile_rows: usize) -> impl Iterator<Item = Self> + use<> {
        let queries = self.first_query..self.first_query + self.rows;
        self.extents.tiles_of((self.sequence, self.head), queries, tile_rows)
    }

    fn kv_head(&self) -> usize {
        self.head * self.extents.kv_heads / self.extents.heads
    }

    /// Offset of the tile's first query in `[batch, queries, heads, width]`, and the stride from one query to the next.
    pub(super) fn query_position(&self, width: usize) -> (usize, usize) {
        let row = self.sequence * self.extents.query_len + self.first_query;
        ((row * self.extents.heads + self.head) * width, self.extents.heads * width)
    }

    /// Offset of a key in `[batch, keys, KV heads, width]`, and the stride from one key to the next.
    pub(super) fn key_position(&self, key: usize, width: usize) -> (usize, usize) {
        let row = self.sequence * self.extents.key_len + key;
        ((row * self.extents.kv_heads + self.kv_head()) * width, self.extents.kv_heads * width)
    }

    fn query_matrix<'a, S>(&self, x: &'a [S], width: usize) -> Matrix<'a, S> {
        let (start, stride) = self.query_position(width);
        Matrix::new(&x[start..], self.rows, width, stride)
    }

    fn query_matrix_mut<'a, S>(&self, x: &'a mut [S], width: usize) -> MatrixMut<'a, S> {
        let (start, stride) = self.query_position(width);
        MatrixMut::new(&mut x[start..], self.rows, width, stride)
    }

    fn key_matrix<'a, S>(&self, x: &'a [S], keys: &Range<usize>, width: usize) -> Matrix<'a, S> {
        let (start, stride) = self.key_position(keys.start, width);
        Matrix::new(&x[start..], keys.len(), width, stride)
    }

    fn key_matrix_mut<'a, S>(&self, x: &'a mut [S], keys: &Range<usize>, width: usize) -> MatrixMut<'a, S> {
        let (start, stride) = self.key_position(keys.start, width);
        MatrixMut::new(&mut x[start..], keys.len(), width, stride)
    }

    /// The tile's keys in blocks, which begin at multiples of [`KEY_BLOCK`] or with the first key.
    fn key_blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Range { start, end } = self.key_range;
        (start / KEY_BLOCK..end.div_ceil(KEY_BLOCK))
            .map(move |block| (block * KEY_BLOCK).max(start)..((block + 1) * KEY_BLOCK).min(end))
    }

    /// The keys that each query of the tile sees.
    pub(super) fn visible_keys(&self) -> LaneRanges<'static> {
        LaneRanges::new((0..self.rows).map(|row| self.extents.visible_keys(self.first_query + row)))
    }

    /// Index of the first query's log-sum in `[batch, heads, queries]`.
    pub(super) fn log_sum_index(&self) -> usize {
        (self.sequence * self.extents.heads + self.head) * self.extents.query_len + self.first_query
    }

    /// Where a row's biases for a range of keys lie in `[.., queries, keys]`.
    fn bias_range<S>(&self, bias: &Bias<'_, S>, row: usize, keys: &Range<usize>) -> Range<usize> {
        let start = self.extents.bias_offset(bias, self.sequence, self.head)
            + (self.first_query + row) * self.extents.key_len
            + keys.start;
        start..start + keys.len()
    }

    /// `products[key, query] = factor * keys queries`, where `queries` is a panel of the transposed queries of the tile.
    fn multiply_by_keys<S: Scalar>(keys: Matrix<'_, S>, factor: f64, queries: Panels<'_, S>, products: &mut [S]) {
        let ([key_count, width], lanes) = (keys.extents(), queries.packed_columns());
        let mut out = MatrixMut::new(products, key_count, lanes, lanes);
        product_with_panels(&mut out, WriteMode::Overwrite, factor, keys, queries, 0..width);
    }

    /// `out[channel, query] = factor * values' weights`, or that added to `out`, with the weights `[key, query]` of a block.
    fn multiply_by_values<S: Scalar>(
        values: Matrix<'_, S>,
        mode: WriteMode,
        factor: f64,
        weights: &[S],
        lanes: usize,
        out: &mut [S],
    ) {
        let [key_count, width] = values.extents();
        let mut out = MatrixMut::new(out, width, lanes, lanes);
        let panels = Panels::from_packed([key_count, lanes], weights);
        product_with_panels(&mut out, mode, factor, values.t(), panels, 0..key_count);
    }

    /// The scores `[key, query]` of a block of keys, scaled and with the bias added.
    fn compute_scores<S: Scalar>(
        &self,
        keys: &HeadRows<'_, S>,
        key_range: &Range<usize>,
        queries: Panels<'_, S>,
        bias: Option<&Bias<'_, S>>,
        scores: &mut [S],
    ) {
        Self::multiply_by_keys(keys.rows(key_range), self.extents.scale, queries, scores);
        let (Some(bias), lanes) = (bias, queries.packed_columns()) else { return };
        for row in 0..self.rows {
            let biases = &bias.values[self.bias_range(bias, row, key_range)];
            for (score, &bias) in scores[row..].iter_mut().step_by(lanes).zip(biases) {
                *score += bias;
            }
        }
    }

    /// Writes a matrix `[channel, query]` to the rows of the tile in `[batch, queries, heads, width]`.
    fn store_transposed<S: Scalar>(&self, x: &[S], lanes: usize, width: usize, out: &mut [S]) {
        let (start, stride) = self.query_position(width);
        transpose(x, width, self.rows, lanes, &mut out[start..], stride);
    }

    /// Writes the outputs and log-sums of the tile.
    pub(super) fn attend<S: Scalar>(
        &self,
        inputs: &Inputs<'_, S>,
        [keys, values]: &[HeadRows<'_, S>; 2],
        visible: &LaneRanges<'_>,
        buffers: &mut [S],
        (log_sums, out): (&mut [S], &mut [S]),
    ) {
        let (tile_rows, Extents { width, value_width, .. }) = (Panels::<S>::max_width(), self.extents);
        let (query_buffer, remaining) = buffers.split_at_mut(width * tile_rows);
        let (transposed_out, scores) = remaining.split_at_mut(value_width * tile_rows);
        let queries = Panels::pack(self.query_matrix(inputs.query, width).t(), query_buffer);
        let lanes = queries.packed_columns();
        let transposed_out = &mut transposed_out[..value_width * lanes];
        let mut sums = LaneSums::new();
        for (index, key_range) in self.key_blocks().enumerate() {
            let scores = &mut scores[..key_range.len() * lanes];
            self.compute_scores(keys, &key_range, queries, inputs.bias.as_ref(), scores);
            accumulate_exponentials(scores, lanes, &visible.relative_to(&key_range), &mut sums);
            let mode = if index == 0 { WriteMode::Overwrite } else { WriteMode::Add };
            if index > 0 && sums.has_corrections() {
                scale_rows(transposed_out, &sums.corrections[..lanes]);
            }
            Self::multiply_by_values(values.rows(&key_range), mode, 1.0, scores, lanes, transposed_out);
        }
        // The outputs have fewer numbers than the weights, so they are what is divided.
        scale_rows(transposed_out, &sums.sums.map(|sum| S::ONE / sum)[..lanes]);
        self.store_transposed(transposed_out, lanes, value_width, out);
        let log_sums = &mut log_sums[self.log_sum_index()..][..self.rows];
        for (log_sum, (reference, sum)) in log_sums.iter_mut().zip(sums.references.into_iter().zip(sums.sums)) {
            *log_sum = reference + sum.ln();
        }
    }

    /// Adds to the gradients of keys, values and bias, and overwrites those of the tile's queries, from the output, the log-sums and the
    /// gradient of the output.
    pub(super) fn attend_backward<S: Scalar>(
        &self,
        inputs: &Inputs<'_, S>,
        [keys, values]: &[HeadRows<'_, S>; 2],
        visible: &LaneRanges<'_>,
        (out, log_sums, grad_out): (&[S], &[S], &[S]),
        buffers: &mut [S],
        gradients: &mut Gradients<'_, S>,
    ) {
        let (tile_rows, Extents { width, value_width, .. }) = (Panels::<S>::max_width(), self.extents);
        let (transposed_query_buffer, remaining) = buffers.split_at_mut(width * tile_rows);
        let (transposed_grad_out_buffer, remaining) = remaining.split_at_mut(value_width * tile_rows);
        let (transposed_grad_query, remaining) = remaining.split_at_mut(width * tile_rows);
        let (weights, remaining) = remaining.split_at_mut(KEY_BLOCK * tile_rows);
        let (grad_scores, remaining) = remaining.split_at_mut(KEY_BLOCK * tile_rows);
        let (query_buffer, grad_out_buffer) = remaining.split_at_mut(Panels::<S>::size(tile_rows, width));
        let (query_rows, grad_out_rows) =
            (self.query_matrix(inputs.query, width), self.query_matrix(grad_out, value_width));
        let transposed_queries = Panels::pack(query_rows.t(), transposed_query_buffer);
        let transposed_grad_outs = Panels::pack(grad_out_rows.t(), transposed_grad_out_buffer);
        let queries = Panels::pack(query_rows, query_buffer);
        let grad_outs = Panels::pack(grad_out_rows, grad_out_buffer);
        let lanes = transposed_queries.packed_columns();
        let (mut output_dots, mut tile_log_sums) = ([S::ZERO; MAX_LANES], [S::ZERO; MAX_LANES]);
        let (start, stride) = self.query_position(value_width);
        for (row, output_dot) in output_dots[..self.rows].iter_mut().enumerate() {
            let range = start + row * stride..start + row * stride + value_width;
            *output_dot = dot(&out[range.clone()], &grad_out[range]);
        }
        tile_log_sums[..self.rows].copy_from_slice(&log_sums[self.log_sum_index()..][..self.rows]);
        for (index, key_range) in self.key_blocks().enumerate() {
            let (weights, grad_scores) =
                (&mut weights[..key_range.len() * lanes], &mut grad_scores[..key_range.len() * lanes]);
            self.compute_scores(keys, &key_range, transposed_queries, inputs.bias.as_ref(), weights);
            Self::multiply_by_keys(values.rows(&key_range), 1.0, transposed_grad_outs, grad_scores);
            let visible = visible.relative_to(&key_range);
            softmax_gradients(weights, grad_scores, lanes, &visible, &tile_log_sums, &output_dots);
            if let (Some(bias), Some(grad_bias)) = (&inputs.bias, &mut gradients.bias) {
                for row in 0..self.rows {
                    let grad_bias = &mut grad_bias[self.bias_range(bias, row, &key_range)];
                    for (grad_bias, &gradient) in grad_bias.iter_mut().zip(grad_scores[row..].iter().step_by(lanes)) {
                        *grad_bias += gradient;
                    }
                }
            }
            let mode = if index == 0 { WriteMode::Overwrite } else { WriteMode::Add };
            let (scale, key_rows) = (self.extents.scale, keys.rows(&key_range));
            Self::multiply_by_values(key_rows, mode, scale, grad_scores, lanes, transposed_grad_query);
            let per_key = |x| Matrix::new(x, key_range.len(), self.rows, lanes);
            let grad_value = &mut self.key_matrix_mut(gradients.value, &key_range, value_width);
            product_with_panels(grad_value, WriteMode::Add, 1.0, per_key(weights), grad_outs, 0..self.rows);
            let grad_key = &mut self.key_matrix_mut(gradients.key, &key_range, width);
            product_with_panels(grad_key, WriteMode::Add, scale, per_key(grad_scores), queries, 0..self.rows);
        }
        self.store_transposed(transposed_grad_query, lanes, width, gradients.query);
    }
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
    if extents.query_len < MIN_TILED_QUERIES {
        return forward_few_queries(extents, inputs, scratch, log_sums, out);
    }
    let (copies, buffers) = scratch.split_at_mut(extents.copies_len());
    for kv_head in extents.sequences_and_kv_heads() {
        let keys_and_values = extents.copy_keys_and_values(inputs, kv_head, copies);
        let heads = extents.query_heads(kv_head);
        for tile in heads.flat_map(|head| extents.tiles(head, Panels::<S>::max_width())) {
            tile.attend(inputs, &keys_and_values, &tile.visible_keys(), buffers, (log_sums, out));
        }
    }
}

/// The same for a few queries: scores are rows, and keys and values are read from where they are.
fn forward_few_queries<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    scores: &mut [S],
    log_sums: &mut [S],
    out: &mut [S],
) {
    let Extents { width, value_width, .. } = extents;
    let heads = extents.sequences_and_kv_heads().flat_map(|kv_head| extents.query_heads(kv_head));
    for tile in heads.flat_map(|head| extents.tiles(head, extents.query_len.max(1))) {
        let (keys, key_count) = (tile.key_range.clone(), tile.key_range.len());
        let key_matrix = tile.key_matrix(inputs.key, &keys, width).t();
        let mut score_matrix = MatrixMut::new(scores, tile.rows, key_count, key_count);
        let queries = tile.query_matrix(inputs.query, width);
        product(&mut score_matrix, WriteMode::Overwrite, extents.scale, queries, key_matrix);
        let mut sums = [S::ONE; MIN_TILED_QUERIES];
        for (row, (scores, sum)) in scores.chunks_exact_mut(key_count.max(1)).zip(&mut sums).take(tile.rows).enumerate()
        {
            if let Some(bias) = &inputs.bias {
                accumulate(&bias.values[tile.bias_range(bias, row, &keys)], scores);
            }
            let visible = extents.visible_keys(tile.first_query + row);
            let maximum;
            (maximum, *sum) = exponentials(scores, visible.start - keys.start, visible.end - keys.start);
            log_sums[tile.log_sum_index() + row] = maximum + sum.ln();
        }
        let weights = Matrix::new(scores, tile.rows, key_count, key_count);
        let value_matrix = tile.key_matrix(inputs.value, &keys, value_width);
        product(&mut tile.query_matrix_mut(out, value_width), WriteMode::Overwrite, 1.0, weights, value_matrix);
        let (start, stride) = tile.query_position(value_width);
        for (row, &sum) in sums[..tile.rows].iter().enumerate() {
            scale_row(&mut out[start + row * stride..][..value_width], S::ONE / sum);
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
    let (copies, buffers) = scratch.split_at_mut(extents.copies_len());
    for kv_head in extents.sequences_and_kv_heads() {
        let keys_and_values = extents.copy_keys_and_values(inputs, kv_head, copies);
        let heads = extents.query_heads(kv_head);
        for tile in heads.flat_map(|head| extents.tiles(head, Panels::<S>::max_width())) {
            let results = (out, log_sums, grad_out);
            tile.attend_backward(inputs, &keys_and_values, &tile.visible_keys(), results, buffers, gradients);
        }
    }
}
