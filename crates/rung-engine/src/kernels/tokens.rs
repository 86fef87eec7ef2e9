//! Softmax attention in which each query reads chosen tokens, at the cost of those tokens alone.
//!
//! Blocks of one key have too few readers each for the products of [`blocks`](super::blocks). So here each query takes its own keys:
//! a dot product with every chosen key, a softmax over them, and a weighted sum of their values. Rows of keys and values are read in
//! place. Only the log of each sum of exponentials is stored; the backward pass computes the weights again.

use super::blocks::{Extents, Inputs};
use super::product::dot;
use super::softmax::{softmax_row, softmax_row_gradients};
use crate::choice::BlockChoice;
use crate::scalar::Scalar;
use std::ops::Range;

/// Channels that are summed at a time. Widths of heads are usually multiples of it.
const LANES: usize = 8;

/// One query of one head, and the tokens that it reads.
struct Query<'a> {
    /// Row in `[batch, queries, heads]`.
    row: usize,
    /// Index of its log-sum in `[batch, heads, queries]`.
    log_sum_index: usize,
    tokens: &'a [u32],
    /// Row of the first key in `[batch, keys, KV heads]`, and the rows from one key to the next.
    first_key: usize,
    key_stride: usize,
}

impl Query<'_> {
    fn range(&self, width: usize) -> Range<usize> {
        self.row * width..(self.row + 1) * width
    }

    /// The rows of the head's keys, or values, from the first on.
    fn rows<'a, S>(&self, x: &'a [S], width: usize) -> Rows<'a, S> {
        Rows { data: &x[self.first_key * width..], width, stride: self.key_stride * width }
    }
}

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
}

impl Extents {
    /// All queries, those of one head after another: the keys of a head stay in the cache.
    fn queries<'a>(&'a self, choice: &'a BlockChoice) -> impl Iterator<Item = Query<'a>> {
        let Self { batch, query_len, key_len, heads, kv_heads, groups, .. } = *self;
        (0..batch * heads).flat_map(move |index| {
            let (sequence, head) = (index / heads, index % heads);
            let group = sequence * groups + head * groups / heads;
            (0..query_len).map(move |query| Query {
                row: (sequence * query_len + query) * heads + head,
                log_sum_index: index * query_len + query,
                tokens: choice.blocks_of(group * query_len + query),
                first_key: sequence * key_len * kv_heads + head * kv_heads / heads,
                key_stride: kv_heads,
            })
        })
    }
}

/// Partial sums of a dot product.
const DOT_LANES: usize = 16;

/// Dot product with `DOT_LANES` partial sums, which are then added in halves: both loops become vector code.
#[inline(always)]
fn dot_in_lanes<S: Scalar>(left: &[S], right: &[S]) -> S {
    let ((left, left_remainder), (right, right_remainder)) =
        (left.as_chunks::<DOT_LANES>(), right.as_chunks::<DOT_LANES>());
    let mut lanes = [S::ZERO; DOT_LANES];
    for (left, right) in left.iter().zip(right) {
        for (lane, (&left, &right)) in lanes.iter_mut().zip(left.iter().zip(right)) {
            *lane = left.mul_add(right, *lane);
        }
    }
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            lanes[lane] += lanes[lane + half];
        }
    }
    left_remainder.iter().zip(right_remainder).fold(lanes[0], |sum, (&left, &right)| left.mul_add(right, sum))
}

vectorised! {
    /// `out[i] = factor * vector . rows[tokens[i]]`.
    fn gathered_dots<S>(factor: S, vector: &[S], rows: Rows<'_, S>, tokens: &[u32], out: &mut [S]) {
        for (out, &token) in out.iter_mut().zip(tokens) {
            *out = dot_in_lanes(rows.row(token), vector) * factor;
        }
    }

    /// `out = factor * sum_i weights[i] rows[tokens[i]]`.
    fn gathered_sum<S>(factor: S, weights: &[S], rows: Rows<'_, S>, tokens: &[u32], out: &mut [S]) {
        for (index, out) in out.chunks_mut(LANES).enumerate() {
            let start = index * LANES;
            let mut sums = [S::ZERO; LANES];
            if out.len() == LANES {
                for (&weight, &token) in weights.iter().zip(tokens) {
                    let row = &rows.row(token)[start..start + LANES];
                    for lane in 0..LANES {
                        sums[lane] = row[lane].mul_add(weight, sums[lane]);
                    }
                }
            } else {
                for (&weight, &token) in weights.iter().zip(tokens) {
                    for (sum, &x) in sums.iter_mut().zip(&rows.row(token)[start..]) {
                        *sum = x.mul_add(weight, *sum);
                    }
                }
            }
            for (out, &sum) in out.iter_mut().zip(&sums) {
                *out = sum * factor;
            }
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

/// Writes the outputs `[batch, queries, heads, value width]` and the log-sums `[batch, heads, queries]`. `scratch` has one number per
/// token of the longest list.
pub(crate) fn forward<S: Scalar>(
    extents: Extents,
    choice: &BlockChoice,
    [query, key, value]: Inputs<'_, S>,
    scratch: &mut [S],
    (log_sums, out): (&mut [S], &mut [S]),
) {
    let Extents { width, value_width, .. } = extents;
    for reader in extents.queries(choice) {
        let count = reader.tokens.len();
        let weights = &mut scratch[..count];
        let scale = S::from_f64(extents.scale);
        gathered_dots(scale, &query[reader.range(width)], reader.rows(key, width), reader.tokens, weights);
        log_sums[reader.log_sum_index] = softmax_row(weights, 0, count);
        let values = reader.rows(value, value_width);
        gathered_sum(S::ONE, weights, values, reader.tokens, &mut out[reader.range(value_width)]);
    }
}

/// Adds to the gradients of keys and values, and overwrites those of queries, from the output, the log-sums and the gradient of the
/// output. `scratch` has two numbers per token of the longest list.
pub(crate) fn backward<S: Scalar>(
    extents: Extents,
    choice: &BlockChoice,
    [query, key, value]: Inputs<'_, S>,
    (out, log_sums, grad_out): (&[S], &[S], &[S]),
    scratch: &mut [S],
    [grad_query, grad_key, grad_value]: [&mut [S]; 3],
) {
    let Extents { width, value_width, .. } = extents;
    let scale = S::from_f64(extents.scale);
    for reader in extents.queries(choice) {
        let (tokens, count) = (reader.tokens, reader.tokens.len());
        let (weights, remaining) = scratch.split_at_mut(count);
        let grad_scores = &mut remaining[..count];
        let (query, keys) = (&query[reader.range(width)], reader.rows(key, width));
        let out_range = reader.range(value_width);
        let (out, grad_out) = (&out[out_range.clone()], &grad_out[out_range]);
        gathered_dots(scale, query, keys, tokens, weights);
        gathered_dots(S::ONE, grad_out, reader.rows(value, value_width), tokens, grad_scores);
        let log_sum = log_sums[reader.log_sum_index];
        softmax_row_gradients(weights, grad_scores, 0, count, log_sum, dot(out, grad_out));
        gathered_sum(scale, grad_scores, keys, tokens, &mut grad_query[reader.range(width)]);
        let key_stride = reader.key_stride;
        scatter_add(scale, grad_scores, query, tokens, key_stride * width, &mut grad_key[reader.first_key * width..]);
        let grad_values = &mut grad_value[reader.first_key * value_width..];
        scatter_add(S::ONE, weights, grad_out, tokens, key_stride * value_width, grad_values);
    }
}
