//! Softmax attention in which each query reads chosen tokens.
//!
//! Blocks of one key have too few readers each for the products of [`blocks`](super::blocks). Queries are taken in batches, each of some
//! tiles of [`attention`](super::attention), and there are two ways to compute a batch. Where its queries read at least one in
//! [`DENSE_RATIO`] of the tokens before them, as at the start of a sequence, its tiles are computed like full attention, and the scores of
//! other tokens are hidden: in a matrix product a few more tokens cost less than a dot product for each. Elsewhere every pair of a query
//! and a chosen token is a dot product, and later a row that is added to an output. The forward pass takes pairs key by key, in blocks of
//! keys that stay in the L2 cache and tiles of queries: for every key, a bit for each query of the tile says which queries read it. The
//! backward pass takes them query by query. Only the log of each sum of exponentials is stored; the backward pass computes the weights
//! again.

use super::attention::{self, Gradients, HeadRows, MIN_TILED_QUERIES, Tile};
use super::blocks::{Extents, Inputs};
use super::product::{Panels, dot};
use super::softmax::{LaneRanges, MAX_LANES, softmax_row, softmax_row_gradients};
use super::transpose::transpose;
use crate::choice::BlockChoice;
use crate::ops::AttentionMask;
use crate::scalar::Scalar;

/// Partial sums of a dot product.
const LANES: usize = 16;
/// Channels of a weighted sum that are summed in registers.
const STRIP: usize = 128;
/// Tiles of a batch.
const BATCH_TILES: usize = 8;
/// Keys that a tile goes through before the next tile: few enough that they stay in the L2 cache.
const KEY_BLOCK: usize = 64;
/// Keys whose dot products are added up together.
const DOT_KEYS: usize = 16;
/// Dot products that are added up together, with space for one that is overwritten.
const MAX_DOTS: usize = DOT_KEYS * MAX_LANES + 1;
/// A batch is computed like full attention if its queries read at least one in this many of the tokens before them.
const DENSE_RATIO: usize = 6;

/// Rows of equal width at equal distances.
#[derive(Clone, Copy)]
struct Rows<'a, S> {
    data: &'a [S],
    width: usize,
    stride: usize,
}

impl<'a, S> Rows<'a, S> {
    #[inline(always)]
    fn row(self, index: u32) -> &'a [S] {
        let start = index as usize * self.stride;
        &self.data[start..start + self.width]
    }

    fn skip_rows(self, count: usize) -> Self {
        Self { data: &self.data[count * self.stride..], ..self }
    }

    /// The rows without their first columns.
    #[inline(always)]
    fn skip_columns(self, count: usize) -> Self {
        Self { data: &self.data[count..], width: self.width - count, ..self }
    }
}

/// The lists of a batch's queries.
struct Lists<'a> {
    choice: &'a BlockChoice,
    /// The row of the first query's list in the choice.
    first: usize,
    rows: usize,
}

/// How a batch is computed.
#[derive(Clone, Copy, PartialEq)]
enum Density {
    /// Every query reads all tokens before it.
    All,
    /// At least one in [`DENSE_RATIO`] tokens is read: the others are hidden.
    Many,
    /// Each query takes its own tokens.
    Few,
}

impl Density {
    /// What the queries of a tile see if it is computed like full attention.
    fn visible_keys<'a>(self, tile: &Tile, lanes_of_keys: &'a [u32]) -> LaneRanges<'a> {
        let visible = tile.visible_keys();
        if self == Self::All { visible } else { visible.with_lanes_of_keys(lanes_of_keys) }
    }
}

impl<'a, S> From<HeadRows<'a, S>> for Rows<'a, S> {
    fn from(rows: HeadRows<'a, S>) -> Self {
        Self { data: rows.data, width: rows.width, stride: rows.width }
    }
}

impl<'a> Lists<'a> {
    fn new(choice: &'a BlockChoice, tile: &Tile, extents: &Extents) -> Self {
        let group = tile.sequence * extents.groups + tile.head * extents.groups / extents.heads;
        Self { choice, first: group * extents.query_len + tile.first_query, rows: tile.rows }
    }

    fn of(&self, row: usize) -> &'a [u32] {
        self.choice.blocks_of(self.first + row)
    }

    fn density(&self, tile: &Tile, extents: &Extents) -> Density {
        let first_visible = tile.first_query + extents.key_len - extents.query_len + 1;
        let visible: usize = (first_visible..first_visible + self.rows).sum();
        let chosen: usize = (0..self.rows).map(|row| self.of(row).len()).sum();
        match chosen {
            _ if chosen == visible => Density::All,
            _ if chosen * DENSE_RATIO >= visible => Density::Many,
            _ => Density::Few,
        }
    }

    /// For every tile and every key, the queries of the tile that read it, one bit each.
    fn write_lanes_of_keys(&self, lanes: usize, key_len: usize, lanes_of_keys: &mut [u32]) {
        for (tile, lanes_of_keys) in lanes_of_keys.chunks_mut(key_len).take(self.rows.div_ceil(lanes)).enumerate() {
            lanes_of_keys.fill(0);
            for lane in 0..lanes.min(self.rows - tile * lanes) {
                for &token in self.of(tile * lanes + lane) {
                    lanes_of_keys[token as usize] |= 1 << lane;
                }
            }
        }
    }

    /// The length of the longest list.
    fn longest(&self) -> usize {
        (0..self.rows).map(|row| self.of(row).len()).max().unwrap_or_default()
    }
}

impl Extents {
    /// The extents of full attention.
    fn full(&self) -> attention::Extents {
        let Self { batch, query_len, key_len, heads, kv_heads, width, value_width, scale, .. } = *self;
        let mask = AttentionMask::Causal;
        attention::Extents { batch, query_len, key_len, heads, kv_heads, width, value_width, mask, scale }
    }

    /// Length of the scratch buffer of the forward pass over chosen tokens.
    pub(crate) fn tokens_forward_scratch_len<S: Scalar>(&self, choice: &BlockChoice) -> usize {
        let (full, rows) = (self.full(), self.query_len.min(BATCH_TILES * Panels::<S>::max_width()));
        let pairs_len =
            rows * (self.width + self.value_width + weights_stride(choice.longest_list())) + 2 * MAX_DOTS * LANES;
        if self.query_len < MIN_TILED_QUERIES {
            return pairs_len;
        }
        full.forward_scratch_len::<S>().max(full.copies_len() + pairs_len)
    }

    /// Length of the scratch buffer of the backward pass over chosen tokens.
    pub(crate) fn tokens_backward_scratch_len<S: Scalar>(&self, choice: &BlockChoice) -> usize {
        let full = self.full();
        let row_len = 2 * choice.longest_list() + 2 * MAX_DOTS * LANES;
        full.backward_scratch_len::<S>().max(full.copies_len() + row_len)
    }
}

/// The distance of the weights of two queries: lists of 1024 tokens are common, and rows a power of two apart evict each other from the
/// cache.
fn weights_stride(longest: usize) -> usize {
    longest.next_multiple_of(LANES) + LANES
}

/// The partial sums of dot products, and space to transpose them.
struct PartialSums<'a, S> {
    sums: &'a mut [S],
    transposed: &'a mut [S],
}

impl<'a, S: Scalar> PartialSums<'a, S> {
    /// Takes the space from the start of a buffer; returns the rest too.
    fn split(buffer: &'a mut [S]) -> (Self, &'a mut [S]) {
        let (sums, remaining) = buffer.split_at_mut(MAX_DOTS * LANES);
        let (transposed, remaining) = remaining.split_at_mut(MAX_DOTS * LANES);
        (Self { sums, transposed }, remaining)
    }

    /// Adds up the partial sums of some dot products, as vectors with a lane for each; returns the products times a factor.
    fn total(&mut self, factor: S, count: usize) -> &[S] {
        transpose(self.sums, count, LANES, LANES, self.transposed, count);
        add_rows(factor, self.transposed, &mut self.sums[..count]);
        &self.sums[..count]
    }
}

vectorised! {
    /// `sums[i, lane]`: the partial sums of `vector . rows[tokens[i]]`.
    fn dot_tokens<S>(vector: &[S], rows: Rows<'_, S>, tokens: &[u32], sums: &mut [S]) {
        for (tokens, sums) in tokens.chunks(2).zip(sums.chunks_mut(2 * LANES)) {
            let pair = dot_in_lanes(vector, [rows.row(tokens[0]), rows.row(tokens[tokens.len() - 1])]);
            sums.copy_from_slice(&pair.as_flattened()[..sums.len()]);
        }
    }

    /// The partial sums of the dot products of the first keys with those queries of a tile that read them, and the lanes of these queries;
    /// returns their number.
    fn dot_pairs<S>(
        queries: &[S],
        keys: Rows<'_, S>,
        lanes_of_keys: &[u32],
        sums: &mut [S],
        lanes: &mut [u8; MAX_DOTS],
    ) -> usize {
        let query = |lane: usize| &queries[lane * keys.width..(lane + 1) * keys.width];
        let mut count = 0;
        for (index, &readers) in (0..).zip(lanes_of_keys) {
            let mut readers = readers;
            while readers != 0 {
                let first = readers.trailing_zeros() as usize;
                readers &= readers - 1;
                // Where the number of readers is odd, the last is taken twice, and the next key overwrites the second.
                let second = if readers == 0 { first } else { readers.trailing_zeros() as usize };
                let pair = dot_in_lanes(keys.row(index), [query(first), query(second)]);
                sums[count * LANES..(count + 2) * LANES].copy_from_slice(pair.as_flattened());
                (lanes[count], lanes[count + 1]) = (first as u8, second as u8);
                count += if readers == 0 { 1 } else { 2 };
                readers &= readers.wrapping_sub(1);
            }
        }
        count
    }

    /// Adds the first values, by weights, to the outputs of those queries of a tile that read them. `next` is the place of each query's
    /// next weight.
    fn add_pairs<S>(values: Rows<'_, S>, lanes_of_keys: &[u32], weights: &[S], next: &mut [usize], outputs: &mut [S]) {
        let width = values.width;
        for (index, &readers) in (0..).zip(lanes_of_keys) {
            let mut readers = readers;
            while readers != 0 {
                let lane = readers.trailing_zeros() as usize;
                readers &= readers - 1;
                let weight = weights[next[lane]];
                next[lane] += 1;
                for (out, &x) in outputs[lane * width..(lane + 1) * width].iter_mut().zip(values.row(index)) {
                    *out = x.mul_add(weight, *out);
                }
            }
        }
    }

    /// `out[i] = factor * sum_lane rows[lane, i]`, with rows of the length of `out`.
    fn add_rows<S>(factor: S, rows: &[S], out: &mut [S]) {
        let length = out.len();
        out.fill(S::ZERO);
        for lane in 0..LANES {
            for (out, &x) in out.iter_mut().zip(&rows[lane * length..(lane + 1) * length]) {
                *out += x;
            }
        }
        for out in out {
            *out *= factor;
        }
    }

    /// `out += factor * sum_i weights[i] rows[tokens[i]]`.
    fn add_gathered<S>(factor: S, weights: &[S], rows: Rows<'_, S>, tokens: &[u32], out: &mut [S]) {
        let mut column = 0;
        while column < out.len() {
            let (rows, out) = (rows.skip_columns(column), &mut out[column..]);
            column += match out.len() {
                STRIP.. => add_strip::<S, STRIP>(factor, weights, rows, tokens, out),
                LANES.. => add_strip::<S, LANES>(factor, weights, rows, tokens, out),
                _ => add_strip::<S, 1>(factor, weights, rows, tokens, out),
            };
        }
    }

    /// `rows[tokens[i]] += factor * weights[i] vector`; `stride` is the distance of two rows.
    fn scatter_add<S>(factor: S, weights: &[S], vector: &[S], tokens: &[u32], stride: usize, rows: &mut [S]) {
        for (&weight, &token) in weights.iter().zip(tokens) {
            let (start, weight) = (token as usize * stride, weight * factor);
            let row = &mut rows[start..start + vector.len()];
            for (out, &x) in row.iter_mut().zip(vector) {
                *out = x.mul_add(weight, *out);
            }
        }
    }
}

/// The partial sums of the dot products of a row with two others: two sums of which none waits for the other.
#[inline(always)]
fn dot_in_lanes<S: Scalar>(row: &[S], [first, second]: [&[S]; 2]) -> [[S; LANES]; 2] {
    let (chunks, remainder) = row.as_chunks::<LANES>();
    let ((first, first_remainder), (second, second_remainder)) =
        (first.as_chunks::<LANES>(), second.as_chunks::<LANES>());
    let (mut first_sums, mut second_sums) = ([S::ZERO; LANES], [S::ZERO; LANES]);
    for ((chunk, first), second) in chunks.iter().zip(first).zip(second) {
        for lane in 0..LANES {
            first_sums[lane] = chunk[lane].mul_add(first[lane], first_sums[lane]);
            second_sums[lane] = chunk[lane].mul_add(second[lane], second_sums[lane]);
        }
    }
    let mut sums = [first_sums, second_sums];
    for (sums, others) in sums.iter_mut().zip([first_remainder, second_remainder]) {
        for ((sum, &x), &other) in sums.iter_mut().zip(remainder).zip(others) {
            *sum = x.mul_add(other, *sum);
        }
    }
    sums
}

/// `out[i] = factor * vector . rows[tokens[i]]`.
fn gathered_dots<S: Scalar>(
    factor: S,
    vector: &[S],
    rows: Rows<'_, S>,
    tokens: &[u32],
    sums: &mut PartialSums<'_, S>,
    out: &mut [S],
) {
    for (tokens, out) in tokens.chunks(MAX_DOTS).zip(out.chunks_mut(MAX_DOTS)) {
        dot_tokens(vector, rows, tokens, sums.sums);
        out.copy_from_slice(sums.total(factor, tokens.len()));
    }
}

/// Adds the first `WIDTH` columns of a weighted sum of rows; returns `WIDTH`.
#[inline(always)]
fn add_strip<S: Scalar, const WIDTH: usize>(
    factor: S,
    weights: &[S],
    rows: Rows<'_, S>,
    tokens: &[u32],
    out: &mut [S],
) -> usize {
    let mut sums = [S::ZERO; WIDTH];
    for (&weight, &token) in weights.iter().zip(tokens) {
        let row: &[S; WIDTH] = rows.row(token).first_chunk().expect("a strip of every row");
        for column in 0..WIDTH {
            sums[column] = row[column].mul_add(weight, sums[column]);
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        *out = sum.mul_add(factor, *out);
    }
    WIDTH
}

/// Writes the outputs `[batch, queries, heads, value width]` and the log-sums `[batch, heads, queries]`.
pub(crate) fn forward<S: Scalar>(
    extents: Extents,
    choice: &BlockChoice,
    [query, key, value]: Inputs<'_, S>,
    scratch: &mut [S],
    (log_sums, out): (&mut [S], &mut [S]),
) {
    let (full, inputs) = (extents.full(), attention::Inputs { query, key, value, bias: None });
    let (lanes, key_len) = (Panels::<S>::max_width(), extents.key_len);
    let is_tiled = extents.query_len >= MIN_TILED_QUERIES;
    let (copies, buffers) = scratch.split_at_mut(if is_tiled { full.copies_len() } else { 0 });
    let mut lanes_of_keys = vec![0; BATCH_TILES.min(extents.query_len.div_ceil(lanes)) * key_len];
    for kv_head in full.sequences_and_kv_heads() {
        // A few queries read too few keys to copy all.
        let keys_and_values = is_tiled.then(|| full.copy_keys_and_values(&inputs, kv_head, copies));
        let rows = keys_and_values.map_or_else(
            || {
                let first = kv_head.0 * key_len * extents.kv_heads + kv_head.1;
                [(key, extents.width), (value, extents.value_width)].map(|(x, width)| Rows {
                    data: &x[first * width..],
                    width,
                    stride: extents.kv_heads * width,
                })
            },
            |keys_and_values| keys_and_values.map(Rows::from),
        );
        for batch in full.query_heads(kv_head).flat_map(|head| full.tiles(head, BATCH_TILES * lanes)) {
            let lists = Lists::new(choice, &batch, &extents);
            let density = lists.density(&batch, &extents);
            if !is_tiled || density != Density::All {
                lists.write_lanes_of_keys(lanes, key_len, &mut lanes_of_keys);
            }
            match (&keys_and_values, density) {
                (Some(keys_and_values), Density::All | Density::Many) => {
                    for (tile, lanes_of_keys) in batch.tiles(lanes).zip(lanes_of_keys.chunks(key_len)) {
                        let visible = density.visible_keys(&tile, lanes_of_keys);
                        tile.attend(&inputs, keys_and_values, &visible, buffers, (log_sums, out));
                    }
                }
                _ => attend_to_lists(&batch, &lists, query, rows, &lanes_of_keys, buffers, (log_sums, out)),
            }
        }
    }
}

/// Attention of the queries of a batch, each to its own tokens. The sums do not depend on the other queries of the batch.
fn attend_to_lists<S: Scalar>(
    batch: &Tile,
    lists: &Lists<'_>,
    query: &[S],
    [keys, values]: [Rows<'_, S>; 2],
    lanes_of_keys: &[u32],
    buffers: &mut [S],
    (log_sums, out): (&mut [S], &mut [S]),
) {
    let (rows, stride, key_len) = (lists.rows, weights_stride(lists.longest()), batch.extents.key_len);
    let (mut sums, remaining) = PartialSums::split(buffers);
    let (queries, remaining) = remaining.split_at_mut(rows * keys.width);
    let (outputs, weights) = remaining.split_at_mut(rows * values.width);
    let (query_start, query_stride) = batch.query_position(keys.width);
    for (row, copy) in queries.chunks_exact_mut(keys.width).enumerate() {
        copy.copy_from_slice(&query[query_start + row * query_stride..][..keys.width]);
    }
    let (scale, lanes) = (S::from_f64(batch.extents.scale), Panels::<S>::max_width());
    let (mut next, mut lanes_of_dots) = ([0; BATCH_TILES * MAX_LANES], [0; MAX_DOTS]);
    let start_lists = |next: &mut [usize]| (0..rows).for_each(|row| next[row] = row * stride);
    let blocks = || {
        let key_count = batch.key_range.end;
        (0..key_count).step_by(KEY_BLOCK).flat_map(move |start| {
            let tiles = (0..rows).step_by(lanes).zip(lanes_of_keys.chunks(key_len));
            tiles.map(move |(row, lanes_of_keys)| (row, start, &lanes_of_keys[start..key_count.min(start + KEY_BLOCK)]))
        })
    };
    start_lists(&mut next);
    for (first_row, start, lanes_of_keys) in blocks() {
        let (queries, next) = (&queries[first_row * keys.width..], &mut next[first_row..]);
        for (index, lanes_of_keys) in lanes_of_keys.chunks(DOT_KEYS).enumerate() {
            let keys = keys.skip_rows(start + index * DOT_KEYS);
            let count = dot_pairs(queries, keys, lanes_of_keys, sums.sums, &mut lanes_of_dots);
            for (&score, &lane) in sums.total(scale, count).iter().zip(&lanes_of_dots) {
                weights[next[lane as usize]] = score;
                next[lane as usize] += 1;
            }
        }
    }
    for row in 0..rows {
        let count = lists.of(row).len();
        log_sums[batch.log_sum_index() + row] = softmax_row(&mut weights[row * stride..][..count], 0, count);
    }
    outputs.fill(S::ZERO);
    start_lists(&mut next);
    for (first_row, start, lanes_of_keys) in blocks() {
        let outputs = &mut outputs[first_row * values.width..];
        add_pairs(values.skip_rows(start), lanes_of_keys, weights, &mut next[first_row..], outputs);
    }
    let (out_start, out_stride) = batch.query_position(values.width);
    for (row, output) in outputs.chunks_exact(values.width).enumerate() {
        out[out_start + row * out_stride..][..values.width].copy_from_slice(output);
    }
}

/// Adds to the gradients of keys and values, and overwrites those of queries, from the output, the log-sums and the gradient of the
/// output.
pub(crate) fn backward<S: Scalar>(
    extents: Extents,
    choice: &BlockChoice,
    [query, key, value]: Inputs<'_, S>,
    (out, log_sums, grad_out): (&[S], &[S], &[S]),
    scratch: &mut [S],
    [grad_query, grad_key, grad_value]: [&mut [S]; 3],
) {
    let (full, inputs) = (extents.full(), attention::Inputs { query, key, value, bias: None });
    let mut gradients = Gradients { query: grad_query, key: grad_key, value: grad_value, bias: None };
    let (lanes, key_len) = (Panels::<S>::max_width(), extents.key_len);
    let (copies, buffers) = scratch.split_at_mut(full.copies_len());
    let mut lanes_of_keys = vec![0; BATCH_TILES.min(extents.query_len.div_ceil(lanes)) * key_len];
    for kv_head in full.sequences_and_kv_heads() {
        let keys_and_values = full.copy_keys_and_values(&inputs, kv_head, copies);
        for batch in full.query_heads(kv_head).flat_map(|head| full.tiles(head, BATCH_TILES * lanes)) {
            let lists = Lists::new(choice, &batch, &extents);
            let (density, results) = (lists.density(&batch, &extents), (out, log_sums, grad_out));
            if density == Density::Few {
                let rows = keys_and_values.map(Rows::from);
                attend_to_lists_backward(&batch, &lists, query, rows, results, buffers, &mut gradients);
                continue;
            }
            if density != Density::All {
                lists.write_lanes_of_keys(lanes, key_len, &mut lanes_of_keys);
            }
            for (tile, lanes_of_keys) in batch.tiles(lanes).zip(lanes_of_keys.chunks(key_len)) {
                let visible = density.visible_keys(&tile, lanes_of_keys);
                tile.attend_backward(&inputs, &keys_and_values, &visible, results, buffers, &mut gradients);
            }
        }
    }
}

/// As [`backward`], for the queries of a batch, each with its own tokens: one query after another.
fn attend_to_lists_backward<S: Scalar>(
    batch: &Tile,
    lists: &Lists<'_>,
    query: &[S],
    [keys, values]: [Rows<'_, S>; 2],
    (out, log_sums, grad_out): (&[S], &[S], &[S]),
    buffers: &mut [S],
    gradients: &mut Gradients<'_, S>,
) {
    let (width, value_width, scale) = (keys.width, values.width, S::from_f64(batch.extents.scale));
    let (mut sums, buffers) = PartialSums::split(buffers);
    let ((query_start, query_stride), (out_start, out_stride)) =
        (batch.query_position(width), batch.query_position(value_width));
    let ((key_start, key_stride), (value_start, value_stride)) =
        (batch.key_position(0, width), batch.key_position(0, value_width));
    for row in 0..lists.rows {
        let (tokens, count) = (lists.of(row), lists.of(row).len());
        let (weights, remaining) = buffers.split_at_mut(count);
        let grad_scores = &mut remaining[..count];
        let query_range = query_start + row * query_stride..query_start + row * query_stride + width;
        let out_range = out_start + row * out_stride..out_start + row * out_stride + value_width;
        let (query, grad_out) = (&query[query_range.clone()], &grad_out[out_range.clone()]);
        gathered_dots(scale, query, keys, tokens, &mut sums, weights);
        gathered_dots(S::ONE, grad_out, values, tokens, &mut sums, grad_scores);
        let log_sum = log_sums[batch.log_sum_index() + row];
        softmax_row_gradients(weights, grad_scores, 0, count, log_sum, dot(&out[out_range], grad_out));
        let grad_query = &mut gradients.query[query_range];
        grad_query.fill(S::ZERO);
        add_gathered(scale, grad_scores, keys, tokens, grad_query);
        scatter_add(scale, grad_scores, query, tokens, key_stride, &mut gradients.key[key_start..]);
        scatter_add(S::ONE, weights, grad_out, tokens, value_stride, &mut gradients.value[value_start..]);
    }
}
