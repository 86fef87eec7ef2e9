//! Softmax attention without the matrix of weights.
//!
//! One head at a time, a tile of queries at a time: a product gives the tile's scores against the keys it can see, a pass turns
//! them into weights, a product with the values gives the outputs. Only the log of each row's sum is kept. The backward pass
//! makes the same scores again, from them the same weights, and then needs four more products. Keys that no query of the tile
//! sees are never touched, so causal attention costs half of full attention, and a window costs its size.
//!
//! A tile has so many rows that its scores stay in the second-level cache. Heads are read in place, by stride.

use crate::kernels::pointwise::accumulate;
use crate::kernels::product::{Into, Matrix, MatrixMut, dot, product};
use crate::ops::Sight;
use crate::scalar::Scalar;
use std::ops::Range;

/// Extents and options of a call.
#[derive(Clone, Copy)]
pub(crate) struct Extents {
    pub(crate) batch: usize,
    pub(crate) queries: usize,
    pub(crate) keys: usize,
    pub(crate) heads: usize,
    pub(crate) key_heads: usize,
    pub(crate) width: usize,
    pub(crate) value_width: usize,
    pub(crate) sight: Sight,
    pub(crate) scale: f64,
}

/// An additive bias and how to find the matrix of a sequence and head in it.
pub(crate) struct Bias<'a, S> {
    pub(crate) values: &'a [S],
    pub(crate) per_sequence: bool,
    pub(crate) per_head: bool,
}

/// The most scores of a tile: two such tiles of single precision, for the backward pass, are 256 KB, half of a usual cache.
const TILE_SCORES: usize = 1 << 15;

impl Extents {
    /// Queries per tile.
    fn tile(&self) -> usize {
        (TILE_SCORES / self.keys.max(1)).clamp(16, 64).min(self.queries.max(1))
    }

    /// Numbers of scratch space that a tile's scores need.
    pub(crate) fn scratch(&self) -> usize {
        self.tile() * self.keys
    }

    /// Keys that a query sees.
    fn seen(&self, query: usize) -> Range<usize> {
        self.sight.range(query + self.keys - self.queries, self.keys)
    }

    /// Offset of a matrix of `[.., queries, keys]` biases.
    fn bias_at<S>(&self, bias: &Bias<'_, S>, sequence: usize, head: usize) -> usize {
        let heads = if bias.per_head { self.heads } else { 1 };
        let sequence = if bias.per_sequence { sequence } else { 0 };
        (sequence * heads + if bias.per_head { head } else { 0 }) * self.queries * self.keys
    }

    /// Every sequence, head and tile of queries with the keys it sees.
    fn tiles(self) -> impl Iterator<Item = Tile> {
        let tile = self.tile();
        let heads = (0..self.batch).flat_map(move |sequence| (0..self.heads).map(move |head| (sequence, head)));
        heads.flat_map(move |(sequence, head)| {
            (0..self.queries).step_by(tile).map(move |first| {
                let rows = tile.min(self.queries - first);
                let keys = self.seen(first).start..self.seen(first + rows - 1).end;
                Tile { sequence, head, first, rows, keys, extents: self }
            })
        })
    }
}

/// Some queries of one head, and the keys they see.
struct Tile {
    sequence: usize,
    head: usize,
    first: usize,
    rows: usize,
    keys: Range<usize>,
    extents: Extents,
}

impl Tile {
    fn key_head(&self) -> usize {
        self.head * self.extents.key_heads / self.extents.heads
    }

    /// Where the tile's queries start in `[batch, queries, heads, width]`, and the step from one to the next.
    fn query_place(&self, width: usize) -> (usize, usize) {
        let row = self.sequence * self.extents.queries + self.first;
        ((row * self.extents.heads + self.head) * width, self.extents.heads * width)
    }

    /// The same for the keys in `[batch, keys, key heads, width]`.
    fn key_place(&self, width: usize) -> (usize, usize) {
        let row = self.sequence * self.extents.keys + self.keys.start;
        ((row * self.extents.key_heads + self.key_head()) * width, self.extents.key_heads * width)
    }

    fn queries<'a, S>(&self, x: &'a [S], width: usize) -> Matrix<'a, S> {
        let (place, stride) = self.query_place(width);
        Matrix::new(&x[place..], self.rows, width, stride)
    }

    fn queries_mut<'a, S>(&self, x: &'a mut [S], width: usize) -> MatrixMut<'a, S> {
        let (place, stride) = self.query_place(width);
        MatrixMut::new(&mut x[place..], self.rows, width, stride)
    }

    fn keys<'a, S>(&self, x: &'a [S], width: usize) -> Matrix<'a, S> {
        let (place, stride) = self.key_place(width);
        Matrix::new(&x[place..], self.keys.len(), width, stride)
    }

    fn keys_mut<'a, S>(&self, x: &'a mut [S], width: usize) -> MatrixMut<'a, S> {
        let (place, stride) = self.key_place(width);
        MatrixMut::new(&mut x[place..], self.keys.len(), width, stride)
    }

    fn scores<'a, S>(&self, x: &'a [S]) -> Matrix<'a, S> {
        Matrix::new(x, self.rows, self.keys.len(), self.keys.len())
    }

    fn scores_mut<'a, S>(&self, x: &'a mut [S]) -> MatrixMut<'a, S> {
        MatrixMut::new(x, self.rows, self.keys.len(), self.keys.len())
    }

    /// Keys a row of the tile sees, counted from the tile's first key.
    fn seen(&self, row: usize) -> Range<usize> {
        let seen = self.extents.seen(self.first + row);
        seen.start - self.keys.start..seen.end - self.keys.start
    }

    /// Where a row's kept number is in `[batch, heads, queries]`.
    fn kept_at(&self, row: usize) -> usize {
        (self.sequence * self.extents.heads + self.head) * self.extents.queries + self.first + row
    }

    /// The row's biases in `[.., queries, keys]`, as a range.
    fn bias_range<S>(&self, bias: &Bias<'_, S>, row: usize) -> Range<usize> {
        let start = self.extents.bias_at(bias, self.sequence, self.head)
            + (self.first + row) * self.extents.keys
            + self.keys.start;
        start..start + self.keys.len()
    }

    /// Scaled and biased scores of the tile.
    fn score<S: Scalar>(&self, query: &[S], key: &[S], bias: Option<&Bias<'_, S>>, scores: &mut [S]) {
        let extents = &self.extents;
        let (query, key) = (self.queries(query, extents.width), self.keys(key, extents.width));
        product(&mut self.scores_mut(scores), Into::Fresh, extents.scale, query, key.t());
        let Some(bias) = bias else { return };
        for (row, scores) in scores.chunks_exact_mut(self.keys.len()).take(self.rows).enumerate() {
            accumulate(&bias.values[self.bias_range(bias, row)], scores);
        }
    }
}

vectorised! {
    /// Turns the visible part of a row of scores into weights that sum to one; returns the log of the sum.
    fn weights_of_row<S>(row: &mut [S], from: usize, to: usize) -> S {
        row[..from].fill(S::ZERO);
        row[to..].fill(S::ZERO);
        let row = &mut row[from..to];
        let mut tops = [S::LOWEST; 16];
        let mut blocks = row.chunks_exact(16);
        for block in blocks.by_ref() {
            for (top, &x) in tops.iter_mut().zip(block) {
                *top = x.larger(*top);
            }
        }
        let highest = tops.iter().chain(blocks.remainder()).fold(S::LOWEST, |top, &x| x.larger(top));
        let mut lanes = [S::ZERO; 16];
        let mut blocks = row.chunks_exact_mut(16);
        for block in blocks.by_ref() {
            for (lane, x) in lanes.iter_mut().zip(block) {
                *x = (*x - highest).exp();
                *lane += *x;
            }
        }
        let mut sum = S::ZERO;
        for x in blocks.into_remainder() {
            *x = (*x - highest).exp();
            sum += *x;
        }
        let sum = lanes.into_iter().fold(sum, |sum, lane| sum + lane);
        let share = S::ONE / sum;
        for x in row {
            *x *= share;
        }
        highest + sum.ln()
    }

    /// Turns a row of scores into the weights they had, given the log of their sum.
    fn weights_again<S>(row: &mut [S], from: usize, to: usize, kept: S) {
        row[..from].fill(S::ZERO);
        row[to..].fill(S::ZERO);
        for x in &mut row[from..to] {
            *x = (*x - kept).exp();
        }
    }

    /// Gradient of a row's scores, in place of the gradient of its weights.
    fn score_slopes<S>(weights: &[S], slopes: &mut [S], shared: S) {
        for (slope, &weight) in slopes.iter_mut().zip(weights) {
            *slope = weight * (*slope - shared);
        }
    }
}

/// Inputs of both passes.
pub(crate) struct Inputs<'a, S> {
    pub(crate) query: &'a [S],
    pub(crate) key: &'a [S],
    pub(crate) value: &'a [S],
    pub(crate) bias: Option<Bias<'a, S>>,
}

/// Outputs `[batch, queries, heads, value width]` and the log-sums `[batch, heads, queries]`.
pub(crate) fn forward<S: Scalar>(
    extents: Extents,
    inputs: &Inputs<'_, S>,
    scores: &mut [S],
    kept: &mut [S],
    out: &mut [S],
) {
    for tile in extents.tiles() {
        tile.score(inputs.query, inputs.key, inputs.bias.as_ref(), scores);
        for (row, scores) in scores.chunks_exact_mut(tile.keys.len()).take(tile.rows).enumerate() {
            let seen = tile.seen(row);
            kept[tile.kept_at(row)] = weights_of_row(scores, seen.start, seen.end);
        }
        let values = tile.keys(inputs.value, extents.value_width);
        product(&mut tile.queries_mut(out, extents.value_width), Into::Fresh, 1.0, tile.scores(scores), values);
    }
}

/// What the backward pass writes. Gradients of keys, values and bias are added to; that of the queries is replaced.
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
    (out, kept, slope): (&[S], &[S], &[S]),
    (weights, slopes): (&mut [S], &mut [S]),
    gradients: &mut Gradients<'_, S>,
) {
    let (width, value_width) = (extents.width, extents.value_width);
    for tile in extents.tiles() {
        tile.score(inputs.query, inputs.key, inputs.bias.as_ref(), weights);
        let out_slope = tile.queries(slope, value_width);
        let values = tile.keys(inputs.value, value_width);
        product(&mut tile.scores_mut(slopes), Into::Fresh, 1.0, out_slope, values.t());
        let (place, stride) = tile.query_place(value_width);
        let rows = weights.chunks_exact_mut(tile.keys.len()).zip(slopes.chunks_exact_mut(tile.keys.len()));
        for (row, (weights, slopes)) in rows.take(tile.rows).enumerate() {
            let seen = tile.seen(row);
            weights_again(weights, seen.start, seen.end, kept[tile.kept_at(row)]);
            let at = place + row * stride..place + row * stride + value_width;
            score_slopes(weights, slopes, dot(&out[at.clone()], &slope[at]));
            if let (Some(bias), Some(to_bias)) = (&inputs.bias, &mut gradients.bias) {
                accumulate(slopes, &mut to_bias[tile.bias_range(bias, row)]);
            }
        }
        let (weights, slopes) = (tile.scores(weights), tile.scores(slopes));
        let (query, key) = (tile.queries(inputs.query, width), tile.keys(inputs.key, width));
        product(&mut tile.keys_mut(gradients.value, value_width), Into::Sum, 1.0, weights.t(), out_slope);
        product(&mut tile.queries_mut(gradients.query, width), Into::Fresh, extents.scale, slopes, key);
        product(&mut tile.keys_mut(gradients.key, width), Into::Sum, extents.scale, slopes.t(), query);
    }
}
